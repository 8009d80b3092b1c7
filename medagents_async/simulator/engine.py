"""When a request runs and how long it takes: the place for a finer model of vLLM's time."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable, Sequence

from medagents_async.simulator.script import Reply, Request


class Engine:
    """Runs requests: first come, first served, at most `seats` at a time (None: any number).

    `latency`, in seconds, is what each takes: a number, or (low, high), spread evenly by a hash
    of the request.
    """

    def __init__(self, latency: float | tuple[float, float], seats: int | None) -> None:
        self.running = 0
        self.cache = PrefixCache()
        self._latency = latency if isinstance(latency, tuple) else (latency, latency)
        self._seats = asyncio.Semaphore(seats or sys.maxsize)

    async def run(
        self, request: Request, prompt: Sequence[str], ask: Callable[[Request], Awaitable[Reply]]
    ) -> tuple[Reply, int]:
        """(what `ask` replies, how many tokens of `prompt` were cached), when the time is up."""
        async with self._seats:
            self.running += 1
            clock = asyncio.get_running_loop().time
            begun = clock()  # what the simulator itself needs is part of the time, not on top
            try:
                cached = self.cache.admit(prompt)
                reply = await ask(request)
                low, high = self._latency
                spread = (high - low) * zlib.crc32(request.raw) / 2**32
                await asyncio.sleep(max(0.0, begun + reply.delay + low + spread - clock()))
            finally:
                self.running -= 1
        return reply, cached


class PrefixCache:
    """Which prefixes were seen, in blocks; the oldest are forgotten first."""

    BLOCK = 16  # tokens
    CAPACITY = 65_536  # blocks

    def __init__(self) -> None:
        self.queries = self.hits = 0  # tokens
        self._seen: dict[int, None] = {}

    def admit(self, prompt: Sequence[str]) -> int:
        """Remember the prompt; how many of its tokens were cached. As in vLLM, never the last."""
        cached = block = 0
        for end in range(self.BLOCK, len(prompt), self.BLOCK):
            start = end - self.BLOCK
            block = hash((block, *prompt[start:end]))
            if block in self._seen and cached == start:  # and so was all before it
                cached = end
            self._seen[block] = None
        while len(self._seen) > self.CAPACITY:
            del self._seen[next(iter(self._seen))]
        self.queries += len(prompt)
        self.hits += cached
        return cached
