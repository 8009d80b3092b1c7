"""`--rate`: permits spread evenly over time."""

from __future__ import annotations

import asyncio
import math

from asyncio_throttle.throttler import Throttler


class Pacer:
    """Spreads permits evenly over each second; `Throttler` alone lets a second's worth go at once.

    Only one task may await it: the throttler's waiters poll and are not first-in-first-out.
    """

    CATCH_UP_S = 0.02

    def __init__(self, rate: float) -> None:
        whole = math.ceil(rate)
        self._throttler = Throttler(whole, period=whole / rate)
        self._interval = 1 / rate
        self._next = -math.inf

    async def permit(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self.CATCH_UP_S)
        if self._next > now:
            await asyncio.sleep(self._next - now)
        self._next += self._interval
        await self._throttler.acquire()  # type: ignore[no-untyped-call]  # the package is untyped
