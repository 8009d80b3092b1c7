"""`--concurrency auto`: as many calls in flight as the server can use, and hardly more.

A server with a queue of its own works at full throughput as long as something waits in it, and
what waits there longer gains nothing. So the number in flight grows while the server's queue is
empty and shrinks to what the server runs when calls pile up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from medagents_async.engine import load as loads
from medagents_async.engine.load import Load
from medagents_async.engine.servers import Server
from medagents_async.errors import Unavailable

START = 64
LEAST = 8
#: vLLM runs no more than 1,024 requests at once on the largest GPUs, unless told to.
MOST = 1024
# Shares of the KV cache in use. What is free holds prefixes that later calls can use, calls grow
# while they are answered, and one that is taken back is computed twice: so the number grows until
# ENOUGH is in use, and no further than would use TARGET. On the simulated servers this does as well
# as the best fixed number, and full caches cost up to a tenth.
ENOUGH = 0.75
TARGET = 0.85
HARDLY = 0.1  # so little that even calls that are all young cannot fill it unseen


@dataclass
class QueueRule:
    """The next limit from the server's own queue; `most` is never exceeded.

    Calls that were just added wait for their prefill, while the number running still rises: the
    server is full only when calls wait and no more of them run than before. And they take little
    of its cache while they are young: unless hardly any is in use, what there is room for shows
    when as many calls were answered as there are in flight.
    """

    most: int
    patience: int = 3  # looks in a row that must agree
    _doubling: bool = True  # until the server was full once
    _answered: int = 0  # calls, when the limit was last changed
    _running: int = 0  # the most seen since the limit was last changed
    _full: int = 0
    _waiting: int = 0  # the fewest that waited while it was full
    _hungry: int = 0
    _preemptions: int | None = None

    def next(self, limit: int, load: Load, *, in_flight: int, answered: int, used_up: bool) -> int:
        """`answered` calls so far; `used_up`: hardly a slot was free since the last look."""
        new = self._next(limit, load, in_flight, answered - self._answered, used_up)
        if new != limit:
            self._answered = answered
        return new

    def _next(self, limit: int, load: Load, in_flight: int, answered: int, used_up: bool) -> int:
        margin = max(2, load.running // 16)  # may wait: the server should never look in vain
        preempted = 0 if self._preemptions is None else load.preemptions - self._preemptions
        self._preemptions = load.preemptions
        rising = load.running > self._running * 1.02
        self._running = max(self._running, load.running)
        if in_flight > limit:  # what was lowered has not come about yet
            return limit
        if preempted > 0:  # it took back what it had begun: each such call is computed twice
            self._doubling = False
            return self._changed(limit - max(load.waiting - margin, limit // 10, 1))
        if load.waiting > margin:
            self._hungry = 0
            self._waiting = min(self._waiting, load.waiting) if self._full else load.waiting
            self._full = 0 if rising else self._full + 1
            if self._full < self.patience:
                return limit
            self._doubling = False
            return self._changed(limit - (self._waiting - margin))
        self._full = 0
        self._hungry = self._hungry + 1 if used_up and load.waiting <= margin // 2 else 0
        patience = 1 if self._doubling else self.patience
        known = answered >= limit or (self._doubling and load.kv_usage < HARDLY)
        if self._hungry >= patience and known and load.kv_usage < ENOUGH:
            # What the cache has room for, at most nearly as much again.
            room = limit * (TARGET - load.kv_usage) / (1 if self._doubling else 2)
            return self._changed(limit + max(1, int(room)))
        return limit

    def _changed(self, limit: int) -> int:
        self._running = self._full = self._hungry = 0
        return min(max(limit, LEAST), self.most)


@dataclass
class RateRule:
    """The next limit from what comes back, for servers that tell nothing of their queue.

    A refusal for want of room (429, 503) takes back a fifth. Otherwise the number grows by half
    while that brings tokens faster, and goes back a step when it does not.
    """

    most: int
    gain: float = 1.05
    _best: float = 0.0  # tokens a second
    _before: int = 0  # the limit that reached it
    _settled: bool = False
    _busy: int = 0
    _mark: tuple[float, int, int] | None = None  # when the limit changed: time, calls, tokens

    def next(self, limit: int, now: float, server: Server, *, used_up: bool) -> int:
        """`now` in seconds on the loop's clock; `used_up` as for `QueueRule`."""
        refused, self._busy = server.busy - self._busy, server.busy
        if refused:
            self._settled = True
            return self._changed(limit - max(1, limit // 5))
        if self._mark is None or not used_up:
            self._mark = (now, server.answered, server.tokens)
            return limit
        begun, answered, tokens = self._mark
        if self._settled or server.answered - answered < 2 * limit:  # two rounds of calls
            return limit
        rate = (server.tokens - tokens) / (now - begun)
        if rate < self._best * self.gain:
            self._settled = True
            return self._changed(self._before)
        self._best, self._before = rate, limit
        return self._changed(limit + limit // 2)

    def _changed(self, limit: int) -> int:
        self._mark = None
        return min(max(limit, LEAST), self.most)


class Steering:
    """Sets a server's number of calls in flight once a second."""

    LOOK_S = 1.0
    USED_UP = 0.05  # the share of slots that may be free for all to count as taken

    def __init__(self, server: Server, most: int = MOST) -> None:
        self._server = server
        self._by_queue = QueueRule(most)
        self._by_rate = RateRule(most)

    async def steer(self) -> None:
        """Look and set for ever."""
        clock = asyncio.get_running_loop().time
        lane = self._server.lane
        slot_seconds = idle = 0.0
        while True:
            await asyncio.sleep(self.LOOK_S)
            load = await read(self._server)
            lane.changed()  # counts up to now
            spent, free = lane.slot_seconds - slot_seconds, lane.idle - idle
            slot_seconds, idle = lane.slot_seconds, lane.idle
            used_up = spent > 0 and free < self.USED_UP * spent
            if load is not None:
                self._by_rate = RateRule(self._by_rate.most)  # what it knew is no longer so
            lane.limit = (
                self._by_rate.next(lane.limit, clock(), self._server, used_up=used_up)
                if load is None
                else self._by_queue.next(
                    lane.limit,
                    load,
                    in_flight=lane.in_flight,
                    answered=self._server.answered,
                    used_up=used_up,
                )
            )


async def read(server: Server, timeout: float = 5.0) -> Load | None:
    """The server's load now; None where it has no metrics, or gives none within `timeout` s."""
    try:
        async with asyncio.timeout(timeout):
            response = await server.client.get("/metrics")
    except (Unavailable, TimeoutError):
        return None
    return loads.read(response.text) if response.status_code == 200 else None
