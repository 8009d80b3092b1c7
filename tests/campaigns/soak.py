"""`make soak`: a night's work in minutes. Many questions, every fault, memory watched.

One call in 20 meets a passing fault, one question in 20 a lasting one. In the end every question
has its outcome, and the process is hardly larger than it was after the first 2,000.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import orjson
from rich.console import Console

from medagents_async.simulator import Reply, Request, plausible, running
from tests.campaigns.faults import LASTING, PASSING, STRUCK
from tests.campaigns.ledger import Sound
from tests.conftest import question_row
from tests.support.command import Run

QUESTIONS = int(os.environ.get("QUESTIONS", "20000"))
EARLY = 2000
GROWTH = 1.15  # resident memory at the end over that after EARLY questions
PASSING_KINDS, LASTING_KINDS = list(PASSING.values()), list(LASTING.values())


def doomed(identity: str) -> tuple[Reply, str] | None:
    number = zlib.crc32(identity.encode())
    return LASTING_KINDS[number // 20 % len(LASTING_KINDS)] if number % 20 == 0 else None


def script(request: Request) -> Reply:
    number = zlib.crc32(request.request_id.encode())
    if request.attempt == 0 and number % 20 == 0:
        return PASSING_KINDS[number // 20 % len(PASSING_KINDS)]
    fate = doomed(request.question_id) if request.stage == STRUCK else None
    if fate is not None:
        return fate[0]
    return Reply("YES") if request.stage == "vote" else plausible(request)


def resident_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def lines_in(path: Path, known: tuple[int, int]) -> tuple[int, int]:
    """(lines, offset) of a growing file, from what was known before."""
    count, offset = known
    if path.exists():
        with path.open("rb") as file:
            file.seek(offset)
            while block := file.read(1 << 22):
                count, offset = count + block.count(b"\n"), offset + len(block)
    return count, offset


def main() -> int:
    console = Console(width=120)
    sound = Sound(script, [*PASSING_KINDS, *(reply for reply, _ in LASTING_KINDS)])
    with tempfile.TemporaryDirectory() as folder, running(sound, keep=1) as simulator:
        job = Run(Path(folder), simulator.url, [question_row(n) for n in range(QUESTIONS)])
        begun = time.monotonic()
        process = job.start(
            *("--concurrency", "256", "--timeout", "5", "--retries", "2", "--trace", "brief")
        )
        known, early, late, files = (0, 0), 0.0, 0.0, Counter[str]()
        while process.poll() is None:
            known = lines_in(job.output, known)
            try:
                size = resident_mb(process.pid)
                files[str(len(os.listdir(f"/proc/{process.pid}/fd")))] += 1
            except (OSError, IndexError):
                break  # it has just ended
            if known[0] >= EARLY:
                early, late = early or size, size
            time.sleep(0.5)
        _, err = process.communicate()
        seconds = time.monotonic() - begun
        statuses, kinds, ids, wrong = Counter[str](), Counter[str](), set[str](), 0
        with job.output.open("rb") as file:
            for line in file:
                row = orjson.loads(line)
                ids.add(row["id"])
                statuses[row["status"]] += 1
                kinds[(row["error"] or {}).get("kind", "")] += 1
                fate = doomed(row["id"])
                wrong += (row["error"] or {}).get("kind") != (fate[1] if fate else None)
        rows = sum(statuses.values())
        bad = {
            "lost": QUESTIONS - len(ids),
            "doubled": rows - len(ids),
            "wrong": wrong,
            "repeated": sound.repeated,
            "warnings": err.count("Warning") + err.count("Traceback"),
            "exit": abs(process.returncode - 1),
            "left in the journal": len(job.journal()),
            "still connected": simulator.in_flight,
        }
    growth = late / early if early else 0.0
    console.print(f"{QUESTIONS} questions, {simulator.served} replies, {seconds:.0f} s")
    console.print(f"statuses {dict(statuses)}, kinds {dict(kinds)}")
    console.print(f"must be 0: {bad}")
    console.print(
        f"resident {early:.0f} MB after {EARLY} questions, {late:.0f} MB at the end: "
        f"{growth:.2f} times (at most {GROWTH}); open files at most {max(map(int, files))}"
    )
    return 0 if not any(bad.values()) and 0 < growth <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
