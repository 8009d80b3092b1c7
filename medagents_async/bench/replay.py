"""A run's calls once more, without their dependencies: what the servers could do with them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from medagents_async.engine.client import Client
from medagents_async.engine.lanes import Lane, Seat
from medagents_async.engine.scheduler import Scheduler
from medagents_async.errors import Unavailable
from medagents_async.fan_out import first_error
from medagents_async.types import Call

Connect = Callable[[str], tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]]
TRIES = 5
REST_S = 1.0


async def replay(
    calls: Sequence[Call],
    concurrency: int,
    connect: Connect,
    base_urls: Sequence[str],
    api_key: str | None,
    *,
    body: int | None = None,
) -> dict[str, Any]:
    """Send all `calls`, `concurrency` at a time, in their order, none waiting for another.

    With `concurrency` 1, this is how the papers' code sends them. `body_calls_per_s` is the rate of
    the first `body` replies, by default of all. Raises CallError.
    """
    clock = asyncio.get_running_loop().time
    ended: list[float] = []
    scheduler, clients = Scheduler(most=concurrency), dict[Lane, Client]()
    for url in base_urls:
        lane = Lane(math.ceil(concurrency / len(base_urls)))
        clients[lane] = Client(*connect(url), url, api_key)
        scheduler.add(lane)
    seats: dict[str, Seat] = {}  # as in a run, a question keeps its server
    begun = clock()

    async def send(place: int, call: Call) -> None:
        seat = seats.setdefault(call.question_id, Seat())
        for left in reversed(range(TRIES)):
            try:
                async with scheduler.slot((place, 0), seat) as lane:
                    await clients[lane].complete(call)
                break
            except Unavailable:
                if not left:
                    raise
                await scheduler.rest(REST_S)
        ended.append(clock() - begun)

    try:
        async with asyncio.TaskGroup() as tasks:
            for place, call in enumerate(calls):
                tasks.create_task(send(place, call))
    except ExceptionGroup as group:
        raise first_error(group) from None
    finally:
        for client in clients.values():
            await client.close()
    body = min(body or len(ended), len(ended))
    return {
        "calls": len(ended),
        "seconds": round(ended[-1], 3),
        "calls_per_s": round(len(ended) / ended[-1], 3),
        "body_calls": body,
        "body_calls_per_s": round(body / ended[body - 1], 3),
    }
