"""A run's calls once more, without their dependencies: what the server could do at best."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from medagents_async.bench.measure import BODY
from medagents_async.engine.client import Client
from medagents_async.engine.lanes import Lane, Seat
from medagents_async.engine.scheduler import Scheduler
from medagents_async.types import Call

Connect = Callable[[str], tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]]


async def replay(
    calls: Sequence[Call], concurrency: int, connect: Connect, base_url: str, api_key: str | None
) -> dict[str, Any]:
    """Send all `calls`, `concurrency` at a time, in their order, none waiting for another.

    No scheduler of the same calls at the same concurrency can be faster. With `concurrency` 1,
    this is how the papers' code sends them. Raises CallError.
    """
    transport, probes = connect(base_url)
    clock = asyncio.get_running_loop().time
    ended: list[float] = []
    try:
        client = Client(transport, probes, base_url, api_key)
        scheduler, seat = Scheduler(), Seat()
        scheduler.add(Lane(concurrency))
        begun = clock()

        async def send(place: int, call: Call) -> None:
            async with scheduler.slot((place, 0), seat):
                await client.complete(call)
            ended.append(clock() - begun)

        async with asyncio.TaskGroup() as tasks:
            for place, call in enumerate(calls):
                tasks.create_task(send(place, call))
    finally:
        await transport.aclose()
        await probes.aclose()
    body = int(BODY * len(ended))
    return {
        "calls": len(ended),
        "seconds": round(ended[-1], 3),
        "calls_per_s": round(len(ended) / ended[-1], 3),
        "body_calls_per_s": round(body / ended[body - 1], 3) if body else 0.0,
    }
