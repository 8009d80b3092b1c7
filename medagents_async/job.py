"""One batch run, from its options to its summary."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import httpx
from rich.console import Console

from medagents_async.engine.ask import Pool
from medagents_async.engine.client import Client, check_address, open_pair
from medagents_async.engine.dialect import Dialect, knows_structured_outputs
from medagents_async.engine.fleet import Fleet, described
from medagents_async.engine.identity import Identity
from medagents_async.engine.journal import Journal
from medagents_async.engine.lanes import FIRST, Lane, Seat
from medagents_async.engine.retry import Attempts, Retrying
from medagents_async.engine.runner import Runner, Service, Totals
from medagents_async.engine.scheduler import Scheduler
from medagents_async.engine.servers import Server
from medagents_async.engine.sink import Key, Sink
from medagents_async.engine.steering import MOST
from medagents_async.errors import OutputFailed, RunStopped
from medagents_async.manifest import Manifest
from medagents_async.plan import Job, Plan, plan
from medagents_async.process import affordable, stopping_on_signals
from medagents_async.reporting.progress import Progress
from medagents_async.types import Item

log = logging.getLogger(__name__)

#: Servers that may join later, for whose calls `auto` leaves room.
JOINERS = 8


Transports = tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]
#: Watches a run from beside it, until cancelled.
Observer = Callable[[Scheduler, Fleet, Totals], Coroutine[Any, Any, None]]


async def run(
    job: Job,
    console: Console,
    *,
    connect: Callable[[str], Transports] = open_pair,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Run `job` to its end and return its summary; progress goes to `console`.

    `connect` gives a server's transports for calls and for probes. Raises UsageError before
    anything is sent, RunStopped when the run ended early.
    """
    planned = plan(job)
    addresses = planned.addresses()
    async with AsyncExitStack() as connections:

        def make(url: str, lane: Lane) -> Server:
            check_address(url, job.api_key)  # before anything is opened
            return Server(
                Client(*connect(url), url, job.api_key),
                scheduler,
                lane,
                timeout=job.timeout,
                grace=job.server_grace,
                accept_change=job.accept_server_change,
            )

        auto = job.concurrency == "auto"
        wanted = MOST * len(addresses) if job.concurrency == "auto" else job.concurrency
        if auto and job.servers_file:
            wanted += MOST * JOINERS
        most = affordable(wanted)
        largest = max(Counter(address.pool for address in addresses).values())
        share = min(MOST, most) if auto else math.ceil(most / largest)
        scheduler = Scheduler(job.rate, most)
        fleet = Fleet(scheduler, make, None if auto else share, share, job.servers_file)
        connections.push_async_callback(fleet.close)
        await fleet.gather(addresses, job.wait_server)
        for identity in fleet.identities.values():
            planned.check_room(identity)
        return await _run(planned, scheduler, fleet, console, observers)


async def _run(
    planned: Plan,
    scheduler: Scheduler,
    fleet: Fleet,
    console: Console,
    observers: Sequence[Observer],
) -> dict[str, Any]:
    job = planned.job
    models = {pool: identity.model for pool, identity in fleet.identities.items()}
    manifest = Manifest(job.output, planned.configuration(models))
    before = manifest.check()
    only = before.get("system_fingerprint")
    fleet.seen_before = before.get("system_fingerprints") or ({"": only} if only else {})
    journal = Journal(job.output.with_name(job.output.name.removesuffix(".jsonl") + ".journal"))
    totals = Totals(expected=len(planned.source) * job.repeats)
    sink = Sink(
        job.output,
        planned.method.name,
        job.trace,
        lambda key: planned.source.wants(key[0]) and key[1] < job.repeats,
        partial(totals.add, here=False),
    )
    retrying = Retrying(scheduler, fleet.at, job.retries)
    services: list[Service] = [
        fleet.watch,
        Progress(totals, scheduler, fleet, console).keep_drawing,
    ]
    services.extend(partial(observe, scheduler, fleet, totals) for observe in observers)
    runner = Runner(
        planned.method.solver(planned.parameters),
        planned.desk(_pools(fleet, retrying), retrying.complete),
        scheduler,
        journal,
        sink,
        totals,
        job.drain,
        services,
    )
    clock = asyncio.get_running_loop().time
    begun = clock()
    stopped: BaseException | None = None
    try:
        manifest.start(_arguments(job), _facts(planned, fleet))
        with stopping_on_signals(runner.stop):
            await runner.run(_owed(planned, sink.done))
        if totals.done < totals.expected:
            raise RunStopped(
                f"{totals.expected - totals.done} questions have no outcome: did {job.input} "
                "change while it was read? Run the same command again"
            )
        if job.selection.whole:
            journal.clear()
    except BaseException as error:
        stopped = error
        raise
    finally:
        result = {
            "output": str(job.output),
            **summary(totals, clock() - begun),
            "most_in_flight": scheduler.statistics().peak,
        }
        if isinstance(stopped, RunStopped):
            stopped.summary = result
        _finish(sink, manifest, result, fleet, stopped)
    return result


