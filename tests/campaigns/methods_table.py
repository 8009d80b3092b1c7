"""`make methods-table`: every method over the same 20 questions on a simulated server.

Times are simulated seconds: all questions at once, and the same calls one after another.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from medagents_async import methods
from medagents_async.bench.ground import SimulatedServers
from medagents_async.bench.sweep import Bench
from medagents_async.datasets.reader import Selection
from medagents_async.engine import jsonl
from medagents_async.plan import Job
from tests.benchmarks import questions

QUESTIONS = 20
IN_FLIGHT = 256
PROFILE = "llama-3.1-8b-h100"


def row(name: str, source: Path, folder: Path) -> str:
    """One line of the table, in Markdown."""
    folder.mkdir()
    method = methods.find(name)
    job = Job(
        input=source,
        output=folder / "unused.jsonl",
        method=name,
        selection=Selection(QUESTIONS, None, 0, None),
    )
    bench = Bench(job, SimulatedServers([PROFILE]), folder, Console(quiet=True))
    run = bench.run(IN_FLIGHT)
    single = bench.replay(1, IN_FLIGHT)
    calls = [row["calls"] for _, row in jsonl.read(folder / f"{IN_FLIGHT}.jsonl")]
    tokens = [row["usage"] for _, row in jsonl.read(folder / f"{IN_FLIGHT}.jsonl")]
    prompt, written = (
        sum(usage[kind] for usage in tokens) / len(tokens)
        for kind in ("prompt_tokens", "completion_tokens")
    )
    assert run["errors"] == 0, name
    few, many = min(calls), max(calls)
    return (
        f"| `{name}` | {few if few == many else f'{few} to {many}'} | {method.depth} "
        f"| {prompt:,.0f} | {written:,.0f} | {run['seconds']:.1f} | {single['seconds']:,.0f} "
        f"| {single['seconds'] / run['seconds']:.0f} |"
    )


def main() -> int:
    print(
        "| method | calls a question | depth | prompt tokens | completion tokens "
        "| all at once, s | one after another, s | times |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "in.jsonl"
        questions.write(source, QUESTIONS, 700)
        for method in methods.every_method():
            print(row(method, source, Path(name) / method), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
