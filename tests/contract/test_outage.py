"""A server that stops in the middle of a run, each way that vLLM has of stopping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
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
        sent = {request.request_id for request in simulator.requests}
        kept = sum(len(record.read_bytes().splitlines()) for record in job.journal())
        kept += sum(row["calls"] for row in job.rows())
        assert kept >= len(sent) - 6  # only what was in flight can be without a reply
        simulator.reset()
        simulator.call(simulator.start())
        assert job("--concurrency", "6").code == 0
        again = len(simulator.requests)
    assert job.canonical() == undisturbed.canonical()
    assert again == 4 * 18 - kept


@pytest.mark.parametrize("resumed", [False, True])
def test_server_that_comes_back_as_another_ends_the_run(
    run: MakeRun, rows: Rows, resumed: bool
) -> None:
    def script(request: Request) -> Reply:
        return replace(agreeing(request), fingerprint=f"vllm-0.32.0-{seen}")

    seen = "before"
    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        if resumed:
            assert job("--limit", "2").code == 0
            seen = "after"
            result = job()
        else:
            process = job.start("--concurrency", "4")
            until(lambda: len(simulator.requests) > 20)
            seen = "after"
            result = finish(process)
        assert result.code == 3
        assert "vllm-0.32.0-before and is vllm-0.32.0-after" in result.err
        assert job("--accept-server-change").code == 0
    assert job.manifest()["system_fingerprint"] == "vllm-0.32.0-after"
    assert sorted(row["id"] for row in job.rows()) == ["q0", "q1", "q2"]


def test_server_that_comes_back_with_another_model_ends_the_run(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.1) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start("--concurrency", "6")
        until(lambda: simulator.in_flight == 6 and len(simulator.requests) > 20)
        simulator.call(simulator.kill())
        simulator.models = ["another"]
        simulator.call(simulator.start())
        result = finish(process)
    assert result.code == 3
    assert "does not serve 'simulator'" in result.err


@pytest.mark.parametrize("status", [401, 404])
def test_refusal_of_all_calls_ends_the_run_and_of_one_call_that_question(
    run: MakeRun, rows: Rows, status: int
) -> None:
    def script(request: Request) -> Reply:
        strange = request.question_id == "q1" and request.stage == "summarise"
        return Reply(status=status) if strange else agreeing(request)

    with running(script, api_key="sk-right") as simulator:
        job = run(simulator.url, rows(4))
        env = {"MEDAGENTS_API_KEY": "sk-right"}
        assert job(env=env).code == 1
        assert [row["id"] for row in job.rows() if row["status"] == "error"] == ["q1"]
        process = job.start("--repeats", "9", "--concurrency", "4", env=env)
        until(lambda: simulator.in_flight)
        simulator.api_key = "sk-changed"
        simulator.models = ["another"]
        result = finish(process)
    assert result.code == 3
    assert "is not what it was" in result.err


def test_server_that_drains_costs_no_question(run: MakeRun, rows: Rows) -> None:
    """It refuses new calls in good health while it answers old ones, one after the other."""
    old: set[str] = set()
    replaced = threading.Event()

    async def script(request: Request) -> Reply:
        if request.request_id.startswith("probe"):
            replaced.set()  # a new server is there by the time that the run asks for a token
        if request.stage == "analyse_question" and len(old) < 9:
            old.add(request.request_id)
            await asyncio.sleep(len(old))  # the last of them is answered after nine seconds
        elif old and not replaced.is_set():
            return Reply(status=503)
        return agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(6))
        # With fewer tries a call may use them up before the run has made out that all are refused.
        result = job("--concurrency", "16", "--retries", "9")
    assert "refuses every call" in result.err
    assert {row["status"] for row in job.rows()} == {"ok"}
    assert result.code == 0


def test_server_that_is_late_is_waited_for(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        simulator.call(simulator.stop())
        job = run(simulator.url, rows(1))
        process = job.start("--wait-server", "60")
        simulator.call(simulator.start())
        assert finish(process).code == 0
