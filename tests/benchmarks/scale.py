"""Large runs: memory over 100,000 questions in simulated time, and resuming 200,000 rows."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from medagents_async import job as jobs
from medagents_async.bench.ground import SimulatedServers
from medagents_async.datasets.reader import Selection
from medagents_async.engine.fleet import Fleet
from medagents_async.engine.runner import Totals
from medagents_async.engine.scheduler import Scheduler
from medagents_async.plan import Job
from medagents_async.simulator import Reply, Request, plausible, running
from tests.benchmarks import questions
from tests.benchmarks.rows import Findings, bounds

PART = "scale"
MANY = 100_000
FIRST = 1_000
FINISHED = 200_000


def scale() -> Findings:
    found, held = Findings(PART), bounds(PART)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        questions.write(source, FINISHED + 100, 600)
        _growth(found, held, folder, source)
        _resume(found, held, folder, source)
    return found


def _growth(found: Findings, held: dict[str, float], folder: Path, source: Path) -> None:
    """In a process of its own, which has no other memory."""
    command = [sys.executable, "-m", "tests.benchmarks.scale", str(source), str(folder / "m.jsonl")]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seen: dict[str, Any] = orjson.loads(process.stdout)
    found.raw["growth"] = seen
    found.at_most(
        f"{MANY:,} questions: MB of growth from {FIRST:,} on",
        seen["end_mb"] - seen["begin_mb"],
        held["growth_mb"],
        f"{seen['begin_mb']:.0f} to {seen['end_mb']:.0f} MB; method cot, {seen['seconds']:.0f} s "
        f"for {seen['simulated_s']:,.0f} simulated",
    )
    found.at_most(
        f"{MANY:,} questions: second half over first half, wall time",
        (seen["seconds"] - seen["half_s"]) / seen["half_s"],
        held["second_half"],
    )


def _resume(found: Findings, held: dict[str, float], folder: Path, source: Path) -> None:
    """OUT is made of one real row, repeated under the ids of the input."""
    output = folder / "out.jsonl"
    with running(plausible) as simulator:
        command = [sys.executable, "-m", "medagents_async.batch", str(source), str(output)]
        command += ["--base-url", simulator.url, "--method", "cot", "--trace", "off"]
        subprocess.run([*command, "--limit", "1"], check=True, capture_output=True)
        row = orjson.loads(output.read_bytes())
        with source.open("rb") as rows, output.open("wb") as sink:
            for index, line in zip(range(FINISHED), rows, strict=False):
                named = {**row, "id": orjson.loads(line)["id"], "index": index}
                sink.write(orjson.dumps(named, option=orjson.OPT_APPEND_NEWLINE))
        simulator.reset()
        arrived = threading.Event()

        def noticed(request: Request) -> Reply:
            arrived.set()
            return plausible(request)

        simulator.script = noticed
        begun = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        assert arrived.wait(120)
        taken = time.monotonic() - begun
        assert process.wait(120) == 0
        assert len(simulator.requests) == 100
    found.at_most(
        f"resuming {FINISHED:,} rows: s to the first call",
        taken,
        held["resume_s"],
        f"OUT of {output.stat().st_size / 1e6:.0f} MB",
    )


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(source: Path, output: Path) -> None:
    """Run MANY questions in simulated time and print what memory and time they took."""
    begun, seen = time.monotonic(), {}

    async def watch(scheduler: Scheduler, fleet: Fleet, totals: Totals) -> None:
        del scheduler, fleet
        for mark, name in ((FIRST, "begin"), (MANY // 2, "half")):
            while totals.here < mark:
                await asyncio.sleep(1.0)
            seen[f"{name}_s"], seen[f"{name}_mb"] = time.monotonic() - begun, _megabytes()

    servers = SimulatedServers(["llama-3.1-8b-h100"])
    job = Job(
        input=source,
        output=output,
        base_urls=servers.base_urls,
        method="cot",
        trace="off",
        concurrency=256,
        selection=Selection(MANY, None, 0, None),
    )
    summary = servers.run(
        jobs.run(job, Console(file=io.StringIO()), connect=servers.connect, observers=[watch])
    )
    assert summary["done"] == MANY
    seen |= {
        "end_mb": _megabytes(),
        "seconds": time.monotonic() - begun,
        "simulated_s": summary["seconds"],
    }
    sys.stdout.buffer.write(orjson.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
