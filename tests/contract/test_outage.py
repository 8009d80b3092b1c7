"""A server that stops in the middle of a run, each way that vLLM has of stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run, finish, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
WAYS = ["stop", "kill", "freeze"]


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


@pytest.mark.parametrize("way", WAYS)
def test_run_goes_on_when_the_server_comes_back(run: MakeRun, rows: Rows, way: str) -> None:
    with running(agreeing) as simulator:
        undisturbed = run(simulator.url, rows(4), "undisturbed")
        assert undisturbed().code == 0
    with running(agreeing, latency=0.1) as simulator:
        job = run(simulator.url, rows(4))
        # No try of its own is left to a call: an outage must cost it none.
        process = job.start("--concurrency", "6", "--retries", "1")
        until(lambda: simulator.in_flight == 6 and len(simulator.requests) > 20)
        simulator.call(getattr(simulator, way)())
        simulator.call(simulator.start())
        assert finish(process).code == 0
    assert job.canonical() == undisturbed.canonical()


@pytest.mark.parametrize("way", WAYS)
def test_run_ends_when_the_server_stays_away_and_can_be_resumed(
    run: MakeRun, rows: Rows, way: str
) -> None:
    with running(agreeing) as simulator:
        undisturbed = run(simulator.url, rows(4), "undisturbed")
        assert undisturbed().code == 0
    with running(agreeing, latency=0.1) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start("--concurrency", "6", "--server-grace", "0.5")
        until(lambda: simulator.in_flight == 6 and len(simulator.requests) > 20)
        simulator.call(getattr(simulator, way)())
        result = finish(process)
        assert result.code == 3
        assert "resume" in result.err
        assert "Unclosed" not in result.err
        before = len({request.request_id for request in simulator.requests})
        simulator.call(simulator.start())
        assert job("--concurrency", "6").code == 0
        again = len(simulator.requests) - before
    assert job.canonical() == undisturbed.canonical()
    assert again == 4 * 18 - before + 6  # only what was in flight is sent a second time


def test_server_that_is_late_is_waited_for(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        simulator.call(simulator.stop())
        job = run(simulator.url, rows(1))
        process = job.start("--wait-server", "60")
        simulator.call(simulator.start())
        assert finish(process).code == 0
