"""The seats of the engine, where so many requests run and the others wait; and who watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Slots:
    """A first-in-first-out limit that can be looked into; `limit` None is no limit.

    Use it as an async context manager. Whoever is cancelled while waiting leaves the line.
    `changed` is called when someone sits down or gets in line.
    """

    def __init__(self, limit: int | None, changed: Callable[[], None]) -> None:
        self.limit = limit
        self.changed = changed
        self.running = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """Whether the next one must wait."""
        return self.limit is not None and self.running >= self.limit

    async def __aenter__(self) -> None:
        if not self.full:
            self.running += 1
            self.changed()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self.changed()
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._line:
                self._line.remove(turn)
            else:  # the turn came in the same moment: hand it on
                self._release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _release(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)  # the seat passes on, `running` stays
                return
        self.running -= 1


class Watchers:
    """Tasks that wait until something is true of a state which others change."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def until(self, condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until `condition` holds; raises TimeoutError after `timeout` seconds."""
        if not condition():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            async with asyncio.timeout(timeout):
                await future

    def changed(self) -> None:
        """Try every condition again; to be called after each change."""
        for watcher in self._waiting[:]:
            condition, future = watcher
            if future.done() or condition():
                self._waiting.remove(watcher)
                if not future.done():
                    future.set_result(None)
