#!/usr/bin/env bash
# An array of N tasks and the merge behind it:
#
#   jobs/slurm/submit.sh N IN.jsonl OUT.jsonl [OPTIONS of the batch command]
#
# SBATCH="--partition=… --account=…" goes to both. Prints the job numbers.
set -euo pipefail
count=$1 input=$2 output=$3
shift 3
read -ra more <<<"${SBATCH:-}"
array=$(sbatch --parsable "${more[@]}" --array="0-$((count - 1))" jobs/slurm/array.sbatch "$input" "$output" "$@")
merge=$(sbatch --parsable "${more[@]}" --dependency="afterany:$array" jobs/slurm/merge.sbatch "$output")
echo "$array $merge"
