"""When a request runs and how long it takes: evenly, or as on vLLM's batching engine."""

from __future__ import annotations

import asyncio
import sys
import zlib
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from medagents_async.simulator import tokens
from medagents_async.simulator.batching import Scheduler, Sequence, Totals
from medagents_async.simulator.kv_cache import KvCache
from medagents_async.simulator.profiles import Batch, Profile
from medagents_async.simulator.script import Request
from medagents_async.simulator.vllm import Metric, Output

Produce = Callable[[], Awaitable[list[Output]]]


class Engine(Protocol):
    """Runs requests."""

    max_num_seqs: int

    @property
    def running(self) -> int:
        """How many run."""

    async def run(
        self, request: Request, prompt: bytes, produce: Produce
    ) -> tuple[list[Output], int]:
        """(what `produce` gives, how many tokens of `prompt` were cached), when the time is up."""

    def reset(self) -> None:
        """Forget cached prefixes and set counters to 0."""

    def metrics(self) -> dict[str, Metric]:
        """By vLLM's names, without `vllm:`."""


class EvenEngine:
    """First come, first served, at most `seats` at a time (None: any number).

    `latency`, in seconds, is what each takes: a number, or (low, high), spread evenly by a hash
    of the request.
    """

    _BLOCK, _CAPACITY = 16, 65_536  # tokens; blocks

    def __init__(self, latency: float | tuple[float, float], seats: int | None) -> None:
        self.max_num_seqs = seats or sys.maxsize
        self.running = 0
        self._latency = latency if isinstance(latency, tuple) else (latency, latency)
        self._seats = asyncio.Semaphore(self.max_num_seqs)
        self.reset()

    async def run(
        self, request: Request, prompt: bytes, produce: Produce
    ) -> tuple[list[Output], int]:
        """See `Engine`."""
        async with self._seats:
            self.running += 1
            clock = asyncio.get_running_loop().time
            begun = clock()  # what the simulator itself needs is part of the time, not on top
            try:
                cached = self._look_up(prompt)
                outputs = await produce()
                low, high = self._latency
                spread = (high - low) * zlib.crc32(request.raw) / 2**32
                await asyncio.sleep(max(0.0, begun + _delay(outputs) + low + spread - clock()))
            finally:
                self.running -= 1
        return outputs, cached

    def reset(self) -> None:
        """See `Engine`."""
        self._cache = KvCache(self._CAPACITY)
        self._queries = self._hits = 0

    def metrics(self) -> dict[str, Metric]:
        """See `Engine`."""
        return {
            "num_requests_running": self.running,
            "prompt_tokens_cached_total": self._hits,
            "prefix_cache_queries_total": self._queries,
            "prefix_cache_hits_total": self._hits,
        }

    def _look_up(self, prompt: bytes) -> int:
        """Remember the prompt; how many of its tokens were cached. As in vLLM, never the last."""
        keys = tokens.block_keys(prompt, self._BLOCK)[: self._CAPACITY]
        length, cache = tokens.count(prompt), self._cache
        known = cache.prefix(keys, (length - 1) // self._BLOCK)
        cache.hold(keys[:known])
        cache.take(len(keys) - known)
        fresh = cache.name(keys[known:])
        cache.release(keys[:known] + fresh, len(keys) - known - len(fresh))
        self._queries += length
        self._hits += known * self._BLOCK
        return known * self._BLOCK


@dataclass(eq=False)
class _Job:
    """A request's sequences, one for each of its samples, and who waits for them."""

    sequences: list[Sequence]
    done: asyncio.Future[None]
    unfinished: int
    reasons: list[str]


@dataclass(frozen=True)
class _Plan:
    """Steps under way: from `start` on, for `steps`, if no arrival cuts it short."""

    batch: Batch
    steps: int
    start: float


class BatchingEngine:
    """`Scheduler` on the running event loop's clock, real or simulated.

    A wait that runs late does not slow it down: a plan ends when it should have ended. So the same
    requests at the same times take the same time, on whatever clock.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile, self.max_num_seqs = profile, profile.max_num_seqs
        self.scheduler = Scheduler(profile)
        self._incoming: deque[tuple[float, _Job]] = deque()  # (when it leaves the API server, what)
        self._jobs: dict[Sequence, _Job] = {}
        self._left: list[Sequence] = []  # of clients that left
        self._plan: _Plan | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._door = 0.0  # when the API server is free again
        self._finished: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """How many sequences run."""
        return len(self.scheduler.running)

    async def run(
        self, request: Request, prompt: bytes, produce: Produce
    ) -> tuple[list[Output], int]:
        """See `Engine`. A reply that is an error is one at once."""
        del request
        outputs = await produce()
        cached = 0
        if not any(output.reply.failed for output in outputs):
            sequences = [self._sequence(prompt, output) for output in outputs]
            await self._generate(sequences, [output.finish_reason for output in outputs])
            cached = sequences[0].cached
        if delay := _delay(outputs):
            await asyncio.sleep(delay)
        return outputs, cached

    def _sequence(self, prompt: bytes, output: Output) -> Sequence:
        length, profile = tokens.count(prompt), self.profile
        keys = tokens.block_keys(prompt + output.tokens, profile.block_size)
        return Sequence(length, max(1, min(output.count, profile.max_model_len - length)), keys)

    async def _generate(self, sequences: list[Sequence], reasons: list[str]) -> None:
        """Return when all are done; cancelled, give them up."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        job = _Job(sequences, loop.create_future(), len(sequences), reasons)
        for sequence in sequences:
            self._jobs[sequence] = job
        self._door = max(self._door, now) + self.profile.request_s
        self._incoming.append((self._door, job))
        if self._plan is None:
            if len(self._incoming) == 1:
                self._wake(self._door)
        elif self.scheduler.takes_more:
            self._cut(self._incoming[0][0])
        try:
            await job.done
        except asyncio.CancelledError:
            self._finished["abort"] += job.unfinished
            self._left += [s for s in sequences if self._jobs.pop(s, None) is not None]
            if self._plan is not None:
                self._cut(loop.time())
            raise

    def reset(self) -> None:
        """See `Engine`; what sequences under way hold stays cached."""
        self.scheduler.totals = Totals()
        self.scheduler.cache.forget()
        self._finished.clear()

    def metrics(self) -> dict[str, Metric]:
        """See `Engine`."""
        scheduler, totals = self.scheduler, self.scheduler.totals
        plan = self._plan
        steps = 0  # of those under way, the ones that are over
        if plan is not None:
            steps = self._steps_until(plan, asyncio.get_running_loop().time()) - 1
        finished = {reason: self._finished[reason] for reason in ("stop", "length", "abort")}
        written_since = steps * scheduler.writing
        return {
            "num_requests_running": self.running,
            "num_requests_waiting": len(self._jobs) - self.running,
            "kv_cache_usage_perc": scheduler.cache.usage,
            "num_preemptions_total": totals.preemptions,
            "prompt_tokens_total": totals.prompt_tokens,
            "prompt_tokens_cached_total": totals.hits,
            "generation_tokens_total": totals.generation_tokens + written_since,
            "prefix_cache_queries_total": totals.queries,
            "prefix_cache_hits_total": totals.hits,
            "request_success_total": finished,
            "request_queue_time_seconds": (totals.queued_s, totals.begun),
            "iteration_tokens_total": (totals.tokens + written_since, totals.steps + steps),
        }

    # The clock

    def _wake(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._turn, when)

    def _turn(self, now: float) -> None:
        """End the plan, if there is one, and make the next."""
        scheduler, self._timer = self.scheduler, None
        if (plan := self._plan) is not None:
            self._plan = None
            for sequence in scheduler.advance(plan.steps):
                self._finish(sequence)
        for sequence in self._left:
            scheduler.remove(sequence)
        self._left.clear()
        while self._incoming and self._incoming[0][0] <= now:
            arrived, job = self._incoming.popleft()
            for sequence in job.sequences:
                if sequence in self._jobs:
                    scheduler.add(sequence, arrived)
        planned = scheduler.schedule(now)
        if planned is None:
            if self._incoming:
                self._wake(self._incoming[0][0])
            return
        self._plan = plan = _Plan(*planned, now)
        self._wake(now + self.profile.seconds(plan.batch, plan.steps))
        if self._incoming and scheduler.takes_more:
            self._cut(self._incoming[0][0])

    def _cut(self, when: float) -> None:
        """Let the plan end with the step that is under way at `when`."""
        assert self._plan is not None  # noqa: S101 - callers have looked
        plan = self._plan
        steps = self._steps_until(plan, when)
        if steps < plan.steps:
            self._plan = _Plan(plan.batch, steps, plan.start)
            self._wake(plan.start + self.profile.seconds(plan.batch, steps))

    def _steps_until(self, plan: _Plan, when: float) -> int:
        """How many steps begin before `when`, at least 1, at most as many as planned."""
        if plan.steps == 1:
            return 1

        def seconds(steps: int) -> float:
            return self.profile.seconds(plan.batch, steps)

        return 1 + bisect_left(range(1, plan.steps), when - plan.start, key=seconds)

    def _finish(self, sequence: Sequence) -> None:
        job = self._jobs.pop(sequence, None)
        if job is None:  # its client has left
            return
        self._finished[job.reasons[job.sequences.index(sequence)]] += 1
        job.unfinished -= 1
        if not job.unfinished and not job.done.done():
            job.done.set_result(None)


def _delay(outputs: list[Output]) -> float:
    return max(output.reply.delay for output in outputs)