def _finish(
    sink: Sink,
    manifest: Manifest,
    result: Mapping[str, Any],
    fleet: Fleet,
    stopped: BaseException | None,
) -> None:
    """Close OUT and say in the manifest how it ended, without hiding why it did."""
    why = None if stopped is None else str(stopped) or type(stopped).__name__
    try:
        try:
            sink.close()
        finally:
            seen = fleet.fingerprints
            first = next(iter(seen.values()), None)
            manifest.end(result, system_fingerprint=first, system_fingerprints=seen, stopped=why)
    except OutputFailed:
        if stopped is None:
            raise


def _owed(planned: Plan, done: AbstractSet[Key]) -> Iterator[tuple[Item, int]]:
    """The (item, repeat) pairs that OUT does not have yet."""
    repeats = range(planned.job.repeats)
    finished = (
        identity
        for identity, repeat in done
        if repeat == 0 and (len(repeats) == 1 or all((identity, n) in done for n in repeats))
    )
    for item in planned.source.items(finished):
        for repeat in repeats:
            if (item.question.id, repeat) not in done:
                yield item, repeat


def summary(totals: Totals, seconds: float) -> dict[str, Any]:
    """What `--json` prints and the manifest keeps. Errors and unparsed replies count as wrong."""
    accuracy = totals.answered_right / totals.with_key if totals.with_key else None
    return {
        "questions": totals.expected,
        "done": totals.done,
        **totals.counts,
        "correct": totals.answered_right,
        "accuracy": accuracy,
        **totals.sums,
        "seconds": round(seconds, 3),
        "questions_per_hour": round(totals.here / seconds * 3600, 1) if seconds else None,
    }


def _facts(planned: Plan, fleet: Fleet) -> dict[str, Any]:
    first = fleet.servers[0]
    return {
        "input": str(planned.job.input),
        "preset": planned.preset,
        "rows": planned.source.rows,
        "skipped_rows": planned.source.skipped,
        "server": first.name,
        "server_version": first.identity.version if first.identity else None,
        "max_model_len": first.identity.max_model_len if first.identity else None,
        "servers": described(fleet.servers),
        "system_fingerprints": fleet.fingerprints,
    }


def _pools(fleet: Fleet, retrying: Retrying) -> dict[str, Pool]:
    """Every pool's model, and how it is told of a constraint: tried out where that is not known."""

    def pool(name: str, identity: Identity) -> Pool:
        if knows_structured_outputs(identity.version):
            return Pool(identity.model, Dialect())
        seat = Seat(name)
        return Pool(
            identity.model, Dialect(lambda call: retrying.complete(call, FIRST, seat, Attempts()))
        )

    return {name: pool(name, identity) for name, identity in fleet.identities.items()}


def _arguments(job: Job) -> Mapping[str, Any]:
    """The options as given, without the key."""
    values = asdict(job)
    del values["api_key"]
    return values
