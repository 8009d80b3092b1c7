"""Every method against a real vLLM: two questions each, without an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from medagents_async import methods
from tests.real.conftest import RealServer
from tests.support.command import Run

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]

pytestmark = pytest.mark.real

#: The tiny model writes up to every limit and never agrees; at temperature 0 it may write nothing
#: but blanks.
SETTINGS = {"rounds": "1", "turns": "1", "decision_temperatures": "1.0"}


@pytest.mark.parametrize("name", sorted(methods.every_method()))
def test_two_questions(vllm: RealServer, run: MakeRun, rows: Rows, name: str) -> None:
    job = run(vllm.url, rows(2))
    known = methods.find(name).defaults
    few = [
        word
        for parameter, value in SETTINGS.items()
        if parameter in known
        for word in ("--set", f"{parameter}={value}")
    ]
    sampled = ("--temperature", "1", "--max-tokens", "24")
    result = job("--method", name, *sampled, *few, env=vllm.env)
    assert result.code == 0, result.err
    assert {row["status"] for row in job.rows()} <= {"ok", "unparsed"}
    assert all(row["usage"]["completion_tokens"] > 0 for row in job.rows())


def test_samples_of_one_request(vllm: RealServer, run: MakeRun, rows: Rows) -> None:
    job = run(vllm.url, rows(2))
    options = ("--method", "self-consistency", "--set", "one_request=true", "--max-tokens", "24")
    assert job(*options, env=vllm.env).code == 0
    for row in job.rows():
        (step,) = row["trace"]
        assert len(set(step["replies"])) == 5  # each has a seed of its own
