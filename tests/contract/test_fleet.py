"""Several servers in one run: shares, one that dies, some that join and leave, other models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run, finish, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


def servers_of(job: Run) -> Counter[str]:
    return Counter(step["server"] for row in job.rows() for step in row["trace"])


def test_servers_share_the_calls_and_results_do_not_depend_on_them(
    run: MakeRun, rows: Rows
) -> None:
    with running(agreeing, latency=0.02) as one, running(agreeing, latency=0.02) as other:
        alone, together = run(one.url, rows(12), "alone"), run(one.url, rows(12), "together")
        assert alone("--concurrency", "8").code == 0
        one.call(_reset(one))
        assert together("--concurrency", "16", "--base-url", other.url).code == 0
        most = (one.max_in_flight, other.max_in_flight)
    assert together.canonical() == alone.canonical()
    assert max(most) <= 8
    counts = servers_of(together)
    assert set(counts) == {one.url, other.url}
    assert min(counts.values()) > 12 * 18 / 4
    assert [server["url"] for server in together.manifest()["servers"]] == [one.url, other.url]


async def _reset(simulator: Any) -> None:
    simulator.reset()


def test_question_keeps_its_server_where_that_has_room(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.01) as one, running(agreeing, latency=0.01) as other:
        job = run(one.url, rows(6))
        assert job("--concurrency", "100", "--base-url", other.url).code == 0
    for row in job.rows():
        assert len({step["server"] for step in row["trace"]}) == 1


def test_server_killed_meanwhile_costs_nothing_but_its_share(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.05) as one, running(agreeing, latency=0.05) as other:
        job = run(one.url, rows(30))
        process = job.start("--concurrency", "32", "--base-url", other.url, "--json")
        until(lambda: other.served > 40)
        other.call(other.kill())
        result = finish(process)
        repeated = one.repeated + other.repeated
    assert result.code == 0
    assert orjson.loads(result.out)["ok"] == 30
    assert len({row["id"] for row in job.rows()}) == len(job.rows()) == 30
    assert repeated == 0
    assert "is down" in result.err


def test_run_ends_when_all_servers_are_gone(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, latency=0.05) as one, running(agreeing, latency=0.05) as other:
        job = run(one.url, rows(30))
        process = job.start("--base-url", other.url, "--server-grace", "1")
        until(lambda: other.served > 10)
        other.call(other.kill())
        one.call(one.kill())
        assert finish(process).code == 3
        one.call(one.start())
        other.call(other.start())
        assert job("--base-url", other.url).code == 0
    assert len(job.rows()) == 30


def test_servers_join_and_leave(run: MakeRun, rows: Rows, tmp_path: Path) -> None:
    file = tmp_path / "servers.txt"
    with running(agreeing, latency=0.05) as one, running(agreeing, latency=0.05) as other:
        file.write_text(f"# ours\n{one.url}\n")
        job = run(one.url, rows(120))
        process = job.start("--concurrency", "8", "--servers", str(file))
        until(lambda: one.served > 20)
        file.write_text(f"{one.url}\n{other.url}\n")
        until(lambda: other.served > 20)
        file.write_text(f"{other.url}\n")
        result = finish(process)
    assert result.code == 0
    said = result.err.replace("\n", "")
    assert f"{other.url} has joined" in said
    assert f"{one.url} has left" in said
    assert len(job.rows()) == 120
    assert {step["server"] for step in job.rows()[-1]["trace"]} == {other.url}


def test_servers_of_one_run_must_serve_the_same(run: MakeRun, rows: Rows) -> None:
    with running(model="small") as one, running(model="large") as other:
        result = run(one.url, rows(1))("--base-url", other.url)
    assert result.code == 2
    assert "--server NAME=URL" in result.err


@pytest.mark.parametrize("option", ["nonsense", "=http://127.0.0.1:1/v1", "two words=http://x"])
def test_named_server_that_makes_no_sense(run: MakeRun, rows: Rows, option: str) -> None:
    with running() as simulator:
        assert run(simulator.url, rows(1))("--server", option).code == 2


def test_another_model_for_single_stages(run: MakeRun, rows: Rows) -> None:
    with running(agreeing, model="small") as small, running(agreeing, model="large") as large:
        job = run(small.url, rows(3))
        options = ["--server", f"strong={large.url}#large", "--set", "decide.server=strong"]
        assert job(*options).code == 0
        assert {request.stage for request in large.requests} == {"decide"}
        assert {request.body["model"] for request in large.requests} == {"large"}
        assert "decide" not in {request.stage for request in small.requests}
        assert job(*options[:2]).code == 2  # that would be another configuration
    assert job.manifest()["configuration"]["other_models"] == {"strong": "large"}


@pytest.mark.parametrize("setting", ["decide.server=none", "nonsense.server=strong"])
def test_stage_or_server_that_is_not_there(run: MakeRun, rows: Rows, setting: str) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(1))
        result = job("--server", f"strong={simulator.url}", "--set", setting)
        assert result.code == 2
        assert not simulator.requests


def test_agents_choose_their_server_by_name(run: MakeRun, rows: Rows, tmp_path: Path) -> None:
    method = tmp_path / "panel.py"
    method.write_text(
        "from medagents_async.types import Decision, Prompt\n"
        "async def panel(question, ask):\n"
        "    for n, server in enumerate(('', 'strong')):\n"
        "        reply = await ask('answer', prompt=Prompt('', 'q', 'a'), n=n, server=server)\n"
        "    return Decision('A')\n"
    )
    with running(model="small") as small, running(model="large") as large:
        job = run(small.url, rows(2))
        assert job("--method", f"{method}:panel", "--server", f"strong={large.url}").code == 0
        assert len(large.requests) == len(small.requests) == 2


def test_room_for_thinking_comes_on_top_of_every_limit(run: MakeRun, rows: Rows) -> None:
    with running(agreeing) as simulator:
        plain, thinking = run(simulator.url, rows(1), "plain"), run(simulator.url, rows(1), "more")
        assert plain("--max-tokens", "500").code == 0
        without = {r.request_id: r.body["max_tokens"] for r in simulator.requests}
        assert thinking("--max-tokens", "500", "--reasoning", "2000").code == 0
        more = {r.request_id: r.body["max_tokens"] for r in simulator.requests}
    assert more == {name: limit + 2000 for name, limit in without.items()}
