"""A real vLLM on this machine's CPU: the limit, what prefixes save, and what preset fast brings."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
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
TINY_QUESTIONS, TINY_IN_FLIGHT = 100, 16
ROUNDS = 3  # the speed of a shared machine drifts by more than what is compared here
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
            _tiny(found, held, folder, source, url)
        with _serving(folder, Vllm(folder, model=REAL_MODEL)) as url:
            _real(found, held, folder, url)
    return found


def _tiny(found: Findings, held: Mapping[str, float], folder: Path, source: Path, url: str) -> None:
    """Runs and their limits in turns, on a server that has answered before."""

    def bench(name: str, count: int) -> Bench:
        return _bench(folder / name, source, url, "paper", count, 12, SHORT)

    bench("warm-up", 8).run(TINY_IN_FLIGHT)
    runs, limits = [], []
    for turn in range(ROUNDS):
        made = bench(f"tiny-{turn}", TINY_QUESTIONS)
        runs.append(made.run(TINY_IN_FLIGHT))
        body = runs[-1]["body_calls"]
        limits.append(made.replay(TINY_IN_FLIGHT, TINY_IN_FLIGHT, body=body))
        single = made.replay(1, TINY_IN_FLIGHT, 40)
    found.raw["tiny"] = {"runs": runs, "limits": limits, "one by one": single}
    # Each limit beside the run before it and the one after it: a steady drift cancels out.
    ratios = [
        run["body_calls_per_s"] / limit["body_calls_per_s"]
        for first in (runs, runs[1:])
        for run, limit in zip(first, limits, strict=False)
    ]
    found.at_least(
        f"tiny model: of the limit, {TINY_IN_FLIGHT} in flight",
        median(ratios),
        held["of_the_limit"],
        f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs",
    )
    found.exactly(
        "tiny model: slot-seconds idle while a call is ready, to the ms",
        max(round(run["slot_seconds_idle_while_a_call_was_ready"], 3) for run in runs),
        0,
    )
    found.tell(
        "tiny model: times one call after another",
        runs[-1]["body_calls_per_s"] / single["calls_per_s"],
    )


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


def _real(found: Findings, held: Mapping[str, float], folder: Path, url: str) -> None:
    """Both presets as they are, and with the question in the report, as in the published code."""
    source, whose = _medqa(folder)
    measured = {
        name: {preset: _one(folder, source, url, preset, settings) for preset in ("paper", "fast")}
        for name, settings in (("plain", {}), ("with the question", {"question_in_report": "yes"}))
    }
    found.raw["real model"] = measured
    paper, fast = measured["with the question"].values()
    found.at_most(
        "computed prompt tokens a question, fast over paper, reports with the question",
        fast["computed"] / paper["computed"],
        held["computed_prompt_tokens"],
        f"{fast['computed']:,.0f} of {paper['computed']:,.0f}, {whose}",
    )
    paper, fast = measured["plain"].values()
    found.at_most(
        "the same, reports without",
        fast["computed"] / paper["computed"],
        held["computed_prompt_tokens"],
        f"{fast['computed']:,.0f} of {paper['computed']:,.0f}",
    )
    found.at_least(
        "real model: questions/h of fast over paper",
        fast["run"]["questions_per_hour"] / paper["run"]["questions_per_hour"],
        held["fast_over_paper"],
        f"{fast['run']['questions_per_hour']:.0f} over {paper['run']['questions_per_hour']:.0f}",
    )


def _medqa(folder: Path) -> tuple[Path, str]:
    """MedQA's questions where they are, else generated ones; and whose they are."""
    data = os.environ.get("MEDAGENTS_DATA")
    published = Path(data) / "medqa_us" / "test_4opt.jsonl" if data else None
    if published and published.exists():
        return published, "MedQA"
    return questions.write(folder / "real.jsonl", REAL_QUESTIONS, 900), "generated questions"


def _one(
    folder: Path, source: Path, url: str, preset: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    """A run over a few questions, and the prompt tokens that the server computed for each."""
    before = asyncio.run(_load(url))
    place = folder / f"{preset}-{len(settings)}"
    bench = _bench(place, source, url, preset, REAL_QUESTIONS, CAP, {**SHORT, **FIELDS, **settings})
    run = bench.run(32)
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
