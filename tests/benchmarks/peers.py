"""A whole evaluation of one call a question: our command beside lm-eval and inspect-ai.

2,000 generated questions of some 600 characters, 64 in flight, a server that takes 20 ms.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import peer_tasks
from tests.benchmarks.processes import (
    NO_PEERS,
    PEERS,
    Cost,
    Server,
    batch,
    measured,
    rows_with,
    serving,
)
from tests.benchmarks.rows import Findings, bounds
from tests.benchmarks.server import MODEL

PART = "peers"
QUESTIONS = 2000
QUESTION_LENGTH = 600
IN_FLIGHT = 64
LATENCY_S = 0.02
ROUNDS = 3


@dataclass
class Harness:
    """One evaluation harness: its command, what it cost, and what the server saw of it."""

    name: str
    command: Callable[[Path], list[str]]
    costs: list[Cost] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)

    def run(self, folder: Path, server: Server, env: Mapping[str, str]) -> None:
        server.reset(IN_FLIGHT)
        log = folder / f"{self.name}.log"
        self.costs.append(measured(self.command(folder), log, env, folder))
        seen = server.counters()
        self.peaks.append(seen["peak"])
        self.requests.append(seen["requests"])

    @property
    def wall(self) -> float:
        return median(cost.wall for cost in self.costs)

    @property
    def cpu(self) -> float:
        """µs a question."""
        return median(cost.cpu for cost in self.costs) / QUESTIONS * 1e6

    def figures(self) -> dict[str, Any]:
        return {
            "wall_s": [cost.wall for cost in self.costs],
            "cpu_s": [cost.cpu for cost in self.costs],
            "cpu_us_a_question": self.cpu,
            "requests": self.requests,
            "most_in_flight": self.peaks,
        }


def harnesses(server: Server) -> tuple[Harness, Harness, Harness]:
    def ours(folder: Path) -> list[str]:
        output = folder / "out.jsonl"
        output.unlink(missing_ok=True)  # else it would be resumed, which sends nothing
        options = ("--method", "zero-shot", "--preset", "code", "--concurrency", str(IN_FLIGHT))
        return batch(folder / "questions.jsonl", output, server, *options)

    return (
        Harness("ours", ours),
        Harness(
            "lm-eval",
            lambda folder: peer_tasks.lm_eval(folder, PEERS, server.url, MODEL, IN_FLIGHT),
        ),
        Harness("inspect-ai", lambda folder: peer_tasks.inspect(folder, PEERS, MODEL, IN_FLIGHT)),
    )


def peers(rounds: int = ROUNDS) -> Findings:
    """Measure in turns, `rounds` times, and hold the medians to their bounds."""
    findings = Findings(PART)
    if not PEERS.exists():
        findings.skipped = NO_PEERS
        return findings
    with tempfile.TemporaryDirectory() as name, serving(LATENCY_S, LATENCY_S) as server:
        folder = Path(name)
        peer_tasks.write(folder, QUESTIONS, QUESTION_LENGTH)
        env = {
            "HOME": name,  # caches of the peers' libraries: none is found, none is left behind
            "HF_HOME": str(folder / "hf"),
            "BENCH_BASE_URL": server.url,
            "BENCH_API_KEY": "none",
            "OPENAI_API_KEY": "none",
        }
        ours, *others = harnesses(server)
        for _ in range(rounds):
            for other in others:
                ours.run(folder, server, env)
                other.run(folder, server, env)
        findings.exactly("our rows", rows_with(folder / "out.jsonl", "ok"), QUESTIONS)
        accuracy = peer_tasks.lm_eval_accuracy(folder)
    _judge(findings, ours, *others)
    findings.exactly("accuracy by lm-eval", accuracy, 0.25, "every fourth answer is the server's")
    return findings


def _judge(findings: Findings, ours: Harness, lm_eval: Harness, inspect: Harness) -> None:
    limit = bounds(PART)
    for other, key in ((lm_eval, "lm_eval"), (inspect, "inspect")):
        findings.at_most(
            f"wall, ours / {other.name}",
            ours.wall / other.wall,
            limit[f"wall_of_{key}"],
            f"{ours.wall:.1f} s of {other.wall:.1f} s",
        )
        findings.at_most(
            f"CPU a question, ours / {other.name}",
            ours.cpu / other.cpu,
            limit[f"cpu_of_{key}"],
            f"{ours.cpu:,.0f} µs of {other.cpu:,.0f} µs",
        )
    for one in (ours, lm_eval, inspect):
        findings.raw[one.name] = one.figures()
        findings.exactly(f"most in flight, {one.name}", min(one.peaks), IN_FLIGHT)
        findings.exactly(f"calls, {one.name}", min(one.requests), QUESTIONS)
