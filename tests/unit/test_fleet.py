"""Several servers of one run, in simulated time: who gets what, who leaves, who is sick."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from medagents_async.engine.fleet import Address
from medagents_async.engine.scheduler import Scheduler
from medagents_async.errors import ServerGone
from medagents_async.simulator import Reply, Request, Service, plausible
from tests.support.command import Run
from tests.support.fleets import World, agreeing


def test_server_that_leaves_and_dies_holds_up_nobody(tmp_path: Path) -> None:
    a, b = Service(agreeing, latency=20.0), Service(agreeing, latency=1.0)
    world = World(tmp_path, {"a": a, "b": b})
    world.write_file("ab")

    async def story(_: Scheduler) -> None:
        await asyncio.sleep(5)
        world.write_file("b")
        await asyncio.sleep(10)
        a.state = "stopped"

    summary = world.run(40, story, servers_file=world.file, concurrency=8)
    assert summary["ok"] == 40


def test_one_url_may_be_in_the_file_and_have_a_name(tmp_path: Path) -> None:
    a = Service(agreeing, latency=1.0, model=["base", "lora"])
    world = World(tmp_path, {"a": a, "b": Service(agreeing, latency=1.0, model=["base"])})
    world.write_file("ab")

    async def story(_: Scheduler) -> None:
        await asyncio.sleep(5)
        world.write_file("b")

    judge = Address(world.url("a"), "lora", "judge")
    summary = world.run(
        30,
        story,
        servers_file=world.file,
        model="base",
        named_servers=(judge,),
        settings={"decide.server": "judge"},
        method="medagents",
        concurrency=12,
    )
    assert summary["ok"] == 30
    assert all(r.body["model"] == "lora" for r in a.requests if r.stage == "decide")


@pytest.mark.parametrize("retries", [1, 2, 5])
@pytest.mark.parametrize("probe", ["refused too", "answered"])
def test_sick_server_takes_no_question_from_a_healthy_one(
    tmp_path: Path, retries: int, probe: str
) -> None:
    """It fails at once, so that it always has room."""

    def sick(request: Request) -> Reply:
        if request.stage == "probe" and probe == "answered":
            return Reply("pong")
        return Reply(status=500, error="CUDA error")

    world = World(tmp_path, {"a": Service(agreeing, latency=2.0), "b": Service(sick, latency=0.01)})
    summary = world.run(200, concurrency=16, retries=retries)
    assert (summary["ok"], summary["error"]) == (200, 0)
    assert summary["seconds"] < 2.2 * 200 * 2.0 / 8  # hardly longer than the healthy one alone


@pytest.mark.parametrize("wanted", [1, 2, 5, 10])
def test_concurrency_is_over_all_servers(tmp_path: Path, wanted: int) -> None:
    world = World(tmp_path, {name: Service(agreeing, latency=1.0) for name in "abcd"})
    assert world.run(40, concurrency=wanted)["most_in_flight"] == wanted


def test_servers_that_join_do_not_raise_a_number_that_was_given(tmp_path: Path) -> None:
    world = World(tmp_path, {name: Service(agreeing, latency=1.0) for name in "abcd"})
    world.write_file("a")

    async def story(_: Scheduler) -> None:
        await asyncio.sleep(3)
        world.write_file("abcd")

    summary = world.run(200, story, servers_file=world.file, concurrency=8)
    assert summary["most_in_flight"] == 8
    assert all(server.arrivals for server in world.servers.values())


def test_pool_that_is_seldom_asked_costs_the_other_nothing(tmp_path: Path) -> None:
    def seconds(folder: Path, **options: Any) -> float:
        folder.mkdir()
        world = World(folder, {name: Service(agreeing, latency=1.0) for name in "aj"})
        summary = world.run(
            30, base_urls=[world.url("a")], method="medagents", concurrency=32, **options
        )
        return float(summary["seconds"])

    alone = seconds(tmp_path / "alone")
    judged = seconds(
        tmp_path / "judged",
        named_servers=(Address("http://j/v1", None, "judge"),),
        settings={"decide.server": "judge"},
    )
    assert judged < 1.1 * alone


def test_bottleneck_is_never_without_work(tmp_path: Path) -> None:
    """A slow judge has the votes; while they wait for it, new questions go on being admitted."""
    judge = Service(agreeing, latency=3.0, max_num_seqs=8)
    world = World(tmp_path, {"a": Service(agreeing, latency=0.5), "j": judge})
    questions = 60
    summary = world.run(
        questions,
        base_urls=[world.url("a")],
        named_servers=(Address(world.url("j"), None, "judge"),),
        settings={"vote.server": "judge"},
        method="medagents",
        concurrency=16,
    )
    assert summary["ok"] == questions
    assert summary["seconds"] < 1.15 * questions * 7 * 3.0 / 8


@pytest.mark.parametrize("written", ["ab", ""])
def test_file_may_change_while_the_first_server_starts(tmp_path: Path, written: str) -> None:
    a = Service(agreeing, latency=1.0)
    world = World(tmp_path, {"a": a, "b": Service(agreeing, latency=1.0)})
    world.write_file("a")
    a.state = "stopped"
    connect = world.connect

    def later(url: str) -> object:
        if world.opened == 0:
            loop = asyncio.get_running_loop()
            loop.call_later(10, world.write_file, written)
            loop.call_later(30, setattr, a, "state", "up")
        return connect(url)

    world.connect = later  # type: ignore[method-assign, assignment]  # a story before the run
    summary = world.run(100, servers_file=world.file, concurrency=2, wait_server=600.0)
    assert summary["ok"] == 100
    assert bool(world.servers["b"].arrivals) is (written == "ab")


def test_last_server_leaves_only_when_another_can_take_over(tmp_path: Path) -> None:
    b = Service(agreeing, latency=1.0)
    b.state = "stopped"
    world = World(tmp_path, {"a": Service(agreeing, latency=1.0), "b": b})
    world.write_file("a")

    async def story(_: Scheduler) -> None:
        await asyncio.sleep(5)
        world.write_file("b")
        await asyncio.sleep(30)
        b.state = "up"

    summary = world.run(200, story, servers_file=world.file, concurrency=4, server_grace=60.0)
    assert summary["ok"] == 200
    assert b.arrivals > 10


def test_server_in_a_file_may_be_missing_at_the_start(tmp_path: Path) -> None:
    b = Service(agreeing)
    b.state = "stopped"
    world = World(tmp_path, {"a": Service(agreeing), "b": b})
    world.write_file("ab")
    assert world.run(5, servers_file=world.file)["ok"] == 5


def test_all_gone_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, {name: Service(agreeing, latency=1.0) for name in "ab"})

    async def story(_: Scheduler) -> None:
        await asyncio.sleep(3)
        for server in world.servers.values():
            server.state = "stopped"

    with pytest.raises(ServerGone):
        world.run(60, story, concurrency=4, server_grace=30.0)


def test_field_of_ones_own_that_is_refused_is_asked_once(tmp_path: Path) -> None:
    """It has the name of a constraint that could be left out; one's own cannot."""

    def script(request: Request) -> Reply:
        if "logit_bias" in request.body:
            return Reply(status=400, error="Unknown parameter: guided_choice, logit_bias")
        return agreeing(request)

    a = Service(script)
    summary = World(tmp_path, {"a": a}).run(1, extra_body={"logit_bias": {"guided_choice": 1}})
    assert summary["error"] == 1
    assert a.arrivals == 1


