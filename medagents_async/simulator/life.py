"""A server's life: a port, its connections, and the ways in which they go."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

from aiohttp import web

T = TypeVar("T")

_LINGER_ZERO = struct.pack("ii", 1, 0)  # closing then sends a reset, as a dying process does
_KEEP_ALIVE_S = 5.0  # uvicorn's


@dataclass(kw_only=True, eq=False, repr=False)
class Life:
    """Listens while its `async with` block lasts; what it answers is the subclass's business.

    `port` 0 takes a free one and keeps it when `start` is called again.
    """

    host: str = "127.0.0.1"
    port: int = 0

    def __post_init__(self) -> None:
        self.state: Literal["up", "draining", "frozen", "stopped"] = "stopped"
        self.healthy = True
        self.failure: Exception | None = None  # raised when the block is left
        self._listener: asyncio.Server | None = None

    @cached_property
    def _http(self) -> web.Server:
        return web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
        )

    async def answer(self, http: web.BaseRequest) -> web.Response:
        """Answer a request; cancelled when its client leaves or the server stops."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """What `--base-url` wants: with /v1."""
        return f"http://{self.host}:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.stop()
        if self.failure is not None and error is None:
            raise self.failure

    async def start(self) -> None:
        """Listen; after `stop`, `kill` or `freeze` again, healthy, on the same port."""
        self.loop = asyncio.get_running_loop()
        self._listener = await self.loop.create_server(
            self._http, self.host, self.port, backlog=4096, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        self.state, self.healthy = "up", True

    async def stop(self, *, reset: bool = False) -> None:
        """Close the port and every connection; requests in flight get no answer."""
        await self.freeze()
        self.state = "stopped"
        # A connection that was just accepted is not in the list yet: look again some rounds.
        for _ in range(5):
            for connection in self._http.connections:
                abort(connection.transport, reset=reset)
            await asyncio.sleep(0)

    async def kill(self) -> None:
        """Stop by resetting the connections, as when the process is killed."""
        await self.stop(reset=True)

    async def freeze(self) -> None:
        """Do what vLLM does on SIGTERM without a shutdown timeout.

        New connections are refused; whoever is connected hears nothing any more, not even that
        it is over.
        """
        self.state = "frozen"
        if self._listener is not None:
            self._listener.close()

    async def until(self, condition: Callable[[], bool], timeout: float | None = 30.0) -> None:
        """Wait until `condition` holds. Raises TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.001)

    def call(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Run `work`, such as `kill()`, on the server's loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    async def _handle(self, http: web.BaseRequest) -> web.Response:
        response = await self.answer(http)
        if self.state == "frozen":
            await never()
        return response


def abort(transport: asyncio.Transport | None, *, reset: bool) -> None:
    """Give a connection up at once; with `reset`, so that the peer sees it break."""
    if transport is None:
        return
    if reset and (sock := transport.get_extra_info("socket")) is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    transport.abort()


async def never() -> None:
    """Wait for the client, or the server, to give the connection up."""
    await asyncio.Event().wait()
