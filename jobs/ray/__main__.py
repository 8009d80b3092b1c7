"""`python -m jobs.ray IN.jsonl OUT.jsonl [options] [-- options of batch]`: one job on Ray.

Exit status as of the batch command. Run again to resume: shards that are done are only looked at.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

if "local" in sys.argv:  # read when Ray is imported: a cluster for tests stays on loopback
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import ray

from jobs.ray.board import Board
from jobs.ray.worker import ROOT, Ended, Worker
from jobs.shards import Shards
from medagents_async.errors import MedAgentsError, OutputFailed, RunStopped, UsageError
from medagents_async.merge import merge

#: What decides about a server or a client on another node; all else there is that node's own.
PASSED_ON = """RECIPE MODEL TP DP MAX_MODEL_LEN SERVED_MODEL_NAME EXTRA API_KEY HF_TOKEN HF_HOME
    MEDAGENTS_API_KEY OPENAI_API_KEY""".split()
LOCKED = "another run is writing"  # the run of a lost actor is not quite dead yet
PAUSE_S = 10.0
STARTS = 5  # in vain, before the job gives up


def say(text: str) -> None:
    """Tell people, on stderr."""
    print(f"== {time.strftime('%T')}  {text}", file=sys.stderr, flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    """The options of this command, and those behind `--`, which are the batch command's."""
    own, options = words, []
    if "--" in words:
        cut = words.index("--")
        own, options = words[:cut], words[cut + 1 :]
    parser = argparse.ArgumentParser("python -m jobs.ray", description=__doc__)
    add = parser.add_argument
    add("input", type=Path, metavar="IN.jsonl")
    add("output", type=Path, metavar="OUT.jsonl", help="shards go to OUT.shards/ beside it")
    add("--workers", type=int, default=1, metavar="N", help="actors, each with a server")
    add("--gpus", type=int, default=1, metavar="N", help="of each actor: one copy of the model")
    add("--shards", type=int, metavar="N", help="default: eight for each worker")
    add("--base-url", action="append", metavar="URL", help="servers that run already; repeatable")
    add("--server", metavar="COMMAND", help="starts a server (default: serve/start.py)")
    add("--address", metavar="HOST:PORT", help="of the cluster; `local` starts one here")
    parsed = parser.parse_args(own)
    parsed.options = options
    return parsed


class Crew:
    """The actors. A lost one is replaced; it gets work once its server answers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._urls: list[str] = options.base_url or []
        self._gpus = 0 if self._urls else options.gpus
        self._server: str | None = options.server
        # As arguments: a runtime_env would be shown on Ray's dashboard, keys and all.
        self._passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._actor: Any = ray.remote(Worker).options(
            num_cpus=1,
            num_gpus=self._gpus,
            max_restarts=0,  # a shard's run must end with its actor; the driver starts another
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
        )
        self.actors: dict[int, Any] = {}
        self.starting: dict[Any, int] = {}
        self._failed = 0

    def hire(self, number: int) -> None:
        """Start actor `number`, a new one where it was lost."""
        url = self._urls[number % len(self._urls)] if self._urls else None
        self.actors[number] = actor = self._actor.remote(
            self._passed, url, self._gpus, self._server
        )
        self.starting[actor.where.remote()] = number

    def arrived(self) -> list[int]:
        """The actors that became ready. Raises RunStopped when none will start any more."""
        ready, _ = ray.wait(list(self.starting), num_returns=len(self.starting), timeout=0.1)
        numbers = []
        for reference in ready:
            number = self.starting.pop(reference)
            try:
                say(f"worker {number}: {ray.get(reference)}")
                numbers.append(number)
            except ray.exceptions.RayError as error:
                self._failed += 1
                if self._failed == STARTS:
                    raise RunStopped(f"no worker can start: {error}") from error
                self.hire(number)
        return numbers

    def dismiss(self) -> None:
        """End all servers in order, then the actors."""
        away = set(self.starting.values())  # these may have no place to start on, ever
        stops = [actor.stop.remote() for number, actor in self.actors.items() if number not in away]
        if stops:
            ray.wait(stops, num_returns=len(stops), timeout=90.0)
        for actor in self.actors.values():
            ray.kill(actor)


def drive(options: argparse.Namespace, shards: Shards) -> int:
    """Hand out shards until all are done; returns the worst exit status of their runs, 0 or 1.

    Raises UsageError where a run says so, RunStopped.
    """
    board, crew = Board(shards.count), Crew(options)
    source = options.input.resolve()
    for number in range(min(options.workers, shards.count)):
        crew.hire(number)
    idle: list[int] = []
    running: dict[Any, tuple[int, int]] = {}
    worst, begun, due = 0, time.monotonic(), 0.0
    while board.open:
        if crew.starting:
            idle += crew.arrived()
        while idle and (shard := board.take()) is not None:
            number = idle.pop(0)
            run = crew.actors[number].run
            name = f"{shard}/{shards.count}"
            path = shards.path(shard).resolve()
            running[run.remote(source, path, name, options.options)] = (number, shard)
        ready, _ = ray.wait(list(running), timeout=1.0) if running else ([], [])
        for reference in ready:
            number, shard = running.pop(reference)
            try:
                ended: Ended = ray.get(reference)
            except ray.exceptions.RayError as error:
                say(f"worker {number} is lost; shard {shard} goes to another one")
                board.give_back(shard, str(error))
                ray.kill(crew.actors[number])
                crew.hire(number)
                continue
            worst = max(worst, settle(board, shard, ended))
            idle.append(number)
        if time.monotonic() >= due:
            due = time.monotonic() + 5.0
            say(
                f"{len(board.done)}/{shards.count} shards done · {len(running)} running · "
                f"{shards.rows():,} rows · {time.monotonic() - begun:.0f} s"
            )
    crew.dismiss()
    return worst


def settle(board: Board, shard: int, ended: Ended) -> int:
    """Note how the run of `shard` ended; returns 1 where some of its questions ended in errors."""
    if ended.status in (0, 1):
        board.finish(shard)
        return ended.status
    if ended.status == 2 and LOCKED not in ended.said:
        raise UsageError(f"shard {shard}: {ended.said}")
    say(f"shard {shard} ended with status {ended.status}: {ended.said.strip()[-300:]}")
    if LOCKED in ended.said:
        time.sleep(PAUSE_S)
    board.give_back(shard, ended.said)
    return 0


def _local(options: argparse.Namespace) -> dict[str, Any]:
    """A cluster that is started here is for tests: as many actors as asked for, on loopback."""
    if options.address != "local":
        return {}
    return {
        "num_cpus": options.workers,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }


def main() -> int:
    """Run the command line and return the exit status."""
    options = parse(sys.argv[1:])
    count = options.shards or 8 * options.workers
    try:
        shards = Shards(options.output.resolve(), count)
        ray.init(address=options.address, log_to_driver=False, **_local(options))
        status = drive(options, shards)
        totals = merge(shards.paths(), options.output)
        say(f"{totals['done']} rows in {options.output}, {totals['error']} errors")
    except (UsageError, RunStopped, OutputFailed) as error:
        say(str(error))
        return error.exit_status
    except MedAgentsError as error:
        say(str(error))
        return 3
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
