"""What a task has of the scheduler: a slot, or the promise that a call will be asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from medagents_async.engine.lanes import Lane


class Slot:
    """A slot for the time of an `async with`. A generator would do, at 10 µs more a call."""

    __slots__ = ("_acquire", "_lane", "_release")
    _lane: Lane

    def __init__(
        self, acquire: Callable[[], Awaitable[Lane]], release: Callable[[Lane], None]
    ) -> None:
        self._acquire = acquire
        self._release = release

    async def __aenter__(self) -> Lane:
        self._lane = await self._acquire()
        return self._lane

    async def __aexit__(self, *_: object) -> None:
        self._release(self._lane)


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
