"""Responses and connections: the few things that are about bytes and sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping

from aiohttp import web

_LINGER_ZERO = struct.pack("ii", 1, 0)  # closing then sends a reset, as a dying process does


def response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> web.Response:
    """Make a response: of JSON, if `headers` say nothing else."""
    fields = {"Server": "uvicorn"}
    if body:
        fields["Content-Type"] = "application/json"
    return web.Response(status=status, body=body, headers=fields | dict(headers or {}))


async def truncated(
    http: web.BaseRequest, body: bytes, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Promise all of `body`, send half of it, and have the connection closed."""
    broken = web.StreamResponse(
        headers={"Server": "uvicorn", "Content-Type": "application/json", **headers}
    )
    broken.content_length = len(body)
    broken.force_close()
    await broken.prepare(http)
    await broken.write(body[: len(body) // 2])
    return broken


def abort(transport: asyncio.Transport | None, *, reset: bool) -> None:
    """Give the connection up at once; with `reset`, so that the peer sees it break."""
    if transport is None:
        return
    if reset and (sock := transport.get_extra_info("socket")) is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    transport.abort()
