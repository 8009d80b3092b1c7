"""The simulator on a port of its own, and how tests run it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from aiohttp import web

from medagents_async.simulator.life import Life, abort, never
from medagents_async.simulator.plausible import plausible
from medagents_async.simulator.script import Script
from medagents_async.simulator.service import Service

_new_event_loop = asyncio.new_event_loop
with suppress(ImportError):  # saves a quarter of the CPU
    _new_event_loop = import_module("uvloop").new_event_loop


@dataclass(kw_only=True, eq=False, repr=False)
class Simulator(Life, Service):
    """`Service`, listening on `host` and `port` while its `async with` block lasts.

    What the script raised is raised again when the block is left.
    """

    def __post_init__(self) -> None:
        Service.__post_init__(self)
        Life.__post_init__(self)

    async def drain(self) -> None:
        """Answer new requests with 503, stay healthy, return when nothing is in flight."""
        self.state = "draining"
        await self.until(lambda: self.in_flight == 0, timeout=None)

    async def answer(self, http: web.BaseRequest) -> web.Response:
        """Answer a request, or break its connection, or hang."""
        raw = await http.content.read()
        try:
            answer = await self.handle(http.method, http.path, http.headers, raw)
        except asyncio.CancelledError:
            self.disconnected += self.state != "stopped"
            raise
        if answer.fault == "reset":
            abort(http.transport, reset=True)
            await never()
        if answer.fault is None:
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        promised = {**answer.headers, "Content-Length": str(len(answer.body))}
        half = web.Response(
            status=answer.status, body=answer.body[: len(answer.body) // 2], headers=promised
        )
        half.force_close()
        return half


@contextmanager
def running(script: Script = plausible, **options: Any) -> Iterator[Simulator]:
    """Run `Simulator(script, **options)` on an event loop in a thread of its own.

    Scripts run in that thread. Counters can be read from this one; coroutines of the simulator
    go through `simulator.call(simulator.kill())`. Leaving the block stops the server, waits for
    the thread and raises what the script raised.
    """
    simulator = Simulator(script, **options)
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        simulator.loop = runner.get_loop()
        thread = threading.Thread(target=simulator.loop.run_forever, name="simulator")
        thread.start()
        try:
            simulator.call(simulator.start())
            yield simulator
        finally:
            simulator.call(simulator.stop())
            simulator.loop.call_soon_threadsafe(simulator.loop.stop)
            thread.join()
    if simulator.failure is not None:
        raise simulator.failure