def test_constraint_that_one_call_cannot_have_stays_for_the_others(tmp_path: Path) -> None:
    def script(request: Request) -> Reply:
        if request.question_id == "q7" and "structured_outputs" in request.body:
            return Reply(status=400, error="structured_outputs: the grammar is too complex")
        return agreeing(request)

    rows = []
    for concurrency in (1, 64):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        world = World(folder, {"a": Service(script, latency=(0.5, 2.0))})
        settings = {"constrain": "true"}
        world.run(20, settings=settings, concurrency=concurrency, method="medagents", within=1e6)
        rows.append([Run.steady(row) for row in world.rows()])
    assert rows[0] == rows[1]


def test_garbled_answer_to_the_probe_says_nothing(tmp_path: Path) -> None:
    asked = Counter[str]()

    def script(request: Request) -> Reply:
        asked[request.stage] += 1
        if request.stage == "probe" and asked["probe"] == 1:
            return Reply(fault="garbage")
        if request.stage == "vote":
            return Reply("YES")
        return plausible(request)

    world = World(tmp_path, {"a": Service(script, version="0.11.0")})
    world.run(2, settings={"constrain": "true"}, method="medagents")
    assert all(
        "structured_outputs" in step["request"]
        for row in world.rows()
        for step in row["trace"]
        if step["stage"] == "vote"
    )
