"""The one queue: who may send next, and when a new question may begin."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from asyncio_throttle.throttler import Throttler

Priority = tuple[int, int]  # (order of admission of the question, depth within it): lowest first


@dataclass(frozen=True, slots=True)
class Statistics:
    """Calls in flight and waiting, now, and the most that were ever in flight."""

    in_flight: int
    ready: int
    peak: int


class Scheduler:
    """Grants `limit` slots to waiting calls, oldest question first.

    Slots are the only limit on calls in flight. `rate` bounds the calls started per second.
    """

    def __init__(self, limit: int, rate: float | None = None) -> None:
        self.limit = limit
        self._pacer = _Pacer(rate) if rate else None
        self._ready: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._sequence = itertools.count()
        self._in_flight = 0
        self._owed = 0  # calls that rest, and those that were promised
        self._peak = 0
        self._paused: set[object] = set()
        self._grantable = asyncio.Event()
        self._vacant = asyncio.Event()
        self._idle = asyncio.Event()
        self._update()

    def statistics(self) -> Statistics:
        return Statistics(self._in_flight, len(self._ready), self._peak)

    @asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator[None]:
        """Hold one slot for the time of the block."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._ready, (priority, next(self._sequence), granted))
        self._update()
        try:
            await granted
            yield
        finally:
            if not granted.cancelled():  # else the waiter was cancelled and never had the slot
                self._in_flight -= 1
            self._forget_cancelled()
            self._update()

    def promise(self) -> Callable[[], None]:
        """Count one call that is still to be asked for, until the returned function is called."""
        kept = [False]
        self._owed += 1
        self._update()

        def keep() -> None:
            if not kept[0]:
                kept[0] = True
                self._owed -= 1
                self._update()

        return keep

    async def rest(self, seconds: float) -> None:
        """Back off without a slot. A resting call is still owed one, so nobody new is admitted."""
        self._owed += 1
        self._update()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._owed -= 1
            self._update()

    async def vacancy(self) -> None:
        """Wait until a slot is free that no call waits for: the time to admit a question."""
        while True:
            await self._vacant.wait()
            if self._is_vacant():
                return

    def pause(self, why: object) -> None:
        """Grant and admit nothing until `resume` for every reason; what is in flight goes on."""
        self._paused.add(why)
        self._update()

    def resume(self, why: object) -> None:
        self._paused.discard(why)
        self._update()

    def is_paused(self, why: object) -> bool:
        return why in self._paused

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._idle.wait()

    async def dispatch(self) -> None:
        """Grant slots for ever: the one task that waits for the rate limit."""
        while True:
            await self._grantable.wait()
            self._forget_cancelled()
            if self._pacer is not None and self._is_grantable():
                await self._pacer.permit()
                self._forget_cancelled()
            if self._is_grantable():
                heapq.heappop(self._ready)[2].set_result(None)
                self._in_flight += 1
                self._peak = max(self._peak, self._in_flight)
            self._update()

    def _forget_cancelled(self) -> None:
        while self._ready and self._ready[0][2].cancelled():
            heapq.heappop(self._ready)

    def _is_grantable(self) -> bool:
        return not self._paused and self._in_flight < self.limit and bool(self._ready)

    def _is_vacant(self) -> bool:
        taken = self._in_flight + self._owed
        return not self._paused and taken < self.limit and not self._ready

    def _update(self) -> None:
        for event, holds in (
            (self._grantable, self._is_grantable()),
            (self._vacant, self._is_vacant()),
            (self._idle, self._in_flight == 0),
        ):
            if holds:
                event.set()
            else:
                event.clear()


class _Pacer:
    """Spreads permits evenly over each second; `Throttler` alone lets a second's worth go at once.

    Only one task may await it: the throttler's waiters poll and are not first-in-first-out.
    """

    CATCH_UP_S = 0.02

    def __init__(self, rate: float) -> None:
        whole = math.ceil(rate)
        self._throttler = Throttler(whole, period=whole / rate)
        self._interval = 1 / rate
        self._next = -math.inf

    async def permit(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self.CATCH_UP_S)
        if self._next > now:
            await asyncio.sleep(self._next - now)
        self._next += self._interval
        await self._throttler.acquire()  # type: ignore[no-untyped-call]  # the package is untyped
