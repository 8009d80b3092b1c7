"""Admission: one task a question, as many as keep the slots busy and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from medagents_async.engine.ask import Asker, Desk
from medagents_async.engine.journal import Journal
from medagents_async.engine.scheduler import Promise, Scheduler
from medagents_async.engine.sink import SUMMED, TOKENS, Sink
from medagents_async.errors import CallError, Interrupted, MedAgentsError
from medagents_async.fan_out import first_error
from medagents_async.types import Decision, Item, Outcome, Solve, Status

log = logging.getLogger(__name__)

#: What goes on beside the questions until they are done.
Service = Callable[[], Coroutine[Any, Any, None]]

SETTLING_TURNS = 4  # of the event loop: a task, its subtasks, their first calls, the queue


@dataclass
class Totals:
    """Running sums over the rows of OUT, those of earlier runs included."""

    expected: int = 0
    done: int = 0
    here: int = 0  # done by this run
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("ok", "unparsed", "error"), 0)
    )
    answered_right: int = 0
    with_key: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*SUMMED, *TOKENS), 0))

    def add(self, row: dict[str, Any], *, here: bool = True) -> None:
        self.done += 1
        self.here += here
        self.counts[row["status"]] += 1
        correct = row.get("correct")
        self.with_key += correct is not None
        self.answered_right += correct is True
        usage, sums = row["usage"] or {}, self.sums
        for name in SUMMED:
            sums[name] += row.get(name) or 0  # outputs of earlier versions lack some
        for name in TOKENS:
            sums[name] += usage.get(name, 0)


@dataclass
class Runner:
    """Runs `solve` over items; writes a row for each outcome and adds it to `totals`."""

    solve: Solve
    desk: Desk
    scheduler: Scheduler
    journal: Journal
    sink: Sink
    totals: Totals
    drain_s: float
    services: Sequence[Service] = ()
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Admit and send nothing more; calls in flight get `drain_s` seconds to finish."""
        self._stop.set()

    async def run(self, work: Iterable[tuple[Item, int]]) -> None:
        """Every (item, repeat) of `work`, read as slots become free.

        Raises RunStopped: Interrupted after `stop`, ServerGone, OutputFailed; and UsageError
        where a prompt template turns out to be unusable. All finished work is on disk.
        """
        try:
            async with asyncio.TaskGroup() as services:
                tasks = [
                    services.create_task(service())
                    for service in (
                        self.scheduler.dispatch,
                        self.sink.keep_synced,
                        self._drain,
                        *self.services,
                    )
                ]
                await self._admit(work)
                for task in tasks:
                    task.cancel()
        except* MedAgentsError as group:
            raise first_error(group) from None

    async def _admit(self, work: Iterable[tuple[Item, int]]) -> None:
        async with asyncio.TaskGroup() as questions:
            for order, (item, repeat) in enumerate(work):
                await self.scheduler.vacancy()
                first = self.scheduler.promise()
                questions.create_task(self._question(item, repeat, order, first))
                # Its first calls, made by its subtasks, should be in the queue before the next
                # vacancy; one that waits for something else first must not hold up the others.
                # One that asks at once, in no subtask, asks for one call.
                for turn in range(SETTLING_TURNS):
                    await asyncio.sleep(0)
                    if turn == 0 and first.kept:
                        break

    async def _question(self, item: Item, repeat: int, order: int, first: Promise) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        record = self.journal.record(item.question.id, repeat)
        asker = Asker(self.desk, item.question, repeat, order, record, first.keep)
        decision, error = Decision(None), None
        try:
            decision = await self.solve(item.question, asker)
            _check(decision, item)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the run ends
            decision, error = Decision(None), _described(RuntimeError("cancelled itself"), item)
        except (Exception, SystemExit) as raised:
            decision, error = Decision(None), _described(first_error(raised), item)
        finally:
            first.keep()
        status: Status = "error" if error else "ok" if decision.option is not None else "unparsed"
        outcome = Outcome(
            item,
            repeat,
            status,
            decision.option,
            decision.detail,
            error,
            tuple(asker.steps),
            clock() - begun,
        )
        self.totals.add(self.sink.write(outcome))
        record.delete()

    async def _drain(self) -> None:
        await self._stop.wait()
        self.scheduler.stop()
        try:
            async with asyncio.timeout(self.drain_s):
                await self.scheduler.idle()
        except TimeoutError:
            log.warning("gave up calls that were still in flight after %g s", self.drain_s)
        raise Interrupted("interrupted; run the same command again to resume")


def _check(decision: Decision, item: Item) -> None:
    if decision.option is not None and decision.option not in item.question.options:
        raise ValueError(f"the method chose {decision.option!r}, which is no option")
    orjson.dumps(decision.detail)  # a row that cannot be written must fail here, not in the sink


def _described(failure: BaseException, item: Item) -> dict[str, Any]:
    """What OUT says of a failure that ends one question; one that ends the run is raised again."""
    if isinstance(failure, CallError):
        return {"kind": failure.kind, "message": str(failure), "stage": failure.stage}
    if isinstance(failure, MedAgentsError):
        raise failure
    log.error("question %s: the method failed", item.question.id, exc_info=failure)
    message = f"{type(failure).__name__}: {failure}"
    return {"kind": "method", "message": message, "stage": None}
