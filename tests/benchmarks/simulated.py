"""How well servers are kept busy, on simulated ones in simulated time, and one question alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from medagents_async.bench.ground import SimulatedServers
from medagents_async.bench.sweep import Bench, Level
from medagents_async.datasets.reader import Selection
from medagents_async.plan import Job
from tests.benchmarks import questions
from tests.benchmarks.rows import Findings, bounds
from tests.support.command import Run

PART = "simulated"
QUESTIONS = 600
# With 256 calls in flight some 75 questions are open at once: so many are needed for the last 5 %
# of them not to be the end of all, where too little is left to fill the slots.
MANY_QUESTIONS = 1600
LEVELS: dict[str, tuple[Level, ...]] = {
    "llama-3.1-8b-h100": (256, 384, 512, "auto"),
    "llama-3.1-70b-4xh100": (256, 384, 512, "auto"),
    "cpu-tiny": (64, 96, 128, "auto"),
}
GPUS = ("llama-3.1-8b-h100", "llama-3.1-70b-4xh100")
SEARCH_S = 60  # by when auto must have found its number
ONE_BY_ONE = 60  # calls that are sent one after another, for comparison
CALL_S = 1.0  # what each call takes for one question alone
DEPTH = 6  # of a consultation that agrees at once


def simulated() -> Findings:
    found, held = Findings(PART), bounds(PART)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        questions.write(source, MANY_QUESTIONS, 700)
        for profile, levels in LEVELS.items():
            bench = _bench(folder / profile, source, profile, "paper", QUESTIONS)
            _auto(found, held, bench, f"{profile}, paper", levels)
            _limit(found, held, folder / f"{profile}-limit", source, profile, levels[0])
        for profile in GPUS:
            bench = _bench(folder / f"{profile}-fast", source, profile, "fast", MANY_QUESTIONS)
            _auto(found, held, bench, f"{profile}, fast", LEVELS[profile])
        _speed_up(found, held, folder, source)
        _alone(found, held, folder)
    return found


def _bench(folder: Path, source: Path, profile: str, preset: str, count: int) -> Bench:
    folder.mkdir(exist_ok=True)
    job = Job(
        input=source,
        output=folder / "unused.jsonl",
        preset=preset,
        selection=Selection(count, None, 0, None),
    )
    return Bench(job, SimulatedServers([profile]), folder, Console(stderr=True))


def _auto(
    found: Findings, held: dict[str, float], bench: Bench, name: str, levels: tuple[Level, ...]
) -> None:
    runs = {level: bench.run(level) for level in levels}
    found.raw[name] = runs
    fixed = {level: run["body_calls_per_s"] for level, run in runs.items() if level != "auto"}
    best = max(fixed, key=lambda level: fixed[level])
    limits = [moment["limit"] for moment in runs["auto"]["moments"] if moment["t"] >= SEARCH_S]
    found.at_least(
        f"{name}: auto over the best fixed",
        runs["auto"]["body_calls_per_s"] / fixed[best],
        held["auto_of_best"],
        f"{median(limits):.0f} slots after the search; "
        + ", ".join(f"{level}: {rate / fixed[best]:.3f}" for level, rate in fixed.items()),
    )
    wasted = max(run["slot_seconds_idle_while_a_call_was_ready"] for run in runs.values())
    found.exactly(f"{name}: slot-seconds idle while a call is ready", wasted, 0)


def _limit(
    found: Findings,
    held: dict[str, float],
    folder: Path,
    source: Path,
    profile: str,
    level: Level,
) -> None:
    bench = _bench(folder, source, profile, "paper", MANY_QUESTIONS)
    run = bench.run(level)
    limit = bench.replay(int(level), level, body=run["body_calls"])
    found.raw[f"{profile}: limit"] = {"run": run, "limit": limit}
    found.at_least(
        f"{profile}: of the limit, {level} in flight",
        run["body_calls_per_s"] / limit["body_calls_per_s"],
        held["of_the_limit"],
        f"{run['calls_per_s']:.1f} calls/s, {run['calls']} calls",
    )


def _speed_up(found: Findings, held: dict[str, float], folder: Path, source: Path) -> None:
    profile = "llama-3.1-8b-h100"
    rates: dict[str, Any] = {}
    for preset in ("paper", "fast"):
        bench = _bench(folder / f"speed-up-{preset}", source, profile, preset, QUESTIONS)
        run = bench.run(256)
        single = bench.replay(1, 256, ONE_BY_ONE)
        rates[preset] = (run, single)
        found.at_least(
            f"{profile}, {preset}: times one call after another",
            run["body_calls_per_s"] / single["calls_per_s"],
            held[f"{preset}_over_sequential"],
            f"{run['questions_per_hour']:,.0f} questions/h",
        )
        found.raw[f"speed-up {preset}"] = {"run": run, "one by one": single}
    paper, fast = (rates[preset][0]["questions_per_hour"] for preset in ("paper", "fast"))
    found.tell(f"{profile}: questions/h of fast over paper", fast / paper)


def _alone(found: Findings, held: dict[str, float], folder: Path) -> None:
    """In real time: the whole command against a server that takes a second for each call."""
    ready, script = folder / "url", folder / "yes.json"
    script.write_text('{"rules": [{"stage": "vote", "reply": {"text": "YES"}}]}')
    command = [sys.executable, "-m", "medagents_async.simulator", "--port", "0"]
    options = ["--latency", str(CALL_S), "--script", str(script), "--ready-file", str(ready)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    try:
        while not (ready.exists() and ready.read_text().strip()):
            time.sleep(0.05)
        job = Run(folder, ready.read_text().strip(), [questions.question(1, 700)])
        assert job().code == 0
    finally:
        process.terminate()
        process.wait()
    (row,) = job.rows()
    assert row["calls"] == 18
    found.at_most(
        "one question alone: time over depth x call",
        row["seconds"] / (DEPTH * CALL_S),
        held["one_question"],
        f"{row['seconds']:.3f} s",
    )
