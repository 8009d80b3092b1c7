"""Faults that users of such evaluators reported, P01 to P28: what becomes of a final reply.

Every case is one question of the same run of the real command, answered in one call. The answer key
of every question is A, the letter that careless readers fall back on.

The entries P16 to P23 and P56 are about methods to come (MDAgents, DyLAN, self-consistency and
Medprompt, ReConcile, meta-prompting, replies in JSON); they get their tests together with them.
"""

from __future__ import annotations

from typing import Any

import pytest

from medagents_async.simulator import Reply, Request, running
from tests.support.command import Run

FOUR = {"A": "Aspirin", "B": "Heparin", "C": "Furosemide", "D": "Digoxin"}
TEN = {letter: f"Finding {number}" for number, letter in enumerate("ABCDEFGHIJ")}

Outcome = tuple[str, str | None, str | None]  # status, prediction, kind of the error
UNPARSED: Outcome = ("unparsed", None, None)
THOUGHT = "Potassium is low, so the answer is A"


def chose(letter: str) -> Outcome:
    return "ok", letter, None


def failed(kind: str) -> Outcome:
    return "error", None, kind


def cut(text: str | None, reasoning: str | None = None) -> Reply:
    return Reply(text, reasoning=reasoning, finish_reason="length")


def raw(message: bytes) -> Reply:
    return Reply(body=b'{"choices":[{"index":0,"message":' + message + b"}]}")


CASES: dict[str, tuple[str | Reply, Outcome]] = {
    # the last marker wins
    "P01-format-repeated": (
        "I must end with 'Answer: A/B/C/D'.\nThe oedema points one way.\nAnswer: C",
        chose("C"),
    ),
    "P01-marker-repeated": ("Answer:\n\nAnswer: C", chose("C")),
    "P02-article": ("The answer is B because a car moves.", chose("B")),
    "P03-bold": ("Answer: **D**", chose("D")),
    "P03-rejected-before": (
        "I considered (A), but it is incorrect. Final answer: D.",
        chose("D"),
    ),
    "P04-tentative": ("Answer seems to be A.\n\nAnswer: A", chose("A")),
    "P04-unclear-before": ("Answer seems unclear.\nAnswer: B", chose("B")),
    "P05-bracketed": ("The answer is (B) because A is wrong", chose("B")),
    "P05-first-word": ("Based on the history, the answer is C.", chose("C")),
    "P06-bold": ("ANSWER: **A**", chose("A")),
    "P06-dollars": ("ANSWER: $A$", chose("A")),
    "P06-brackets": ("ANSWER: (B)", chose("B")),
    "P06-boxed": (r"ANSWER: \boxed{C}", chose("C")),
    "P06-text": (r"ANSWER: $\text{D}$", chose("D")),
    "P06-code": ("`ANSWER: (B)`", chose("B")),
    "P07-lower-case": ("ANSWER: a\nHm, wait, the potassium is low.\nANSWER: b", chose("B")),
    "P08-comma": ("ANSWER: A,", chose("A")),
    "P08-several": ("Answer: A, B, and C", UNPARSED),
    # only what is an option of this question counts
    "P09-capital-after": ("ANSWER: (B)\nLet me know if you need more.", chose("B")),
    "P09-no-option": ("ANSWER: G", UNPARSED),
    "P10-undecided": ("I cannot determine this.", UNPARSED),
    "P11-unknown": ("Answer unknown", UNPARSED),
    "P11-error-text": ("ERROR.", UNPARSED),
    "P11-failed-call": (Reply(status=500), failed("unavailable")),
    "P13-eighth": ("Option: H", chose("H")),
    "P13-tenth": ("Option: J", chose("J")),
    # reasoning models and empty content
    "P24-null": (cut(None, THOUGHT), failed("truncated")),
    "P24-empty": (cut("", THOUGHT), failed("truncated")),
    "P25-null": (raw(b'{"content":null}'), failed("empty")),
    "P25-missing": (raw(b'{"role":"assistant"}'), failed("empty")),
    "P25-no-message": (raw(b"null"), failed("malformed")),
    "P26-reasoning": (Reply("Option: C", reasoning=THOUGHT), chose("C")),
    "P26-reasoning_content": (
        Reply("Option: C", reasoning=THOUGHT, reasoning_field="reasoning_content"),
        chose("C"),
    ),
    "P27-answer-in-reasoning": (Reply("", reasoning='{"answer":"B"}'), failed("reasoning_only")),
    "P27-null": (Reply(None, reasoning="Option: B"), failed("reasoning_only")),
    "P27-nothing": (Reply(""), failed("empty")),
    "P28-unclosed": (cut("<think>maybe A… B…"), failed("truncated")),
    "P28-tagless": (cut("Let me work through this. Option A first,"), UNPARSED),
    "P28-tagless-tentative": (
        cut("Let me work through this. At first sight the answer is A, but the potassium"),
        UNPARSED,
    ),
    "P28-closed": ("<think>A? no.</think>\nAnswer: C", chose("C")),
    "P28-opened-by-template": ("A? No, it is C.</think>\n\nAnswer: C", chose("C")),
}
TAGLESS = ["P28-tagless", "P28-tagless-tentative"]
WITHOUT_TEXT = ["P24-null", "P24-empty", "P28-unclosed"]
RETRIES = 2


