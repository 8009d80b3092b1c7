"""`--concurrency auto`, constraints that servers know by other names, and fields of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
CONSTRAINTS = {"structured_outputs", "guided_choice", "response_format"}


def choice(body: dict[str, Any], name: str) -> list[str] | None:
    """What a server that knows just `name` lets a reply be."""
    if name not in body:
        return None
    found: Any = body[name]
    if name == "structured_outputs":
        return list(found["choice"])
    return list(found if name == "guided_choice" else found["json_schema"]["schema"]["enum"])


@pytest.mark.parametrize("known", ["guided_choice", "response_format"])
@pytest.mark.parametrize("strict", [False, True])
def test_constraint_is_found_by_the_name_that_the_server_knows(
    run: MakeRun, rows: Rows, known: str, strict: bool
) -> None:
    """A server that ignores other names in silence, or refuses them, is asked once."""

    def script(request: Request) -> Reply:
        strange = sorted(CONSTRAINTS & request.body.keys() - {known})
        if strange and strict:
            return Reply(status=400, error=f"Unrecognized request argument: {strange[0]}")
        allowed = choice(dict(request.body), known)
        if allowed:
            return Reply(f'"{allowed[0]}"' if known == "response_format" else allowed[0])
        return plausible(Request({**request.body, "structured_outputs": None}, request.stage))

    with running(script, version="0.10.0") as simulator:
        job = run(simulator.url, rows(4))
        assert job("--set", "constrain=true").code == 0
        used = {
            name
            for request in simulator.requests
            if request.stage in ("vote", "decide")
            for name in CONSTRAINTS & request.body.keys()
        }
        probes = [request for request in simulator.requests if request.stage == "probe"]
    assert used == {known}
    assert len(probes) == 1 + ["structured_outputs", "guided_choice", "response_format"].index(
        known
    )
    for row in job.rows():
        assert row["prediction"] == "A"
        assert set(row["detail"]["votes"][0].values()) == {"yes"}


def test_server_that_knows_no_constraint_gets_none(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        if request.stage == "vote":
            return Reply("YES")
        bare = {name: value for name, value in request.body.items() if name not in CONSTRAINTS}
        return plausible(Request(bare, request.stage))

    with running(script, version="another") as simulator:
        job = run(simulator.url, rows(2))
        result = job("--set", "constrain=true")
        asked = [request for request in simulator.requests if request.stage != "probe"]
    assert result.code == 0
    assert not any(CONSTRAINTS & request.body.keys() for request in asked)
    assert "cannot constrain" in result.err


def test_fields_of_ones_own_go_into_every_request(run: MakeRun, rows: Rows) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 20}
    with running() as simulator:
        job = run(simulator.url, rows(1))
        assert job("--extra-body", orjson.dumps(extra).decode()).code == 0
        assert all(extra.items() <= request.body.items() for request in simulator.requests)
        again = job("--extra-body", "{}")
    assert again.code == 2
    assert "extra_body" in again.err


@pytest.mark.parametrize("extra", ["[1]", "{", '{"seed": 1}', '{"messages": []}'])
def test_fields_that_are_decided_elsewhere(run: MakeRun, rows: Rows, extra: str) -> None:
    with running() as simulator:
        assert run(simulator.url, rows(1))("--extra-body", extra).code == 2
        assert not simulator.requests


def test_auto_stays_within_what_the_server_runs(run: MakeRun, rows: Rows) -> None:
    """The server's own queue says when to stop: here it runs 8 and 200 calls are ready."""
    with running(latency=0.02, max_num_seqs=8) as simulator:
        job = run(simulator.url, rows(150))
        result = job("--json")
    assert result.code == 0
    summary = orjson.loads(result.out)
    assert summary["ok"] == 150
    assert 8 <= summary["most_in_flight"] <= 128


def test_auto_backs_off_where_the_server_refuses(run: MakeRun, rows: Rows) -> None:
    with running(latency=0.02, max_num_seqs=4, max_queued=8) as simulator:
        job = run(simulator.url, rows(40))
        result = job("--retries", "20")
    assert result.code == 0
    assert {row["status"] for row in job.rows()} == {"ok"}


def test_samples_of_one_request(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(3))
        code = job("--method", "self-consistency", "--set", "one_request=true").code
        requests = simulator.requests
    assert code == 0
    assert [request.body["n"] for request in requests if request.sample == 0] == [5] * 3
    for row in job.rows():
        (step,) = row["trace"]
        assert len(step["replies"]) == 5
        assert step["reply"] == step["replies"][0]
        assert sum(row["detail"]["votes"].values()) + row["detail"]["invalid"] == 5
