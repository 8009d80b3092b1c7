"""One server's slots and the calls that wait for them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Priority = tuple[int, int]  # (order of admission of the question, depth within it): lowest first
FIRST: Priority = (-1, 0)  # what others wait for


@dataclass(order=True, slots=True)
class Waiting:
    """A call that has no slot yet; `granted` gets the lane."""

    priority: Priority
    sequence: int
    granted: asyncio.Future[Lane]
    avoid: Lane | None = field(default=None, compare=False)  # where it has just failed


class Lane:
    """The slots of one server; servers of one `pool` can stand in for each other.

    The limit may change at any time; calls in flight above a lowered one go on.
    """

    def __init__(self, limit: int, pool: str = "") -> None:
        self.pool = pool
        self.changed: Callable[[], None] = lambda: None  # tells the scheduler
        self.in_flight = 0
        self.slot_seconds = self.idle = 0.0
        self.queue: list[Waiting] = []
        self._limit = limit
        self._paused: set[object] = set()

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self.changed()
        self._limit = limit
        self.changed()

    def pause(self, why: object) -> None:
        """Grant nothing here until `resume` for every reason; what is in flight goes on."""
        self.changed()
        self._paused.add(why)
        self.changed()

    def resume(self, why: object) -> None:
        self.changed()
        self._paused.discard(why)
        self.changed()

    def is_paused(self, why: object) -> bool:
        return why in self._paused

    @property
    def open(self) -> bool:
        return not self._paused

    @property
    def free(self) -> int:
        """Slots that a call could have now."""
        free = self._limit - self.in_flight
        return 0 if free < 0 or self._paused else free

    @property
    def room(self) -> float:
        """The share of its slots that nobody has or waits for."""
        return (self._limit - self.in_flight - len(self.queue)) / max(1, self._limit)

    def first(self) -> Waiting | None:
        """The oldest call that waits here."""
        while self.queue and self.queue[0].granted.cancelled():
            heapq.heappop(self.queue)
        return self.queue[0] if self.queue else None


@dataclass
class Seat:
    """Where one question's calls to a pool go: to the same server, whose cache knows its prefix."""

    pool: str = ""
    lane: Lane | None = None
