"""Where the CPU of a call goes: our whole command under py-spy, its samples by layer.

The run is that of `client_cost` with 256 in flight. Sampling itself slows the run; shares stand.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.benchmarks import questions
from tests.benchmarks.client_cost import LATENCY_S, QUESTION_LENGTH
from tests.benchmarks.processes import batch, measured, rows_with, serving
from tests.benchmarks.rows import Findings

PART = "layers"
CALLS, IN_FLIGHT = 20_000, 256
SAMPLES_PER_S = 400

#: The layer of a sample by the innermost frame that one of these finds, the first that does.
LAYERS = {
    "start: imports and options": r"importlib|typer|_click|^_create_fn|typing\.py|annotationlib",
    "aiohttp: connections, HTTP": r"\((aiohttp|multidict|yarl|ssl|socket)",
    "reading and checking the input": r"datasets/|pydantic|annotated_types",
    "prompts": r"prompts/|jinja2|<template>",
    "replies: JSON, letters": r"engine/replies|parsing/",
    "journal and rows": r"engine/(sink|journal|jsonl)",
    "question, call, slot, retry, health": r"medagents_async/",
    "event loop": r"\(asyncio/|uvloop",
}


def layers() -> Findings:
    """Shares of the samples, the largest first. Nothing is held to a bound."""
    found = Findings(PART)
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        found.skipped = "no py-spy here; `pip install py-spy` installs it"
        return found
    with tempfile.TemporaryDirectory() as name, serving(*LATENCY_S) as server:
        folder = Path(name)
        source, output = folder / "in.jsonl", folder / "out.jsonl"
        stacks = folder / "stacks.txt"
        questions.write(source, CALLS, QUESTION_LENGTH)
        server.reset(IN_FLIGHT)
        options = ("--method", "zero-shot", "--concurrency", str(IN_FLIGHT))
        command = batch(source, output, server, *options)
        sampler = [spy, "record", "-r", str(SAMPLES_PER_S), "-f", "raw", "-o", str(stacks), "--"]
        cost = measured([*sampler, *command], folder / "log")
        assert rows_with(output, "ok") == CALLS
        counts = by_layer(stacks.read_text())
    found.raw["cpu_s"], found.raw["samples"] = cost.cpu, counts
    whole = counts.total()
    for layer, count in counts.most_common():
        found.tell(f"share of {layer}", count / whole, f"{count:,} of {whole:,} samples")
    return found


def by_layer(stacks: str) -> Counter[str]:
    """Samples in py-spy's raw form (frames from the outermost in, then a count) by layer."""
    counts: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        if "concurrent/futures/thread" in frames.rpartition(";")[2]:
            continue  # a thread that waits for work, which py-spy takes for busy
        counts[_layer(frames.split(";"))] += int(count)
    return counts


def _layer(frames: list[str]) -> str:
    for frame in reversed(frames):
        for layer, pattern in LAYERS.items():
            if re.search(pattern, frame):
                return layer
    return "the rest"
