"""Faults that users of such evaluators reported, P30 to P37 and P57: requests and bodies.

Each test runs the real command against a server that is strict in its own way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from medagents_async.types import STAGES
from tests.support.command import Run, finish

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]

CONSTRAINTS = {"structured_outputs", "guided_choice", "guided_json", "response_format"}
NO_SYSTEM = "System role not supported"
NO_ALTERNATION = "Conversation roles must alternate user/assistant/user/assistant/..."
SENTINEL = "S3NTINEL"


def agreeing(request: Request) -> Reply:
    return Reply("YES") if request.stage == "vote" else plausible(request)


# --- every request of every preset and layout -----------------------------------------------------

VARIANTS = {
    "paper": ["--preset", "paper"],
    "code": ["--preset", "code"],
    "shared-prefix": ["--set", "layout=shared-prefix", "--set", "constrain=yes"],
    "all-advice": ["--set", "accumulate_advice=yes", "--temperature", "0.3", "--top-p", "0.9"],
    "summary": ["--set", "stages=summary"],
    "analysis": ["--set", "stages=analysis"],
    "cot": ["--set", "stages=cot", "--temperature", "0.5"],
    "direct": ["--set", "stages=direct", "--max-tokens", "16"],
}


def strict(request: Request) -> Reply:
    """What a strict chat template takes; one expert of each round objects."""
    roles = [role for role, _ in request.contents]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    turns = ["user", "assistant"] * len(spoken)
    if spoken != turns[: len(spoken)] or spoken[-1:] != ["user"]:
        return Reply(status=400, error=NO_ALTERNATION)
    if request.stage == "vote":
        return Reply("NO" if request.n % 7 == 0 else "YES")
    return plausible(request)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Request]]]:
    """Every request by variant, of questions that hold sentinels wherever gold may hide."""
    leaks = ["exp", "explanation", "LONG_ANSWER", "answer_rationale", "rationale", "answer"]
    leaks += ["subject", "cop", "final_decision", "reasoning_required_pred"]
    question = {
        "question": "A man has oedema. What helps?",
        "context": "He was given thiazides before.",
        "options": {"A": "Aspirin", "B": "Heparin", "C": "Furosemide"},
        "answer_idx": "C",
        **dict.fromkeys(leaks, SENTINEL),
        "meta": {"source": SENTINEL},
        "CONTEXTS": [SENTINEL],
    }
    with running(strict) as simulator:
        processes = {}
        for name, options in VARIANTS.items():
            folder = tmp_path_factory.mktemp(name)
            job = Run(folder, simulator.url, [{**question, "id": name}])
            processes[name] = job.start(*options)
        for process in processes.values():
            assert finish(process).code == 0
        requests = {name: list[Request]() for name in VARIANTS}
        for request in simulator.requests:
            requests[request.question_id].append(request)
        yield requests


def test_every_stage_is_looked_at(asked: dict[str, list[Request]]) -> None:
    stages = {request.stage for requests in asked.values() for request in requests}
    recruits = ["recruit_question", "recruit_option"]
    analyses = ["analyse_question", "analyse_option", "summarise"]
    assert stages == {*recruits, *analyses, "vote", "advise", "revise", "decide"} < set(STAGES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_p32_roles_alternate_from_user_to_user(
    asked: dict[str, list[Request]], variant: str
) -> None:
    assert asked[variant]
    for request in asked[variant]:
        assert [role for role, _ in request.contents] in (["system", "user"], ["user"])
        assert all(text.strip() for _, text in request.contents)


@pytest.mark.parametrize("variant", VARIANTS)
def test_p35_sampling_is_always_explicit(asked: dict[str, list[Request]], variant: str) -> None:
    for request in asked[variant]:
        body = request.body
        assert {"model", "temperature", "top_p", "max_tokens"} <= set(body)
        assert None not in body.values()
        assert ("seed" in body) is (body["temperature"] > 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_p57_nothing_that_tells_the_answer_is_sent(
    asked: dict[str, list[Request]], variant: str
) -> None:
    for request in asked[variant]:
        assert SENTINEL.encode() not in request.raw
        assert SENTINEL not in "".join(request.headers.values())


# --- constraints on replies -----------------------------------------------------------------------


def test_p30_plain_mode_needs_no_constraint(run: MakeRun, rows: Rows) -> None:
    """A server that knows none of their names; votes stay unclear, which must not cost more."""

    def script(request: Request) -> Reply:
        unknown = sorted(CONSTRAINTS & request.body.keys())
        if unknown:
            return Reply(status=400, error=f"Extra inputs are not permitted: {unknown[0]}")
        return Reply("Perhaps.") if request.stage == "vote" else plausible(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(1))
        assert job("--set", "rounds=1").code == 0
    (row,) = job.rows()
    assert row["status"] == "ok"
    assert set(row["detail"]["votes"][0].values()) == {"unclear"}


def test_p30_constraint_has_the_present_name(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(1))
        assert job("--set", "constrain=yes").code == 0
        for request in simulator.requests:
            letters = list(rows(1)[0]["options"])
            allowed = {"vote": ["YES", "NO"], "decide": letters}.get(request.stage)
            expected = {"structured_outputs": {"choice": allowed}} if allowed else {}
            assert {name: request.body.get(name) for name in expected} == expected
            assert CONSTRAINTS & request.body.keys() == expected.keys()


# --- templates without a system role --------------------------------------------------------------


def test_p31_system_role_is_given_up_once_for_the_whole_run(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        return Reply(status=400, error=NO_SYSTEM) if request.system else agreeing(request)

    with running(script) as simulator:
        job = run(simulator.url, rows(3))
        result = job("--concurrency", "1")
        refused = [request for request in simulator.requests if request.system]
        accepted = [request for request in simulator.requests if not request.system]
    assert result.code == 0
    assert {row["status"] for row in job.rows()} == {"ok"}
    # Both calls of the first question were made before the first refusal came, and no other.
    assert {request.stage for request in refused} == {"recruit_question", "recruit_option"}
    assert len(refused) == 2
    system, user = refused[0].system, refused[0].user
    assert any(r.user.startswith(system) and user in r.user for r in accepted)
    assert result.err.count("WARNING") == 1
    assert "system" in result.err


# --- the context's length, and refusals -----------------------------------------------------------


@pytest.mark.parametrize("options", [["--max-tokens", "4096"], []])
def test_p33_limit_that_leaves_no_room_is_refused_at_the_start(
    run: MakeRun, rows: Rows, options: list[str]
) -> None:
    with running(agreeing, max_model_len=4096) as simulator:
        job = run(simulator.url, rows(1))
        result = job(*options, "--set", "report_tokens=4096")
        assert simulator.requests == []
    assert result.code == 2
    assert "no room" in " ".join(result.err.split())


REFUSALS = {
    "P34-misleading": Reply(status=400, error="max_tokens must be at least 1, got -870."),
    "P34-plain-text": Reply(status=400, body=b"Bad Request: prompt too long"),
    "P34-detail": Reply(status=422, body=b'{"detail":"prompt too long"}'),
    "P34-error-text": Reply(status=400, body=b'{"error":"prompt too long"}'),
    "P34-other-json": Reply(status=413, body=b'[{"msg":"prompt too long"}]'),
}


def test_p33_p34_refusals_are_kept_in_the_record_and_not_retried(run: MakeRun) -> None:
    def script(request: Request) -> Reply:
        return REFUSALS.get(request.question_id, Reply("Option: A"))

    options = {"A": "Aspirin", "B": "Heparin"}
    questions = [
        {"id": case, "question": "What helps?", "options": options}
        for case in [*REFUSALS, "P33-longer-than-context", "short"]
    ]
    questions[-2]["question"] = "oedema " * 5000
    with running(script, max_model_len=4096) as simulator:
        job = run(simulator.url, questions)
        assert job("--set", "stages=direct").code == 1
        sent = Counter(request.question_id for request in simulator.requests)
        assert all(text.strip() for request in simulator.requests for _, text in request.contents)
    assert set(sent.values()) == {1}
    errors = {row["id"]: row["error"] for row in job.rows()}
    assert errors.pop("short") is None
    assert {error["kind"] for error in errors.values()} == {"refused"}
    assert "maximum context length is 4096" in errors.pop("P33-longer-than-context")["message"]
    assert "got -870" in errors.pop("P34-misleading")["message"]
    for error in errors.values():
        assert "prompt too long" in error["message"]


# --- bodies ---------------------------------------------------------------------------------------


def test_p36_same_bytes_at_concurrency_1_and_256(run: MakeRun, rows: Rows) -> None:
    """Votes are mixed and arrive in any order."""
    seen = []
    for concurrency in ("1", "256"):
        with running(latency=(0.0, 0.004)) as simulator:
            job = run(simulator.url, rows(3), concurrency)
            assert job("--concurrency", concurrency).code == 0
            seen.append(job.canonical())
    assert seen[0] == seen[1]


NUMBERS = {
    "P37-nan": (b"NaN", b"NaN"),
    "P37-infinity": (b"[-Infinity,Infinity]", b"7"),
    "P37-overflow": (b"[-1e999]", b"1e999"),
}


def test_p37_numbers_that_json_does_not_have(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        logprobs, tokens = NUMBERS[request.question_id]
        choice = b'{"message":{"content":"Option: B"},"logprobs":' + logprobs + b"}"
        return Reply(
            body=b'{"choices":[' + choice + b'],"usage":{"prompt_tokens":' + tokens + b"}}"
        )

    questions = [{**row, "id": case} for row, case in zip(rows(3), NUMBERS, strict=True)]
    with running(script) as simulator:
        job = run(simulator.url, questions)
        result = job("--set", "stages=direct", "--json")
    assert result.code in (0, 1)
    # orjson reads strict JSON only, so what it can read has no bare NaN.
    assert orjson.loads(result.out)["done"] == job.manifest()["totals"]["done"] == len(NUMBERS)
    found = {row["id"]: row for row in job.rows()}
    overflow = found.pop("P37-overflow")
    assert [row["prediction"] for row in found.values()] == ["B", "B"]
    # A count that no float can hold may cost the reply, but as what it is.
    assert overflow["prediction"] == "B" or overflow["error"]["kind"] == "malformed"