def answer(request: Request) -> Reply:
    said = CASES[request.question_id][0]
    return Reply(said) if isinstance(said, str) else said


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The row of every case; under "requests" how often each was asked, under "manifest" that."""
    questions = [
        {
            "id": case,
            "question": "A man has oedema. What helps?",
            "options": TEN if case.startswith("P13") else FOUR,
            "answer": "A",
        }
        for case in CASES
    ]
    with running(answer) as simulator:
        job = Run(tmp_path_factory.mktemp("answered"), simulator.url, questions)
        assert job("--set", "stages=direct", "--retries", str(RETRIES)).code == 1
        asked = [request.question_id for request in simulator.requests]
    rows = {row["id"]: row for row in job.rows()}
    assert len(rows) == len(CASES)
    return {**rows, "requests": asked, "manifest": job.manifest()}


@pytest.mark.parametrize("case", CASES)
def test_final_reply(answered: dict[str, Any], case: str) -> None:
    row = answered[case]
    kind = row["error"] and row["error"]["kind"]
    assert (row["status"], row["prediction"], kind) == CASES[case][1]
    assert row["correct"] is (row["prediction"] == "A")


def test_counts_p10_p11_no_case_is_lost(answered: dict[str, Any]) -> None:
    totals = answered["manifest"]["totals"]
    rows = [answered[case] for case in CASES]
    for status in ("ok", "unparsed", "error"):
        assert totals[status] == sum(row["status"] == status for row in rows) > 0
    right = sum(row["prediction"] == "A" for row in rows)
    assert (totals["done"], totals["correct"]) == (len(CASES), right)
    assert totals["accuracy"] == right / len(CASES)


def test_p11_call_that_fails_three_times_is_an_error_of_its_stage(answered: dict[str, Any]) -> None:
    assert answered["requests"].count("P11-failed-call") == 1 + RETRIES
    assert answered["P11-failed-call"]["error"]["stage"] == "decide"
    assert answered["P11-failed-call"]["retries"] == RETRIES


@pytest.mark.parametrize("case", ["P26-reasoning", "P26-reasoning_content"])
def test_reasoning_is_stored_under_either_name(answered: dict[str, Any], case: str) -> None:
    step = answered[case]["trace"][-1]
    assert (step["reply"], step["reasoning"]) == ("Option: C", THOUGHT)


@pytest.mark.parametrize("case", [*TAGLESS, *WITHOUT_TEXT])
def test_cut_reply_is_counted_as_truncated(answered: dict[str, Any], case: str) -> None:
    assert answered[case]["truncated"] == 1


@pytest.mark.parametrize("case", WITHOUT_TEXT)
def test_cut_thought_says_what_to_change(answered: dict[str, Any], case: str) -> None:
    error = answered[case]["error"]
    assert error["stage"] == "decide"
    assert "token limit" in error["message"]
