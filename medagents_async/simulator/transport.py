"""The simulator without sockets: an httpx transport, for simulated time above all.

async def main() -> None:
server = Service(profile="llama-3.1-8b-h100")
transport = SimulatedTransport(server)
client = Client(transport, transport, "http://simulated/v1")
...

clock.run(main())
"""

from __future__ import annotations

import asyncio

import httpx

from medagents_async.simulator.life import never
from medagents_async.simulator.service import Service


class SimulatedTransport(httpx.AsyncBaseTransport):
    """Carries requests to `service` in this process, whatever their host.

    One service per transport; any number of both may share an event loop. A service whose `state`
    is "stopped" or "frozen" refuses connections, and what was under way is lost when it would have
    been answered. Faults of replies come as httpx's errors.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Give the whole answer. Raises ConnectError, ReadError, RemoteProtocolError."""
        service = self.service
        if service.state in ("stopped", "frozen"):
            raise httpx.ConnectError("the simulated server is down", request=request)
        raw = await request.aread()
        # A look-up in httpx's own headers decodes all of them.
        headers = {k.decode().lower(): v.decode() for k, v in request.headers.raw}
        try:
            answer = await service.handle(request.method, request.url.path, headers, raw)
        except asyncio.CancelledError:
            service.disconnected += 1
            raise
        if service.state == "frozen":
            await never()
        if service.state == "stopped" or answer.fault == "reset":
            raise httpx.ReadError("connection reset by the simulated server", request=request)
        if answer.fault == "truncate":
            raise httpx.RemoteProtocolError("incomplete body", request=request)
        # Given the body as a stream, httpx derives no headers from it: a tenth of the time.
        return httpx.Response(
            answer.status,
            headers=[(k.encode(), v.encode()) for k, v in answer.headers.items()],
            stream=httpx.ByteStream(answer.body),
            request=request,
        )
