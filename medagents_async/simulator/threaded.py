"""The simulator in a thread of its own, for tests that drive the real commands as processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec

from .server import Simulator

P = ParamSpec("P")


def _threaded(make: Callable[P, Simulator]) -> Callable[P, AbstractContextManager[Simulator]]:
    """Turn `make` into a synchronous context manager with the same parameters."""

    @contextmanager
    def running(*args: P.args, **kwargs: P.kwargs) -> Iterator[Simulator]:
        """Run `Simulator(script, **options)` on an event loop in the background.

        Scripts run in that thread. Counters can be read from this one; coroutines of the
        simulator go through `simulator.call(simulator.kill())`. Leaving the block stops the
        server, waits for the thread and raises what the script raised.
        """
        simulator = make(*args, **kwargs)
        started: Future[asyncio.Event] = Future()
        ended: Future[None] = Future()

        async def serve() -> None:
            over = asyncio.Event()
            async with simulator:
                started.set_result(over)
                await over.wait()

        def main() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:  # for the other thread to raise
                (ended if started.done() else started).set_exception(error)
            else:
                ended.set_result(None)

        thread = threading.Thread(target=main, name="simulator")
        thread.start()
        try:
            over = started.result()
            try:
                yield simulator
            finally:
                if simulator.loop is not None and not ended.done():
                    simulator.loop.call_soon_threadsafe(over.set)
        finally:
            thread.join()
        ended.result()

    return running


running = _threaded(Simulator)
