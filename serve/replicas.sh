#!/usr/bin/env bash
# One server for each of N GPUs, on ports that follow one another:
#
#   RECIPE=llama-3.1-8b serve/replicas.sh 8
#
# Prints the options for the batch command when all answer; Ctrl-C stops all. With servers of their
# own, a question's calls stay where its prompts are cached, and one that dies takes no other along.
# TP=2: GPUs 0,1 for the first, 2,3 for the second. PORT: the first port (default 8000).
set -euo pipefail
cd "$(dirname "$0")/.."

count=${1:?want the number of servers}
first=${PORT:-8000}
each=${TP:-1}
folder=$(mktemp -d)
pids=()

# shellcheck disable=SC2317 # the trap calls it
stop() {
  trap '' INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM

for ((n = 0; n < count; n++)); do
  gpus=$(seq -s, $((n * each)) $(((n + 1) * each - 1)))
  CUDA_VISIBLE_DEVICES=$gpus PORT=$((first + n)) ${SERVER:-python3 serve/start.py} \
    --port $((first + n)) --ready-file "$folder/$n" >/dev/null &
  pids+=($!)
done
for ((n = 0; n < count; n++)); do
  until [ -s "$folder/$n" ]; do
    kill -0 "${pids[n]}" 2>/dev/null || { echo "server $n did not start" >&2; exit 1; }
    sleep 0.2
  done
done
cat "$folder"/* | sort -V | sed 's/^/--base-url /' | xargs
wait -n || true # one that ends ends all: its GPU would idle in silence
echo "a server has ended; stopping the others" >&2
exit 1
