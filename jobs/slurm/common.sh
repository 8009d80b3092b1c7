# shellcheck shell=bash
# What the job scripts here share: a server beside the run, an end in good order, another turn.
#
# From the environment:
#   PYTHON        that has this package (default .venv/bin/python)
#   SERVER        starts a server; gets --port and --ready-file (default: python3 serve/start.py,
#                 which reads MODEL, TP, DP, MAX_MODEL_LEN, SERVED_MODEL_NAME, EXTRA and API_KEY)
#   BASE_URLS     servers that run already, blank-separated: none is started; the shard whose `index`
#                 is set takes one of them in turn
#   MAX_RESTARTS  turns after a server that died (default 3)

python=${PYTHON:-.venv/bin/python}
stopping=
run_pid=
server_pid=

say() { printf '== %(%T)T  %s\n' -1 "$*" >&2; }

# While Slurm warns that time is nearly over, the job is RUNNING and only this script is signalled.
# When it ends the job (preempted, requeued, cancelled) that is COMPLETING, every process has had
# the signal, and Slurm puts the job back or does not, as it was told.
is_running() { [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; }

# The run drains and writes, then the server goes. A second signal would end the run at once.
on_term() {
  stopping=yes
  say "asked to stop"
  if [ -n "$run_pid" ] && is_running; then kill -TERM "$run_pid" 2>/dev/null || true; fi
}
trap on_term TERM

# Wait for a process through signals, which end a plain `wait` early. Returns its status.
await() {
  local status
  while true; do
    status=0
    wait "$1" || status=$?
    kill -0 "$1" 2>/dev/null || break
  done
  return "$status"
}

free_port() {
  "$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# Sets base_url: from BASE_URLS, or by starting a server.
use_server() {
  local -a urls command
  read -ra urls <<<"${BASE_URLS:-}"
  if [ ${#urls[@]} -gt 0 ]; then
    base_url=${urls[$((${index:-0} % ${#urls[@]}))]}
    return
  fi
  read -ra command <<<"${SERVER:-python3 serve/start.py}"
  ready=$(mktemp -d)/url
  say "starting a server: ${command[*]}"
  # Tasks of an array may share a node: each server has a port of its own.
  "${command[@]}" --port "$(free_port)" --ready-file "$ready" &
  server_pid=$!
  until [ -s "$ready" ]; do
    if [ -n "$stopping" ]; then finish 130; fi
    if ! kill -0 "$server_pid" 2>/dev/null; then
      status=0
      await "$server_pid" || status=$?
      if [ "$status" -eq 2 ]; then finish 2; else finish 3; fi # 2: it never will start like this
    fi
    sleep 0.5
  done
  base_url=$(<"$ready")
}

# run IN OUT [OPTIONS …]: the batch run; its status is in `status`.
run() {
  local input=$1 output=$2
  shift 2
  if [ -n "$stopping" ]; then finish 130; fi
  say "running on $base_url, turn ${SLURM_RESTART_COUNT:-0}"
  # A key that guards the server of this job is the client's key, too.
  MEDAGENTS_API_KEY=${MEDAGENTS_API_KEY:-${API_KEY:-}} \
    "$python" -m medagents_async.batch "$input" "$output" --base-url "$base_url" "$@" &
  run_pid=$!
  if [ -n "$stopping" ]; then kill -TERM "$run_pid" 2>/dev/null || true; fi
  status=0
  await "$run_pid" || status=$?
  run_pid=
}

# finish STATUS: stop the server, take another turn where that helps, end.
finish() {
  if [ -n "$server_pid" ]; then
    kill -TERM "$server_pid" 2>/dev/null || true
    await "$server_pid" || true
    rm -rf "$(dirname "$ready")"
  fi
  say "status $1"
  local why=
  if [ -n "$stopping" ]; then
    case $1 in 130 | 143 | 3) if is_running; then why="time is up"; fi ;; esac
  elif [ "$1" -eq 3 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${MAX_RESTARTS:-3}" ]; then
    why="the server went away"
  fi
  if [ -n "$why" ]; then
    say "$why: back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || true
  fi
  exit "$1"
}
