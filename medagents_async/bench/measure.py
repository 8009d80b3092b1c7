"""One measured run: what came out of it, and what the server did meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from medagents_async.engine import jsonl
from medagents_async.engine.fleet import Fleet
from medagents_async.engine.load import total
from medagents_async.engine.runner import Totals
from medagents_async.engine.scheduler import Scheduler
from medagents_async.engine.steering import read
from medagents_async.types import Call

#: Throughput is judged until this share of the work is done: then too little is left to fill
#: the slots, whatever the scheduler does.
BODY = 0.95


@dataclass(frozen=True, slots=True)
class Moment:
    """The state at `t` seconds: of the run, and of the server where it tells."""

    t: float
    questions: int
    calls: int
    in_flight: int
    ready: int
    limit: int
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    preemptions: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None


@dataclass
class Recorder:
    """Observes a run (see `job.Observer`): a `Moment` every `every` seconds."""

    every: float = 1.0
    lag_every: float = 0.05
    moments: list[Moment] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)  # seconds that the event loop came late
    _cpu: float = field(default_factory=time.process_time)
    _wasted: float = 0.0
    _idle_share: float = 0.0

    async def __call__(self, scheduler: Scheduler, fleet: Fleet, totals: Totals) -> None:
        """Record until cancelled."""
        self._cpu = time.process_time()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                await self._look(scheduler, fleet, totals)
        finally:
            seen = scheduler.statistics()
            self._cpu = time.process_time() - self._cpu
            self._wasted = seen.wasted
            self._idle_share = seen.idle / seen.slot_seconds if seen.slot_seconds else 0.0

    async def _look(self, scheduler: Scheduler, fleet: Fleet, totals: Totals) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        while True:
            await asyncio.sleep(self.every)
            load = total([await read(server) for server in fleet.servers])
            seen = scheduler.statistics()
            told = asdict(load) if load else {}
            self.moments.append(
                Moment(
                    round(clock() - begun, 3),
                    totals.here,
                    fleet.answered,
                    seen.in_flight,
                    seen.ready,
                    sum(lane.limit for lane in scheduler.lanes),
                    **{name: told.get(name) for name in Moment.__slots__[6:]},
                )
            )

    async def _listen(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + self.lag_every
            await asyncio.sleep(self.lag_every)
            self.lags.append(max(0.0, clock() - due))

    def result(self, summary: Mapping[str, Any], output: Path) -> dict[str, Any]:
        """All figures of a run that ended with `summary` and wrote `output` with full traces."""
        seconds, calls = summary["seconds"] or 1e-9, summary["calls"]
        stages: dict[str, list[float]] = defaultdict(list)
        queued = []
        for _, row in jsonl.read(output):
            for step in row["trace"]:
                stages[step["stage"]].append(step["seconds"])
                queued.append(step["queued_s"])
        computed = summary["prompt_tokens"] - summary["cached_tokens"]
        body = self.body(summary["done"], calls, seconds)
        return {
            "questions": summary["done"],
            "errors": summary["error"],
            "unparsed": summary["unparsed"],
            "calls": calls,
            "retries": summary["retries"],
            "most_in_flight": summary["most_in_flight"],
            "seconds": seconds,
            "questions_per_hour": round(summary["done"] / seconds * 3600, 1),
            "calls_per_s": round(calls / seconds, 3),
            "body_calls": body.calls,
            "body_calls_per_s": round(body.calls / body.t, 3),
            "computed_prompt_tokens_per_s": round(computed / seconds, 1),
            "cached_prompt_tokens_per_s": round(summary["cached_tokens"] / seconds, 1),
            "completion_tokens_per_s": round(summary["completion_tokens"] / seconds, 1),
            "slots_idle": round(self._idle_share, 4),
            "slot_seconds_idle_while_a_call_was_ready": round(self._wasted, 6),
            "queued_s": spread(queued),
            "stages": {stage: spread(times) for stage, times in stages.items()},
            "cpu_ms_per_call": round(self._cpu / max(1, calls) * 1000, 3),
            "loop_lag_ms": {
                name: round(value * 1000, 2) for name, value in spread(self.lags).items()
            },
            "moments": [asdict(moment) for moment in self.moments],
        }

    def body(self, questions: int, calls: int, seconds: float) -> Moment:
        """When `BODY` of the questions were done; the end where no look saw that."""
        for moment in self.moments:
            if moment.questions >= BODY * questions:
                return moment
        return Moment(seconds, questions, calls, 0, 0, 0)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile, largest and mean; all 0 where there are no values."""
    if not values:
        return dict.fromkeys(("p50", "p95", "max", "mean"), 0.0)
    p50, p95, most = np.percentile(values, (50, 95, 100))
    return {
        "p50": round(float(p50), 6),
        "p95": round(float(p95), 6),
        "max": round(float(most), 6),
        "mean": round(float(np.mean(values)), 6),
    }


def recorded(output: Path, extra: Mapping[str, Any]) -> Iterator[Call]:
    """The calls of a run with full traces, question by question, as sent but for `extra`."""
    for _, row in jsonl.read(output):
        for step in row["trace"]:
            request = {**step["request"], **extra}
            yield Call(
                row["id"],
                row["repeat"],
                step["stage"],
                step["n"],
                orjson.dumps(request),
                request["max_tokens"],
                request.get("n", 1),
            )
