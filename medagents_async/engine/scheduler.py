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
FIRST: Priority = (-1, 0)  # what others wait for


@dataclass(frozen=True, slots=True)
class Statistics:
    """Calls now, the most that were ever in flight, and slot-seconds since the first call.

    Of the `slot_seconds` that there were, nobody used `idle`; while some call waited for a slot
    that was there, `wasted` passed: time that better scheduling could have used.
    """

    in_flight: int
    ready: int
    peak: int
    slot_seconds: float
    idle: float
    wasted: float


class Scheduler:
    """Grants `limit` slots to waiting calls, oldest question first.

    Slots are the only limit on calls in flight; the limit may change at any time, and calls in
    flight above a lowered one go on. `rate` bounds the calls started per second.
    """

    def __init__(self, limit: int, rate: float | None = None) -> None:
        self._limit = limit
        self._pacer = _Pacer(rate) if rate else None
        self._queue: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._sequence = itertools.count()
        self._ready = 0  # calls that wait for a slot
        self._in_flight = 0
        self._owed = 0  # calls that rest, and those that were promised
        self._peak = 0
        self._counted_to: float | None = None  # on the loop's clock; None before the first call
        self._slot_seconds = self._idle = self._wasted = 0.0
        self._paused: set[object] = set()
        self._grantable = asyncio.Event()
        self._vacant = asyncio.Event()
        self._quiet = asyncio.Event()
        self._update()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._count()
        self._limit = limit
        self._update()

    def statistics(self) -> Statistics:
        self._count()
        return Statistics(
            self._in_flight,
            self._ready,
            self._peak,
            self._slot_seconds,
            self._idle,
            self._wasted,
        )

    @asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator[None]:
        """Hold one slot for the time of the block."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._counted_to = self._counted_to or asyncio.get_running_loop().time()
        self._count()
        heapq.heappush(self._queue, (priority, next(self._sequence), granted))
        self._ready += 1
        self._update()
        try:
            await granted
            yield
        finally:
            self._count()
            if granted.cancelled():  # the waiter was cancelled and never had the slot
                self._ready -= 1
            else:
                self._in_flight -= 1
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
        while not self._is_vacant():
            await self._vacant.wait()

    def pause(self, why: object) -> None:
        """Grant and admit nothing until `resume` for every reason; what is in flight goes on."""
        self._count()
        self._paused.add(why)
        self._update()

    def resume(self, why: object) -> None:
        self._count()
        self._paused.discard(why)
        self._update()

    def is_paused(self, why: object) -> bool:
        return why in self._paused

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._quiet.wait()

    async def dispatch(self) -> None:
        """Grant slots at the rate limit for ever; without one, they are granted on the spot."""
        while self._pacer is not None:
            await self._grantable.wait()
            await self._pacer.permit()
            if self._is_grantable():
                self._count()
                self._grant()
                self._update()

    def _grant(self) -> None:
        heapq.heappop(self._queue)[2].set_result(None)
        self._ready -= 1
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)

    def _is_grantable(self) -> bool:
        while self._queue and self._queue[0][2].cancelled():
            heapq.heappop(self._queue)
        return not self._paused and self._in_flight < self._limit and bool(self._queue)

    def _is_vacant(self) -> bool:
        taken = self._in_flight + self._owed
        return not self._paused and taken < self._limit and not self._ready

    def _update(self) -> None:
        while self._pacer is None and self._is_grantable():
            self._grant()
        for event, holds in (
            (self._grantable, self._is_grantable()),
            (self._vacant, self._is_vacant()),
            (self._quiet, self._in_flight == 0),
        ):
            if holds:
                event.set()
            else:
                event.clear()

    def _count(self) -> None:
        """Add up the time since the last change, during which nothing changed."""
        if self._counted_to is None:
            return
        now = asyncio.get_running_loop().time()
        passed, self._counted_to = now - self._counted_to, now
        free = max(0, self._limit - self._in_flight)
        self._slot_seconds += self._limit * passed
        self._idle += free * passed
        if not self._paused and self._pacer is None:
            self._wasted += min(free, self._ready) * passed


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
