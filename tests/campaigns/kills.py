"""`make kills`: SIGKILL at random moments of real runs, each resumed until done.

Moments are drawn from a seed: so many requests into the process's life, and a few milliseconds
more, so that they fall into writes, too.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from medagents_async.simulator import Reply, Request, plausible, running
from tests.campaigns.ledger import Line, judge, show
from tests.conftest import question_row
from tests.support.command import Run, until

KILLS = int(os.environ.get("KILLS", "200"))
SEED = int(os.environ.get("SEED", "1"))
QUESTIONS = 12
OPTIONS = ("--concurrency", "16")


class Assassin:
    """A script for the simulator that kills a process once it has sent so many requests."""

    def __init__(self) -> None:
        self._left = -1
        self._pid = 0
        self._delay = 0.0
        self.done = threading.Event()

    def aim(self, pid: int, requests: int, delay: float) -> None:
        self._pid, self._delay, self._left = pid, delay, requests
        self.done.clear()

    def __call__(self, request: Request) -> Reply:
        if self._left == 0:
            threading.Timer(self._delay, self._strike, (self._pid,)).start()
        self._left -= 1
        return plausible(request)

    def _strike(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.done.set()


def on_record(job: Run) -> set[str]:
    """Request ids of all calls whose replies had reached OUT or the journal."""
    found: set[str] = set()
    if job.output.exists():
        for line in job.output.read_bytes().split(b"\n")[:-1]:
            row = orjson.loads(line)
            name = f"{quote(row['id'], safe='')}/{row['repeat']}"
            found |= {f"{name}/{step['stage']}/{step['n']}" for step in row["trace"]}
    for path in (job.folder / "out.journal").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            entry = orjson.loads(line)
            found.add(entry["call"])
    return found


def life(job: Run, assassin: Assassin, chance: random.Random, calls: int, simulator: Any) -> int:
    """Start, kill at a random moment, and so on until the job is done; returns the kills."""
    kills = repeated = 0
    while True:
        before = len(simulator.requests)
        recorded = on_record(job)
        process = job.start(*OPTIONS)
        assassin.aim(process.pid, chance.randrange(calls), chance.random() * 0.02)
        process.communicate()
        until(lambda: simulator.in_flight == 0)
        sent = {request.request_id for request in simulator.requests[before:]}
        repeated += len(sent & recorded)
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, process.returncode
            job.repeated = repeated
            return kills
        kills += 1


def main() -> int:
    rows = [question_row(n) for n in range(QUESTIONS)]
    chance = random.Random(SEED)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running(plausible) as simulator:
        undisturbed = Run(Path(folder), simulator.url, rows)
        assert undisturbed(*OPTIONS).code == 0
        clean = {row["id"]: undisturbed.steady(row) for row in undisturbed.rows()}
        calls = len(simulator.requests)
    total = Line(f"{KILLS} kills", 0, Counter(), Counter(), {})
    kills = 0
    while kills < KILLS:
        assassin = Assassin()
        with (
            tempfile.TemporaryDirectory() as folder,
            running(assassin, latency=(0.0, 0.02)) as simulator,
        ):
            job = Run(Path(folder), simulator.url, rows)
            kills += life(job, assassin, chance, calls, simulator)
            line = judge("", job, QUESTIONS, clean, {})
            line.bad["repeated"] = job.repeated
            line.bad["journal"] = len(job.journal())
        total.questions += QUESTIONS
        total.statuses += line.statuses
        for name, count in line.bad.items():
            total.bad[name] = total.bad.get(name, 0) + count
    total.name = f"{kills} kills, seed {SEED}"
    sound = show(f"Kills: {total.questions // QUESTIONS} runs of {QUESTIONS} questions", [total])
    print(f"{time.monotonic() - begun:.0f} s")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
