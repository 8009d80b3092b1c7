"""The server's life: a port, its connections, and the ways in which it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web

from .service import Service
from .wire import abort

T = TypeVar("T")


@dataclass(kw_only=True, eq=False, repr=False)
class Simulator(Service):
    """A stand-in for a vLLM server, listening while its `async with` block lasts.

    The options are those of `Service`, and: `port`, where 0 takes a free one and keeps it when
    `start` is called again; `keep_alive`, how long an idle connection lives, in seconds.

    An exception in the script is answered with a 500 and raised again when the block is left.
    """

    host: str = "127.0.0.1"
    port: int = 0
    keep_alive: float = 5.0  # uvicorn's

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._listener: asyncio.Server | None = None
        self._web: web.Server | None = None

    @property
    def url(self) -> str:
        """What `--base-url` wants: with /v1."""
        return f"http://{self.host}:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if self.failure is not None and error is None:
            raise self.failure

    async def start(self) -> None:
        """Listen; after `stop`, `kill` or `freeze` again, healthy, on the same port."""
        self.loop = asyncio.get_running_loop()
        self.healthy, self.draining, self.frozen, self.stopping = True, False, False, False
        self._web = self._web or web.Server(
            self.handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=self.keep_alive,
        )
        self._listener = await self.loop.create_server(
            self._web, self.host, self.port, backlog=4096, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection; requests in flight get no answer."""
        await self._close(reset=False)

    async def kill(self) -> None:
        """Do the same by reset, as when the process is killed."""
        await self._close(reset=True)

    async def freeze(self) -> None:
        """Do what vLLM does on SIGTERM without a shutdown timeout.

        New connections are refused; whoever is connected hears nothing any more, not even that
        it is over.
        """
        self.frozen = True
        if self._listener is not None:
            self._listener.close()

    async def drain(self) -> None:
        """Answer new requests with 503, stay healthy, return when nothing is in flight."""
        self.draining = True
        await self.until(lambda: self.in_flight == 0, timeout=None)

    def set_health(self, ok: bool) -> None:
        """Let /health say 200 or 503."""
        self.healthy = ok

    def call(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Run, from another thread, `work` such as `kill()`, on the server's loop.

        Raises TimeoutError after `timeout` seconds.
        """
        if self.loop is None:
            raise RuntimeError("the simulator was not started")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    async def _close(self, *, reset: bool) -> None:
        if self._web is None:
            return
        self.stopping = True
        if self._listener is not None:
            self._listener.close()
        if asyncio.current_task() in self.tasks:  # called by a script, which must not wait
            self._abort_all(reset=reset)  # for itself
            return
        # A connection that was just accepted is not in the list yet: look again some rounds.
        rounds = 5
        while rounds or self._web.connections:
            self._abort_all(reset=reset)
            await asyncio.sleep(0)
            rounds = max(0, rounds - 1)

    def _abort_all(self, *, reset: bool) -> None:
        for connection in self._web.connections if self._web else ():
            abort(connection.transport, reset=reset)
