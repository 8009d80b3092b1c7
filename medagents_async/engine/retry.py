"""The one layer that tries again: slot, attempt, back-off outside the slot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from medagents_async.engine.lanes import Lane, Priority, Seat
from medagents_async.engine.scheduler import Scheduler
from medagents_async.engine.servers import Server
from medagents_async.errors import Unavailable
from medagents_async.types import Call, Completion

MAX_DOWNFALLS = 5


@dataclass(slots=True)
class Attempts:
    """How a call came about: when it was asked for, in seconds since its question began, seconds
    without a slot, seconds with one, tries made.
    """

    asked_s: float = 0.0
    queued_s: float = 0.0
    seconds: float = 0.0
    attempts: int = 0
    server: str = ""  # the last one that it was sent to


@dataclass(frozen=True)
class Retrying:
    """Sends calls, each up to `retries` times more after a failure that may pass."""

    scheduler: Scheduler
    server_at: Callable[[Lane], Server]
    retries: int
    base_s: float = 1.0
    cap_s: float = 30.0

    async def complete(
        self, call: Call, priority: Priority, seat: Seat, attempts: Attempts
    ) -> Completion:
        """Raises the last CallError; `attempts` is filled in as it goes, failed or not.

        A try that ended because the server went down is none of the call's own, so it does not
        count; but a call that was there at many downfalls may be what brings it down.
        """
        clock = asyncio.get_running_loop().time
        failures = downfalls = 0
        failed_at: Lane | None = None
        while True:
            asked = clock()
            async with self.scheduler.slot(priority, seat, failed_at) as lane:
                sent, server = clock(), self.server_at(lane)
                attempts.server = server.name
                attempts.attempts += 1
                attempts.queued_s += sent - asked
                try:
                    return await server.complete(call)
                except Unavailable as error:
                    failure, failed_at = error, lane
                finally:
                    attempts.seconds += clock() - sent
            failures += not failure.went_down
            downfalls += failure.went_down
            if failures > self.retries or downfalls > MAX_DOWNFALLS:
                raise failure
            await self.scheduler.rest(self.delay(failures + downfalls, failure.retry_after))

    def delay(self, tries: int, retry_after: float | None) -> float:
        """Seconds until try `tries` + 1: full jitter, and never less than the server asks for."""
        jittered = random.uniform(0, min(self.cap_s, self.base_s * 2 ** (tries - 1)))  # noqa: S311
        return jittered if retry_after is None else retry_after + jittered
