"""The one queue on a simulated clock: order, limits, and the time that slots are idle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from medagents_async.engine.scheduler import Scheduler
from medagents_async.simulator import clock


def on_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    clock.run(main)


async def hold(scheduler: Scheduler, priority: tuple[int, int], seconds: float) -> None:
    async with scheduler.slot(priority):
        await asyncio.sleep(seconds)


def test_oldest_question_first_then_depth() -> None:
    async def main() -> None:
        scheduler, order = Scheduler(1), []

        async def call(priority: tuple[int, int]) -> None:
            async with scheduler.slot(priority):
                order.append(priority)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as tasks:
            for priority in ((5, 0), (2, 3), (2, 1), (1, 9)):
                tasks.create_task(call(priority))
        assert order == [(5, 0), (1, 9), (2, 1), (2, 3)]  # the first came when all was free

    on_virtual_time(main())


def test_statistics_add_up_slot_seconds() -> None:
    async def main() -> None:
        scheduler = Scheduler(4)
        async with asyncio.TaskGroup() as tasks:
            for n in range(6):  # four at once for 2 s, then two: 4 slot-seconds stay free
                tasks.create_task(hold(scheduler, (n, 0), 2.0))
        seen = scheduler.statistics()
        assert (seen.in_flight, seen.ready, seen.peak) == (0, 0, 4)
        assert (seen.slot_seconds, seen.idle, seen.wasted) == (16.0, 4.0, 0.0)

    on_virtual_time(main())


def test_paused_slots_are_idle_but_not_wasted() -> None:
    async def main() -> None:
        scheduler = Scheduler(2)
        scheduler.pause("server")
        task = asyncio.create_task(hold(scheduler, (0, 0), 1.0))
        await asyncio.sleep(3)
        assert scheduler.statistics().ready == 1
        scheduler.resume("server")
        await task
        seen = scheduler.statistics()
        assert (seen.idle, seen.wasted) == (7.0, 0.0)

    on_virtual_time(main())


def test_limit_may_change_while_calls_are_in_flight() -> None:
    async def main() -> None:
        scheduler, most = Scheduler(8), []
        async with asyncio.TaskGroup() as tasks:
            for n in range(12):
                tasks.create_task(hold(scheduler, (n, 0), 1.0))
            await asyncio.sleep(0.5)
            scheduler.limit = 2
            most.append(scheduler.statistics().in_flight)  # they go on
            await asyncio.sleep(1)
            most.append(scheduler.statistics().in_flight)
            scheduler.limit = 4
            most.append(scheduler.statistics().in_flight)
        assert most == [8, 2, 4]

    on_virtual_time(main())


def test_cancelled_waiters_take_no_slot() -> None:
    async def main() -> None:
        scheduler = Scheduler(1)
        first = asyncio.create_task(hold(scheduler, (0, 0), 1.0))
        waiting = [asyncio.create_task(hold(scheduler, (n, 0), 1.0)) for n in (1, 2, 3)]
        await asyncio.sleep(0.5)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        assert asyncio.get_running_loop().time() == 2.0
        seen = scheduler.statistics()
        assert (seen.in_flight, seen.ready, seen.wasted) == (0, 0, 0.0)

    on_virtual_time(main())


def test_question_is_admitted_where_a_slot_is_free_and_nobody_waits() -> None:
    async def main() -> None:
        scheduler = Scheduler(2)
        await scheduler.vacancy()
        keep = scheduler.promise()
        scheduler.promise()
        waiting = asyncio.create_task(scheduler.vacancy())
        await asyncio.sleep(1)
        assert not waiting.done()
        keep()
        await waiting

    on_virtual_time(main())
