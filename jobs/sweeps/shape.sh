#!/usr/bin/env bash
# `make reproduce-shape`: shape.toml on the simulator, then one LaTeX table and one page in runs/shape.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
folder=${1:-runs/shape}
if [ ! -d "${MEDAGENTS_DATA:-}" ]; then
    echo "MEDAGENTS_DATA must name the folder with the published evaluation sets" >&2
    exit 2
fi
mkdir -p "$folder"
ready=$(mktemp)
"$python" -m medagents_async.simulator --port 0 --latency 0.05 --ready-file "$ready" >/dev/null &
simulator=$!
trap 'kill $simulator; rm -f "$ready"' EXIT
for _ in $(seq 300); do [ -s "$ready" ] && break; sleep 0.1; done
MEDAGENTS_BASE_URL=$(<"$ready")
export MEDAGENTS_BASE_URL
"$python" -m jobs.sweeps jobs/sweeps/shape.toml "$folder"
mapfile -t runs < <(find "$folder/server" -name '*.jsonl' | sort)
# The first of the report's tables is the papers'.
"$python" -m medagents_async.report "${runs[@]}" --format latex --html "$folder/report.html" |
    sed -n '1,/end{table}/p' >"$folder/table2.tex"
cat "$folder/table2.tex"
echo "$folder/table2.tex and $folder/report.html"
