#!/usr/bin/env bash
# The main job from nothing: install, start a server, ask, show, stop. One argument: vllm (default)
# or simulator. Called by `make demo`, which has set up .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

server=${1:-vllm}
python=${PYTHON:-python3}
work=.demo
ready=$work/url
started=$SECONDS
mkdir -p "$work"
rm -rf "$ready" "$work"/out*

say() { printf '== %3d s  %s\n' $((SECONDS - started)) "$*"; }

stop() {
  if [ -n "${pid:-}" ] && kill -0 "$pid" 2>/dev/null; then
    say "stopping the server"
    kill -INT "$pid"
    wait "$pid" || true
  fi
}
trap stop EXIT

case $server in
vllm)
  say "installing vLLM for this machine's CPU (once; a few minutes)"
  "$python" serve/install.py
  say "making the small model (once)"
  .venv-serve/bin/python serve/model.py
  say "starting vLLM"
  set -m # a background job of a script ignores SIGINT otherwise
  free='import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
  HOST=127.0.0.1 PORT=${PORT:-$("$python" -c "$free")} \
    "$python" serve/start.py --log .serve/demo.log --ready-file "$ready" >&2 &
  pid=$!
  set +m
  # A model of 135 million parameters on two cores: fewer tokens and rounds than the paper has, the
  # layout that lets the server compute shared prompts once, and votes and choices constrained.
  questions=2
  settings=(--temperature 0 --set layout=shared-prefix --set constrain=true --set rounds=1
    --set recruit_tokens=40 --set analysis_tokens=64 --set report_tokens=128 --set vote_tokens=8
    --set advice_tokens=48 --set decision_tokens=24)
  say "note: $questions questions, one round of votes and short replies, to fit two cores;" \
    "the model shows the machinery, not medicine"
  ;;
simulator)
  say "starting the simulator: a server with invented replies"
  set -m
  .venv/bin/python -m medagents_async.simulator --port 0 --latency 0.2 --ready-file "$ready" &
  pid=$!
  set +m
  questions=8
  settings=()
  ;;
*)
  echo "SERVER=$server: want vllm or simulator" >&2
  exit 2
  ;;
esac

while [ ! -s "$ready" ]; do
  kill -0 "$pid" 2>/dev/null || { wait "$pid" || true; echo "the server did not start" >&2; exit 1; }
  sleep 0.2
done

say "running the main job"
.venv/bin/python -m medagents_async.batch examples/medqa_sample.jsonl "$work/out.jsonl" \
  --base-url "$(cat "$ready")" --limit "$questions" "${settings[@]}"
say "what came out"
.venv/bin/python -m medagents_async.report "$work/out.jsonl" --show 1
.venv/bin/python -m medagents_async.report "$work/out.jsonl"
say "done; every row with all prompts and replies is in $work/out.jsonl"
