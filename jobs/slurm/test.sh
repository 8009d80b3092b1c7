#!/usr/bin/env bash
# `make slurm`: the job files here under a real Slurm, a cluster of two nodes on this machine that
# is thrown away at the end. The simulator is the server. Exit status 3: Slurm is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin

for program in sbatch slurmctld slurmd munged; do
  if ! command -v "$program" >/dev/null; then
    echo "$program is not installed (Debian: apt install slurm-wlm munge): nothing was tested" >&2
    exit 3
  fi
done

work=$(mktemp -d /tmp/slurm-test.XXXXXX)
python=$PWD/.venv/bin/python
me=$(id -un)
host=$(hostname -s)
pids=()
# A job sees what its submitter has set; none of it may decide here.
unset BASE_URLS SERVER SHARDS MODEL EXTRA API_KEY MEDAGENTS_BASE_URL MEDAGENTS_API_KEY OPENAI_API_KEY
export PYTHON=$python SLURM_CONF=$work/slurm.conf
ports=("$("$python" -c '
import socket
held = [socket.socket() for _ in range(3)]
for s in held: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))')")
read -r control_port first_port second_port <<<"${ports[0]}"

say() { printf '== %3d s  %s\n' "$SECONDS" "$*"; }

stop() {
  local status=$?
  trap - EXIT
  scancel --user="$me" 2>/dev/null || true
  for ((n = ${#pids[@]} - 1; n >= 0; n--)); do
    kill "${pids[n]}" 2>/dev/null || true
    wait "${pids[n]}" 2>/dev/null || true
  done
  if [ "$status" -ne 0 ]; then
    echo "FAILED; logs:" >&2
    tail -n 25 "$work"/slurm*.log "$work"/job-*.log >&2 || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap stop EXIT

fail() {
  echo "$*" >&2
  exit 1
}

start() { # start NAME COMMAND …: a part of the cluster, in the foreground mode, beside this script
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  pids+=($!)
}

cluster() {
  chmod 755 "$work" # munge wants to know who may change its socket's folder
  dd if=/dev/urandom of="$work/munge.key" bs=128 count=1 status=none
  chmod 400 "$work/munge.key"
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control_port
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
# cred_expire is also how long a requeued job has to wait.
AuthInfo=socket=$work/munge.socket,cred_expire=5
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmdSpoolDir=$work/spool-%n
# What needs cgroups, accounting or a real cluster is off.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$first_port CPUs=4
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$second_port CPUs=4
PartitionName=test Nodes=ALL Default=YES MaxTime=60 State=UP
END
  mkdir "$work/state" "$work/spool-one" "$work/spool-two"
  start munged munged --foreground --force --key-file="$work/munge.key" \
    --socket="$work/munge.socket" --pid-file="$work/munged.pid" \
    --log-file="$work/munged.out.log" --seed-file="$work/munge.seed"
  until [ -S "$work/munge.socket" ]; do kill -0 "${pids[0]}" || fail "munged ended"; sleep 0.1; done
  start slurmctld slurmctld -D
  start slurmd-one slurmd -D -N one
  start slurmd-two slurmd -D -N two
  for _ in $(seq 300); do
    if [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = 2 ]; then return; fi
    for pid in "${pids[@]}"; do kill -0 "$pid" || fail "a part of the cluster ended"; done
    sleep 0.2
  done
  fail "the nodes did not get ready: $(sinfo -N -l)"
}

submit() { # submit FILE ARGUMENTS …, with limits that fit this machine; prints the job's number
  sbatch --parsable --gres=none --cpus-per-task=1 --time=10 \
    --output="$work/job-%j.log" "$@"
}

state() { scontrol show job "$1" | grep -o 'JobState=[A-Z]*' | sort -u | cut -d= -f2 | xargs; }
restarts() { scontrol show job "$1" | grep -o 'Restarts=[0-9]*' | sort -u | tail -n 1 | cut -d= -f2; }

ended() { # ended JOB STATE: wait for its end, which must be STATE
  for _ in $(seq 1200); do
    case $(state "$1") in *PENDING* | *RUNNING* | *COMPLETING* | *REQUEUED*) sleep 0.2 ;; *) break ;; esac
  done
  [ "$(state "$1")" = "$2" ] || fail "job $1 is $(state "$1"), not $2"
}

answered() { # answered N: wait until the simulator has answered N calls since its last reset
  for _ in $(seq 1200); do
    if [ "$(stat served)" -ge "$1" ]; then return; fi
    sleep 0.1
  done
  fail "the run never got to $1 calls"
}

stat() { "$python" -c "$fetch" "$url/simulator/stats" | "$python" -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }
reset() { "$python" -c "$fetch" "$url/simulator/reset" post >/dev/null; }
fetch='import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(urllib.request.Request(sys.argv[1], data=b"" if sys.argv[2:] else None)).read().decode())'

whole() { # whole OUT LABEL: each question once, and no call asked again
  "$python" - "$1" "$QUESTIONS" "$(stat repeated)" "$2" <<'END'
import json, pathlib, sys
rows = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
wanted, repeated = int(sys.argv[2]), int(sys.argv[3])
lost, doubled = wanted - len({r["id"] for r in rows}), len(rows) - len({r["id"] for r in rows})
failed = sum(row["status"] == "error" for row in rows)
print(f"   {sys.argv[4]}: {len(rows)} rows, {lost} lost, {doubled} doubled, {failed} failed, {repeated} calls repeated")
sys.exit(any((lost, doubled, failed, repeated)))
END
}

QUESTIONS=40
options=(--concurrency 8)
input=$work/in.jsonl
"$python" - >"$input" <<END
import json
for n in range($QUESTIONS):
    print(json.dumps({"id": f"q{n}", "question": f"What about {n}?", "options": {"A": "a", "B": "b"}, "answer": "A"}))
END

say "a cluster of two nodes in $work"
cluster
start simulator "$python" -m medagents_async.simulator --port 0 --latency 0.1 --ready-file "$work/url"
until [ -s "$work/url" ]; do sleep 0.1; done
base=$(<"$work/url")
url=${base%/v1}
# A server of a job whose calls the simulator above counts, since that outlives the job.
cat >"$work/front.sh" <<END
while [ \$# -gt 0 ]; do if [ "\$1" = --ready-file ]; then echo "$base" >"\$2"; fi; shift; done
exec sleep 1000
END

say "node.sbatch with a server of its own"
job=$(SERVER="$python -m medagents_async.simulator" submit jobs/slurm/node.sbatch "$input" "$work/node.jsonl" "${options[@]}")
ended "$job" COMPLETED
whole "$work/node.jsonl" "node"

say "node.sbatch, requeued by Slurm in the middle, then asked to stop before a time limit"
reset
job=$(SERVER="bash $work/front.sh" submit jobs/slurm/node.sbatch "$input" "$work/again.jsonl" "${options[@]}")
answered 100
scontrol requeue "$job"
answered 250
scancel --batch --signal=TERM "$job" # what --signal=B:TERM@120 sends
ended "$job" COMPLETED
[ "$(restarts "$job")" = 2 ] || fail "it had $(restarts "$job") more turns, not 2"
whole "$work/again.jsonl" "node, two requeues"

say "node.sbatch, cancelled: it stays so, and a later job goes on"
reset
job=$(SERVER="bash $work/front.sh" submit jobs/slurm/node.sbatch "$input" "$work/later.jsonl" "${options[@]}")
answered 100
scancel "$job"
ended "$job" CANCELLED
job=$(BASE_URLS=$base submit jobs/slurm/node.sbatch "$input" "$work/later.jsonl" "${options[@]}")
ended "$job" COMPLETED
whole "$work/later.jsonl" "node, cancelled and submitted again"

say "array.sbatch of four tasks and its merge, one task requeued in the middle"
reset
export SERVER="bash $work/front.sh" SBATCH="--gres=none --cpus-per-task=1 --time=10 --output=$work/job-%j.log"
read -r array merge <<<"$(jobs/slurm/submit.sh 4 "$input" "$work/array.jsonl" "${options[@]}")"
answered 100
scontrol requeue "${array}_2"
ended "$merge" COMPLETED
whole "$work/array.jsonl" "array of 4, one requeue, merged"
unset SERVER SBATCH

say "nodes.sbatch on two nodes, with stand-ins for vLLM"
reset
job=$(WORKER="hostname >$work/worker; exec sleep 1000" SERVER="bash $work/front.sh" submit --nodes=2 jobs/slurm/nodes.sbatch "$input" "$work/nodes.jsonl" "${options[@]}")
ended "$job" COMPLETED
[ -s "$work/worker" ] || fail "no worker ran on the other node"
whole "$work/nodes.jsonl" "two nodes"

say "done"
