"""The one queue on a simulated clock: order, limits, and the time that slots are idle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from medagents_async.engine.lanes import Lane, Seat
from medagents_async.engine.scheduler import Scheduler
from medagents_async.simulator import clock


def on_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    clock.run(main)


def one_server(limit: int) -> tuple[Scheduler, Lane]:
    scheduler, lane = Scheduler(), Lane(limit)
    scheduler.add(lane)
    return scheduler, lane


def several(*limits: int) -> tuple[Scheduler, list[Lane]]:
    scheduler, lanes = Scheduler(), [Lane(limit) for limit in limits]
    for lane in lanes:
        scheduler.add(lane)
    return scheduler, lanes


async def hold(
    scheduler: Scheduler, priority: tuple[int, int], seconds: float, seat: Seat | None = None
) -> None:
    async with scheduler.slot(priority, seat or Seat()):
        await asyncio.sleep(seconds)


def test_oldest_question_first_then_depth() -> None:
    async def main() -> None:
        (scheduler, _), order = one_server(1), []

        async def call(priority: tuple[int, int]) -> None:
            async with scheduler.slot(priority, Seat()):
                order.append(priority)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as tasks:
            for priority in ((5, 0), (2, 3), (2, 1), (1, 9)):
                tasks.create_task(call(priority))
        assert order == [(5, 0), (1, 9), (2, 1), (2, 3)]  # the first came when all was free

    on_virtual_time(main())


def test_statistics_add_up_slot_seconds() -> None:
    async def main() -> None:
        scheduler, _ = one_server(4)
        async with asyncio.TaskGroup() as tasks:
            for n in range(6):  # four at once for 2 s, then two: 4 slot-seconds stay free
                tasks.create_task(hold(scheduler, (n, 0), 2.0))
        seen = scheduler.statistics()
        assert (seen.in_flight, seen.ready, seen.peak) == (0, 0, 4)
        assert (seen.slot_seconds, seen.idle, seen.wasted) == (16.0, 4.0, 0.0)

    on_virtual_time(main())


def test_paused_slots_are_idle_but_not_wasted() -> None:
    async def main() -> None:
        scheduler, lane = one_server(2)
        lane.pause("server")
        task = asyncio.create_task(hold(scheduler, (0, 0), 1.0))
        await asyncio.sleep(3)
        assert scheduler.statistics().ready == 1
        lane.resume("server")
        await task
        seen = scheduler.statistics()
        assert (seen.idle, seen.wasted) == (7.0, 0.0)

    on_virtual_time(main())


def test_limit_may_change_while_calls_are_in_flight() -> None:
    async def main() -> None:
        (scheduler, lane), most = one_server(8), []
        async with asyncio.TaskGroup() as tasks:
            for n in range(12):
                tasks.create_task(hold(scheduler, (n, 0), 1.0))
            await asyncio.sleep(0.5)
            lane.limit = 2
            most.append(scheduler.statistics().in_flight)  # they go on
            await asyncio.sleep(1)
            most.append(scheduler.statistics().in_flight)
            lane.limit = 4
            most.append(scheduler.statistics().in_flight)
        assert most == [8, 2, 4]

    on_virtual_time(main())


def test_cancelled_waiters_take_no_slot() -> None:
    async def main() -> None:
        scheduler, _ = one_server(1)
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


def test_a_cancelled_waiter_is_in_no_queue() -> None:
    async def main() -> None:
        scheduler, lanes = several(2, 2)
        holding = [asyncio.create_task(hold(scheduler, (n, 0), 2.0)) for n in range(4)]
        await asyncio.sleep(0.5)
        waiting = asyncio.create_task(hold(scheduler, (4, 0), 1.0))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(*holding, waiting, return_exceptions=True)
        assert [lane.room for lane in lanes] == [1.0, 1.0]

    on_virtual_time(main())


def test_a_task_cancelled_just_after_its_slot_was_granted_gives_it_back() -> None:
    async def main() -> None:
        scheduler, lane = one_server(1)
        first = asyncio.create_task(hold(scheduler, (0, 0), 1.0))
        second = asyncio.create_task(hold(scheduler, (1, 0), 1.0))
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.sleep(0)  # its slot is the second's now, which has not run since
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert (lane.in_flight, scheduler.statistics().in_flight) == (0, 0)

    on_virtual_time(main())


def test_question_is_admitted_where_a_slot_is_free_and_nobody_waits() -> None:
    async def main() -> None:
        scheduler, _ = one_server(2)
        await scheduler.vacancy()
        first = scheduler.promise()
        scheduler.promise()
        waiting = asyncio.create_task(scheduler.vacancy())
        await asyncio.sleep(1)
        assert not waiting.done()
        first.keep()
        await waiting

    on_virtual_time(main())


def test_question_stays_on_its_server_while_there_is_room() -> None:
    async def main() -> None:
        scheduler, lanes = several(4, 4)
        seats = [Seat() for _ in range(4)]
        used: dict[int, set[int]] = {n: set() for n in range(4)}

        async def question(n: int) -> None:
            for depth in range(5):
                async with scheduler.slot((n, depth), seats[n]) as lane:
                    used[n].add(lanes.index(lane))
                    await asyncio.sleep(1 + n / 10)

        await asyncio.gather(*(question(n) for n in range(4)))
        assert sorted(used.values(), key=min) == [{0}, {0}, {1}, {1}]

    on_virtual_time(main())


def test_calls_wait_for_no_server_while_another_is_free() -> None:
    async def main() -> None:
        scheduler, lanes = several(2, 6)
        seat = Seat(lane=lanes[0])
        await asyncio.gather(*(hold(scheduler, (0, 0), 1.0, seat) for _ in range(8)))
        assert asyncio.get_running_loop().time() == 1.0
        assert seat.lane is lanes[0]  # it is still at home there
        assert scheduler.statistics().wasted == 0

    on_virtual_time(main())


def test_what_waits_for_a_server_that_is_down_goes_elsewhere() -> None:
    async def main() -> None:
        scheduler, lanes = several(1, 1)
        seat = Seat(lane=lanes[0])
        calls = [asyncio.create_task(hold(scheduler, (n, 0), 1.0, seat)) for n in range(5)]
        await asyncio.sleep(0.5)
        lanes[0].pause("outage")
        await asyncio.gather(*calls)
        await hold(scheduler, (9, 0), 1.0, seat)
        assert seat.lane is lanes[1]

    on_virtual_time(main())


def test_servers_of_another_pool_are_no_stand_in() -> None:
    async def main() -> None:
        scheduler, _ = one_server(1)
        scheduler.add(Lane(8, "strong"))
        await asyncio.gather(*(hold(scheduler, (n, 0), 1.0) for n in range(3)))
        assert asyncio.get_running_loop().time() == 3.0
        await asyncio.gather(*(hold(scheduler, (n, 0), 1.0, Seat("strong")) for n in range(8)))
        assert asyncio.get_running_loop().time() == 4.0

    on_virtual_time(main())


def test_server_that_leaves_hands_its_calls_on() -> None:
    async def main() -> None:
        scheduler, lanes = several(1, 1)
        seat = Seat(lane=lanes[0])
        calls = [asyncio.create_task(hold(scheduler, (n, 0), 1.0, seat)) for n in range(6)]
        await asyncio.sleep(0.5)
        scheduler.remove(lanes[0])
        await asyncio.gather(*calls)
        assert scheduler.lanes == [lanes[1]]
        assert scheduler.statistics().ready == 0

    on_virtual_time(main())
