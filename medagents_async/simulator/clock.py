"""An event loop on a simulated clock: an hour of sleeps takes no time, and none is early.

`run(main())` runs a coroutine on it, as `asyncio.run` does on the real one. What waits for
nothing but timers and other tasks behaves as always; work for threads is done at once, in the
loop's own thread, since a simulated second has no length in which a thread could do it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:  # callbacks are ready: sockets and signals may wait until they have run
            return []
        events = super().select(0)
        if not events:
            if timeout is None:
                raise RuntimeError("every task waits and no timer is set: a deadlock")
            self.now += max(0.0, timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0 and moves only when every task waits: to the next timer."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call `func` here and now; `executor` is not used."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # whoever awaits it gets it, as from a thread
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a simulated clock of its own.

    Raises RuntimeError when every task waits for something that no timer will bring about.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
