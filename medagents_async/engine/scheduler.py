"""The one queue: who may send next, to which server, and when a new question may begin."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from medagents_async.engine.lanes import Lane, Priority, Seat, Waiting
from medagents_async.engine.pacer import Pacer


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


@dataclass(slots=True)
class Promise:
    """Counts as a call that waits until it is kept."""

    _fulfil: Callable[[], None]
    kept: bool = False

    def keep(self) -> None:
        """The call is asked for, or never will be. Only the first time counts."""
        if not self.kept:
            self.kept = True
            self._fulfil()


class Scheduler:
    """Grants the lanes' slots to waiting calls, oldest question first.

    Slots are the only limit on calls in flight, `most` of them on all servers together. `rate`
    bounds the calls started per second. A
    call takes a slot on another server of its pool rather than wait for one on its own.
    """

    def __init__(self, rate: float | None = None, most: int | None = None) -> None:
        self.lanes: list[Lane] = []
        self._gone: list[Lane] = []
        self._most = most  # calls in flight, over all lanes
        self._pacer = Pacer(rate) if rate else None
        self._sequence = itertools.count()
        self._ready = 0  # calls that wait for a slot
        self._in_flight = 0
        self._owed = 0  # calls that rest, and those that were promised
        self._peak = 0
        self._counted_to: float | None = None  # on the loop's clock; None before the first call
        self._wasted = 0.0
        self._stopped = False
        self._grantable = asyncio.Event()
        self._vacant = asyncio.Event()
        self._quiet = asyncio.Event()
        self._update()

    def add(self, lane: Lane) -> None:
        """Use a server's slots from now on."""
        self._count()
        lane.changed = self._changed
        self.lanes.append(lane)
        self._update()

    def remove(self, lane: Lane) -> None:
        """Forget a server that left; what waits for it goes to others, if there are any."""
        lane.pause(self)
        others = [other for other in self._pool(lane.pool) if other is not lane]
        if others:
            for waiting in lane.queue:
                heapq.heappush(max(others, key=lambda other: other.room).queue, waiting)
            lane.queue.clear()
            self.lanes.remove(lane)
            self._gone.append(lane)
        self._update()

    def alone(self, lane: Lane) -> bool:
        """Whether no other server of the pool takes calls now."""
        return not any(other.open for other in self._pool(lane.pool) if other is not lane)

    def statistics(self) -> Statistics:
        self._count()
        return Statistics(
            self._in_flight,
            self._ready,
            self._peak,
            sum(lane.slot_seconds for lane in (*self.lanes, *self._gone)),
            sum(lane.idle for lane in (*self.lanes, *self._gone)),
            self._wasted,
        )

    @asynccontextmanager
    async def slot(
        self, priority: Priority, seat: Seat, avoid: Lane | None = None
    ) -> AsyncIterator[Lane]:
        """Hold one slot for the time of the block; the lane says on which server.

        That is not the one of `avoid`, where the pool has another.
        """
        lane = await self._acquire(priority, seat, avoid)
        try:
            yield lane
        finally:
            self._release(lane)

    def promise(self) -> Promise:
        """Count one call that is still to be asked for, until the promise is kept."""
        self._owed += 1
        self._update()
        return Promise(self._fulfil)

    def _fulfil(self) -> None:
        self._owed -= 1
        self._update()

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

    def stop(self) -> None:
        """Grant and admit nothing any more; what is in flight goes on."""
        self._count()
        self._stopped = True
        self._update()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._quiet.wait()

    async def dispatch(self) -> None:
        """Grant slots at the rate limit for ever; without one, they are granted on the spot."""
        while self._pacer is not None:
            await self._grantable.wait()
            await self._pacer.permit()
            self._count()
            self._grant_one()
            self._update()

    # Granting

    async def _acquire(self, priority: Priority, seat: Seat, avoid: Lane | None) -> Lane:
        loop = asyncio.get_running_loop()
        if self._counted_to is None:
            self._counted_to = loop.time()
        if avoid is not None and self.alone(avoid):
            avoid = None
        waiting = Waiting(priority, next(self._sequence), loop.create_future(), avoid)
        self._count()
        heapq.heappush(self._home(seat, avoid).queue, waiting)
        self._ready += 1
        self._update()
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.cancelled():  # it never had the slot
                self._count()
                self._ready -= 1
                for lane in self.lanes:  # it must not count as one that waits
                    lane.first()
                self._update()
            else:
                self._release(waiting.granted.result())
            raise

    def _release(self, lane: Lane) -> None:
        self._count()
        self._in_flight -= 1
        lane.in_flight -= 1
        self._update()

    def _pool(self, name: str) -> list[Lane]:
        return [lane for lane in self.lanes if lane.pool == name]

    def _home(self, seat: Seat, avoid: Lane | None) -> Lane:
        """The question's own lane; where it has none, or a closed one, the one with most room."""
        lane = seat.lane
        closed = lane is not None and not lane.open and not self.alone(lane)
        if lane is None or closed or lane is avoid or lane not in self.lanes:
            lanes = [other for other in self._pool(seat.pool) if other is not avoid]
            seat.lane = max(lanes, key=lambda lane: (lane.open, lane.room))
        assert seat.lane is not None  # noqa: S101 - a pool has a lane
        return seat.lane

    def _choice(self) -> tuple[Lane, Lane] | None:
        """(a lane with a free slot, the one where the call for it waits).

        The oldest call first; it gets a slot of its own server if that has one.
        """
        if self._most is not None and self._in_flight >= self._most:
            return None
        waiting = [lane for lane in self.lanes if lane.first()]
        if len(waiting) > 1:
            waiting.sort(key=lambda lane: lane.queue[0])
        for home in waiting:
            if home.free:
                return home, home
            avoid = home.queue[0].avoid
            free = [lane for lane in self._pool(home.pool) if lane.free and lane is not avoid]
            if free:
                return max(free, key=lambda lane: lane.room), home
        return None

    def _grant_one(self) -> bool:
        choice = None if self._stopped else self._choice()
        if choice is None:
            return False
        lane, home = choice
        heapq.heappop(home.queue).granted.set_result(lane)
        lane.in_flight += 1
        self._ready -= 1
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        return True

    def _grantable_now(self) -> int:
        """Slots that calls could have, counted without asking how they are granted."""
        count = 0
        for pool in {lane.pool for lane in self.lanes}:
            lanes = self._pool(pool)
            waiting = sum(
                not waiting.granted.cancelled() for lane in lanes for waiting in lane.queue
            )
            count += min(sum(lane.free for lane in lanes), waiting)
        return count if self._most is None else min(count, self._most - self._in_flight)

    def _is_vacant(self) -> bool:
        free = 0
        for lane in self.lanes:  # as a loop: this is asked several times a call
            free += lane.free
        if self._most is not None:
            free = min(free, self._most - self._in_flight)
        if self._stopped or free <= self._owed:
            return False
        if self._pacer:
            return not self._ready
        # Calls wait for a free slot at another pool than the one that has it: a bottleneck,
        # behind which a queue as long as its slots is enough.
        return self._ready <= sum(lane.limit for lane in self.lanes if lane.queue)

    def _changed(self) -> None:
        """A lane says so before and after: the time until now passed with what was before."""
        self._count()
        self._update()

    def _update(self) -> None:
        if self._pacer is None:
            while self._ready and self._grant_one():
                pass
        else:
            _tell(self._grantable, self._choice() is not None)
        _tell(self._vacant, self._is_vacant())
        _tell(self._quiet, not self._in_flight)

    def _count(self) -> None:
        """Add up the time since the last change, during which nothing changed."""
        if self._counted_to is None:
            return
        now = asyncio.get_running_loop().time()
        passed, self._counted_to = now - self._counted_to, now
        if not passed:
            return
        for lane in self.lanes:
            lane.slot_seconds += lane.limit * passed
            lane.idle += max(0, lane.limit - lane.in_flight) * passed
        if not self._stopped and not self._pacer and self._ready:
            self._wasted += self._grantable_now() * passed


def _tell(event: asyncio.Event, holds: bool) -> None:
    if holds:
        event.set()
    else:
        event.clear()
