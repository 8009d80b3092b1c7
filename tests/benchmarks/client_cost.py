"""CPU that a call costs the client: our whole command beside bare calls of other clients.

A method of one call, requests of 3 KB, replies of 1.2 KB after 100 to 300 ms. Each is run over few
and over many calls: the whole process over its calls, and the difference, which has no start-up.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import questions
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

PART = "client_cost"
LATENCY_S = (0.1, 0.3)
QUESTION_LENGTH = 2500  # characters; makes a request of 3.0 KB
ROUNDS = 3
BARE_LOOP = Path(__file__).with_name("bare_loop.py")


@dataclass
class Contender:
    """One client at one number of calls in flight, run over `few` and over `many` calls."""

    name: str
    in_flight: int
    few: int
    many: int
    costs: dict[int, list[Cost]] = field(default_factory=dict)
    peak: int = 0  # the lowest of its runs
    body: float = 0.0  # bytes of a request

    def run(self, folder: Path, server: Server) -> None:
        for calls in (self.few, self.many):
            server.reset(self.in_flight)
            source = folder / f"{calls}.jsonl"
            if not source.exists():
                questions.write(source, calls, QUESTION_LENGTH)
            output = folder / "out.jsonl"
            cost = measured(self._command(source, output, server, calls), folder / "log")
            seen = server.counters()
            if seen["requests"] != calls:
                raise RuntimeError(f"{self.name}: {seen['requests']} requests for {calls} calls")
            if output.exists():
                assert rows_with(output, "ok") == calls, self.name
                output.unlink()
            self.costs.setdefault(calls, []).append(cost)
            self.peak = min(self.peak or seen["peak"], seen["peak"])
            self.body = seen["bytes"] / calls

    def _command(self, source: Path, output: Path, server: Server, calls: int) -> list[str | Path]:
        words = (source, server.url, MODEL, str(self.in_flight), str(calls))
        if self.name == "AsyncOpenAI":
            return [PEERS, BARE_LOOP, "openai", *words]
        if self.name == "aiohttp":
            return [sys.executable, BARE_LOOP, "aiohttp", *words]
        options = ("--method", "zero-shot", "--concurrency", str(self.in_flight))
        return [*batch(source, output, server, *options)]

    @property
    def whole(self) -> float:
        """µs a call of the whole process over `many` calls."""
        return median(cost.cpu for cost in self.costs[self.many]) / self.many * 1e6

    @property
    def marginal(self) -> float:
        """µs of one call more."""
        pairs = zip(self.costs[self.few], self.costs[self.many], strict=True)
        return median(many.cpu - few.cpu for few, many in pairs) / (self.many - self.few) * 1e6

    def figures(self) -> dict[str, Any]:
        return {
            "whole_us": self.whole,
            "marginal_us": self.marginal,
            "calls": [self.few, self.many],
            "cpu_s": {calls: [cost.cpu for cost in costs] for calls, costs in self.costs.items()},
            "wall_s": {calls: [cost.wall for cost in costs] for calls, costs in self.costs.items()},
            "most_in_flight": self.peak,
            "request_bytes": self.body,
        }


def client_cost(rounds: int = ROUNDS) -> Findings:
    """Measure in turns, `rounds` times, and hold the medians to their bounds."""
    findings = Findings(PART)
    ours, crowd = Contender("ours", 256, 2000, 10_000), Contender("ours", 1024, 2000, 10_000)
    aiohttp = Contender("aiohttp", 256, 2000, 10_000)
    openai = Contender("AsyncOpenAI", 256, 500, 2000)
    contenders = [ours, crowd, aiohttp, *([openai] if PEERS.exists() else [])]
    with tempfile.TemporaryDirectory() as folder, serving(*LATENCY_S) as server:
        for _ in range(rounds):
            for contender in contenders:
                contender.run(Path(folder), server)
        served = sum(sum(one.costs) for one in contenders) * rounds
        findings.raw["server_us"] = server.cpu() / served * 1e6
    for one in contenders:
        findings.raw[f"{one.name}, {one.in_flight} in flight"] = one.figures()
    limit = bounds(PART)
    if PEERS.exists():
        findings.at_most(
            "CPU a call, ours / AsyncOpenAI",
            ours.whole / openai.marginal,
            limit["of_async_openai"],
            f"{ours.whole:,.0f} µs, start-up and files included, of {openai.marginal:,.0f} µs "
            "without",
        )
        findings.tell(
            "the same without our start-up",
            ours.marginal / openai.marginal,
            f"{ours.marginal:,.0f} µs of {openai.marginal:,.0f} µs",
        )
        findings.tell(
            "aiohttp alone / AsyncOpenAI: the floor",
            aiohttp.marginal / openai.marginal,
            f"{aiohttp.marginal:,.0f} µs of {openai.marginal:,.0f} µs",
        )
    else:
        findings.skipped = f"AsyncOpenAI: {NO_PEERS}"
    findings.tell(
        "CPU a call, ours / aiohttp alone",
        ours.marginal / aiohttp.marginal,
        f"{ours.marginal:,.0f} µs of {aiohttp.marginal:,.0f} µs, neither with its start-up",
    )
    findings.at_most(
        "CPU a call, 1,024 in flight / 256",
        crowd.whole / ours.whole,
        limit["growth_to_1024"],
        f"{crowd.whole:,.0f} µs of {ours.whole:,.0f} µs",
    )
    for one in contenders:
        findings.exactly(f"most in flight, {one.name}", one.peak, one.in_flight)
    return findings
