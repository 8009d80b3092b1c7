"""A whole bench: runs at rising concurrency, the knee, and the two comparisons."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from rich.console import Console

from medagents_async import job as jobs
from medagents_async.bench.ground import Ground
from medagents_async.bench.measure import Recorder, recorded
from medagents_async.bench.replay import replay
from medagents_async.engine import jsonl
from medagents_async.errors import UsageError
from medagents_async.plan import Job

Level = int | Literal["auto"]
DOUBLINGS = tuple(2**power for power in range(3, 11))  # 8 to 1,024 calls in flight
#: The knee is the smallest level with this share of the best throughput.
KNEE = 0.97
#: A sweep ends when two doublings in a row bring less than this factor each.
GAIN = 1.05


class Bench:
    """Measures `job`'s method on `ground`; its outputs go to a folder that is removed again."""

    def __init__(self, job: Job, ground: Ground, folder: Path, tell: Console) -> None:
        self._job = job
        self._ground = ground
        self._folder = folder
        self._tell = tell

    def run(self, concurrency: Level) -> dict[str, Any]:
        """One run, cold. Raises what `job.run` does."""
        job = replace(
            self._job,
            base_urls=self._ground.base_urls,
            output=self._folder / f"{concurrency}.jsonl",
            concurrency=concurrency,
            extra_body={**self._job.extra_body, **self._ground.cold()},
        )
        recorder = Recorder(self._ground.look_s)
        summary = self._ground.run(
            jobs.run(
                job,
                Console(file=io.StringIO()),
                connect=self._ground.connect,
                observers=[recorder],
            )
        )
        result = {"concurrency": concurrency, **recorder.result(summary, job.output)}
        self._tell.print(
            f"{concurrency} in flight: {result['questions_per_hour']:,.0f} questions/h, "
            f"{result['calls_per_s']:,.1f} calls/s, {result['errors']} errors",
            highlight=False,
        )
        return result

    def levels(self, wanted: Sequence[Level]) -> Iterator[dict[str, Any]]:
        """A run for each wanted level; without any, doublings until they bring no more."""
        best, weak = 0.0, 0
        for level in wanted or DOUBLINGS:
            result = self.run(level)
            yield result
            weak = weak + 1 if result["body_calls_per_s"] < GAIN * best else 0
            best = max(best, result["body_calls_per_s"])
            if not wanted and weak == 2:
                return

    def replay(
        self, concurrency: int, source: Level, count: int | None = None, *, body: int | None = None
    ) -> dict[str, Any]:
        """The calls of the run at level `source`, or the first `count`, without dependencies."""
        calls = list(islice(recorded(self._folder / f"{source}.jsonl", self._ground.cold()), count))
        return self._ground.run(
            replay(
                calls,
                concurrency,
                self._ground.connect,
                self._ground.base_urls,
                self._job.api_key,
                body=body,
            )
        )

    def illustrated(self, level: Level) -> bool:
        """Whether the run's calls had images."""
        row = next(jsonl.read(self._folder / f"{level}.jsonl"))[1]
        return any(
            not isinstance(message["content"], str)
            for step in row["trace"]
            for message in step["request"]["messages"]
        )

    def timeline(self, level: Level) -> list[Mapping[str, Any]]:
        """The trace of the question with the most calls."""
        rows = (row["trace"] for _, row in jsonl.read(self._folder / f"{level}.jsonl"))
        return max(rows, key=len)


def bench(
    job: Job, ground: Ground, wanted: Sequence[Level], *, sequential: int, tell: Console
) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """All figures, as `bench.json` has them, and one question's trace for the timeline.

    `sequential` is how many calls are sent one after another for comparison; 0 for none.
    """
    with TemporaryDirectory() as folder:
        made = Bench(job, ground, Path(folder), tell)
        runs = list(made.levels(wanted))
        fixed = [run for run in runs if run["concurrency"] != "auto"]
        if not fixed:
            raise UsageError("--concurrency: want at least one number beside auto")
        best = max(run["body_calls_per_s"] for run in fixed)
        knee_run = next(run for run in fixed if run["body_calls_per_s"] >= KNEE * best)
        knee = knee_run["concurrency"]
        if made.illustrated(knee):
            raise UsageError("bench cannot replay calls with images: OUT names them only by hash")
        tell.print(f"the knee is at {knee} in flight; now its calls without dependencies")
        limit = made.replay(knee, knee, body=knee_run["body_calls"])
        ratios = {"of the same calls without dependencies": _ratio(knee_run, limit)}
        auto = [run for run in runs if run["concurrency"] == "auto"] or [made.run("auto")]
        runs += auto if auto[0] not in runs else []
        ratios["auto, over the best fixed number"] = round(auto[0]["body_calls_per_s"] / best, 4)
        one_by_one = None
        if sequential:
            tell.print(f"and {sequential} of them one after another")
            one_by_one = made.replay(1, knee, sequential)
            ratios["times as fast as one call after another"] = _ratio(knee_run, one_by_one)
        timeline = made.timeline(knee)
    return {
        "method": job.method,
        "preset": job.preset,
        "input": job.input.name,
        "questions": knee_run["questions"],
        "server": ground.name,
        "runs": runs,
        "knee": knee,
        "knee_run": knee_run,
        "limit": limit,
        "sequential": one_by_one,
        "ratios": ratios,
    }, timeline


def _ratio(run: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return round(float(run["body_calls_per_s"] / other["body_calls_per_s"]), 4)
