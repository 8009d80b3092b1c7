"""A real vLLM on this machine's CPU: the limit, what prefixes save, and what preset fast brings."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from medagents_async.batch import loop_factory
from medagents_async.bench.ground import RealServers
from medagents_async.bench.sweep import Bench
from medagents_async.datasets.reader import Selection
from medagents_async.engine import load as loads
from medagents_async.engine.client import Client, open_pair
from medagents_async.plan import Job
from tests.benchmarks import questions
from tests.benchmarks.rows import Findings, bounds
from tests.real.server import INSTALLED, KEY, ROOT, Vllm

PART = "cpu"
REAL_MODEL = ROOT / ".models" / "smollm2-135m-instruct"
TINY_QUESTIONS, TINY_IN_FLIGHT = 160, 16
SHORT = {"rounds": "1"}
# A model of 135 million parameters rambles up to every limit: the same cap for both presets keeps
# the comparison within minutes (preset fast keeps its own where they are smaller). It names no
# fields either, and experts of one and the same field would share their prompts by accident.
CAP = 100
FIELDS = {
    "domains": "Cardiology|Neurology|Urology|Oncology|Genetics",
    "option_domains": "Pharmacology|Surgery",
}
REAL_QUESTIONS = 4


def cpu() -> Findings:
    found = Findings(PART)
    if not (INSTALLED and REAL_MODEL.exists()):
        found.skipped = "no vLLM here; `make setup-serve` installs it"
        return found
    held = bounds(PART)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        questions.write(source, TINY_QUESTIONS, 900)
        with _serving(folder, Vllm(folder)) as url:
            bench = _bench(folder / "tiny", source, url, "paper", TINY_QUESTIONS, 12, SHORT)
            run = bench.run(TINY_IN_FLIGHT)
            limit = bench.replay(TINY_IN_FLIGHT, TINY_IN_FLIGHT, body=run["body_calls"])
            single = bench.replay(1, TINY_IN_FLIGHT, 40)
        found.raw["tiny"] = {"run": run, "limit": limit, "one by one": single}
        found.at_least(
            f"tiny model: of the limit, {TINY_IN_FLIGHT} in flight",
            run["body_calls_per_s"] / limit["body_calls_per_s"],
            held["of_the_limit"],
            f"{run['calls']} calls, {run['calls_per_s']:.1f}/s",
        )
        found.exactly(
            "tiny model: slot-seconds idle while a call is ready, to the ms",
            round(run["slot_seconds_idle_while_a_call_was_ready"], 3),
            0,
        )
        found.tell(
            "tiny model: times one call after another",
            run["body_calls_per_s"] / single["calls_per_s"],
        )
        with _serving(folder, Vllm(folder, model=REAL_MODEL)) as url:
            measured = {preset: _real(folder, source, url, preset) for preset in ("paper", "fast")}
    found.raw["real model"] = measured
    paper, fast = measured["paper"], measured["fast"]
    found.at_most(
        "computed prompt tokens a question, fast over paper",
        fast["computed"] / paper["computed"],
        held["computed_prompt_tokens"],
        f"{fast['computed']:,.0f} of {paper['computed']:,.0f}, the server's counters",
    )
    found.at_least(
        "real model: questions/h of fast over paper",
        fast["run"]["questions_per_hour"] / paper["run"]["questions_per_hour"],
        held["fast_over_paper"],
        f"{fast['run']['questions_per_hour']:.0f} over {paper['run']['questions_per_hour']:.0f}",
    )
    return found


@contextmanager
def _serving(folder: Path, server: Vllm) -> Iterator[str]:
    os.environ["MEDAGENTS_API_KEY"] = KEY
    server.start()
    try:
        yield server.url
    finally:
        server.interrupt()
        server.gone()


def _bench(
    folder: Path,
    source: Path,
    url: str,
    preset: str,
    count: int,
    max_tokens: int,
    settings: Mapping[str, str],
) -> Bench:
    folder.mkdir(exist_ok=True)
    job = Job(
        input=source,
        output=folder / "unused.jsonl",
        api_key=KEY,
        preset=preset,
        settings=settings,
        max_tokens=max_tokens,
        selection=Selection(count, None, 0, None),
    )
    return Bench(job, RealServers([url], loop_factory()), folder, Console(stderr=True))


def _real(folder: Path, source: Path, url: str, preset: str) -> dict[str, Any]:
    """A few questions, and the prompt tokens that the server computed for each."""
    before = asyncio.run(_load(url))
    settings = {**SHORT, **FIELDS}
    run = _bench(folder / preset, source, url, preset, REAL_QUESTIONS, CAP, settings).run(32)
    after = asyncio.run(_load(url))
    prompts = after.prompt_tokens - before.prompt_tokens
    cached = after.prefix_hits - before.prefix_hits
    return {
        "run": run,
        "prompt": prompts / REAL_QUESTIONS,
        "computed": (prompts - cached) / REAL_QUESTIONS,
    }


async def _load(url: str) -> loads.Load:
    transports = open_pair(url)
    try:
        response = await Client(*transports, url, KEY).get("/metrics")
    finally:
        for transport in transports:
            await transport.aclose()
    load = loads.read(response.text)
    assert load is not None
    return load
