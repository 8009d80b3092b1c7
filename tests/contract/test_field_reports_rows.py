"""Faults that users of such evaluators reported, P58: rows as people write and publish them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, running
from tests.support.command import Result, Run

TWO = {"A": "one", "B": "two"}
LETTERED = [{"letter": "A", "content": "one"}, {"letter": "B", "content": "two"}]
MEDMCQA = {
    "question": "Which?",
    "cop": 2,
    "opa": "one",
    "opb": "two",
    "opc": "three",
    "opd": "None",
    "exp": "two it is",
    "choice_type": "single",
}

#: The row, the options that reach the prompt, the answer that it is scored by.
ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, str], str | None]] = {
    "P58-plain": ({"options": TWO, "answer": "B"}, TWO, "B"),
    "P58-three": ({"options": {**TWO, "C": "3"}, "answer": "C"}, {**TWO, "C": "3"}, "C"),
    "P58-ten": (
        {"options": {letter: letter * 2 for letter in "ABCDEFGHIJ"}, "answer": "J"},
        {letter: letter * 2 for letter in "ABCDEFGHIJ"},
        "J",
    ),
    "P58-lettered": ({"options": LETTERED, "answer": "B"}, TWO, "B"),
    "P58-label-list": ({"options": LETTERED, "label": ["B"]}, TWO, "B"),
    "P58-listed": ({"options": ["one", "two"], "answer": "A"}, TWO, "A"),
    "P58-none-text": ({"options": {**TWO, "C": "None"}, "answer": "C"}, {**TWO, "C": "None"}, "C"),
    "P58-none-listed": ({"options": ["one", "two", "None"]}, {**TWO, "C": "None"}, None),
    "P58-answer-text": ({"options": TWO, "answer": "two", "answer_idx": "B"}, TWO, "B"),
    "P58-no-key": ({"options": TWO, "answer": None}, TWO, None),
}

#: The line, and what its reason names. MedMCQA's own shape is `convert`'s business.
REJECTED: dict[str, tuple[bytes, str]] = {
    "P58-trailing-comma": (b'{"question": "x", "options": {"A": "a", "B": "b"},}', "JSON"),
    "P58-comma-after": (b'{"question": "x", "options": {"A": "a", "B": "b"}},', "JSON"),
    "P58-missing-options": (b'{"question": "x", "answer": "A"}', "options"),
    "P58-one-option": (b'{"question": "x", "options": {"A": "a"}}', "options"),
    "P58-null-option": (b'{"question": "x", "options": {"A": "a", "B": null}}', "options"),
    "P58-repeated-letter": (
        b'{"question": "x", "options": [{"letter": "A", "content": "a"},'
        b' {"letter": "B", "content": "b"}, {"letter": "B", "content": "c"}]}',
        "options",
    ),
    "P58-foreign-gold": (b'{"question":"x","options":{"A":"a","B":"b"},"answer":"C"}', "answer"),
    "P58-gold-number": (b'{"question":"x","options":{"A":"a","B":"b"},"answer":1}', "answer"),
    "P58-medmcqa": (orjson.dumps(MEDMCQA), "options"),
}


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str | None]]:
    """By case what the prompt said and the answer: one file, with BOM, CRLF and blank lines."""
    lines = [
        orjson.dumps({"id": case, "question": "Which?", **row})
        for case, (row, _, _) in ACCEPTED.items()
    ]
    content = b"\xef\xbb\xbf" + b"\r\n \r\n".join(lines) + b"\r\n\r\n"
    with running(lambda _: Reply("Option: A")) as simulator:
        job = Run(tmp_path_factory.mktemp("accepted"), simulator.url, content)
        assert job("--set", "stages=direct").code == 0
        prompts = {request.question_id: request.user for request in simulator.requests}
    return {row["id"]: (prompts[row["id"]], row["answer"]) for row in job.rows()}


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What a file of bad lines leads to, which begins with a good line and two blank ones."""
    good = orjson.dumps({"id": "good", "question": "Which?", "options": TWO})
    content = b"\n".join([good, b"", b" ", *(line for line, _ in REJECTED.values())])
    with running(lambda _: Reply("Option: A")) as simulator:
        result = Run(tmp_path_factory.mktemp("rejected"), simulator.url, content)()
        assert simulator.requests == []
    assert result.code == 2
    return result


@pytest.mark.parametrize("case", ACCEPTED)
def test_row_is_taken_as_meant(accepted: dict[str, tuple[str, str | None]], case: str) -> None:
    prompt, answer = accepted[case]
    _, options, expected = ACCEPTED[case]
    listed = "\n".join(f"({letter}) {text}" for letter, text in options.items())
    assert f"{listed}\n\n" in prompt
    assert answer == expected


@pytest.mark.parametrize("case", REJECTED)
def test_row_is_refused_by_its_line(rejected: Result, case: str) -> None:
    number = 4 + list(REJECTED).index(case)
    named = [line for line in rejected.err.splitlines() if f" line {number}:" in line]
    assert len(named) == 1
    assert REJECTED[case][1] in named[0]
