"""The golden call graphs of the baselines, and what becomes of garbled and failed calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from medagents_async import methods
from medagents_async.errors import (
    CallError,
    Empty,
    ReasoningOnly,
    Refused,
    TimedOut,
    Truncated,
    Unavailable,
    UsageError,
)
from medagents_async.types import Call
from tests.support.bench import QUESTION, Model, Said, answer

ONE_CALL = ["zero-shot", "few-shot", "cot", "few-shot-cot"]
SAMPLED = ["self-consistency", "ensemble-refinement", "medprompt"]
FAILURES = [Unavailable("gone"), TimedOut("late"), Refused(400, "too long")]
WORDLESS = [Empty("nothing"), ReasoningOnly("thought"), Truncated("cut")]


def saying(*replies: Said, stage: str = "answer", other: Said = "Option: A") -> Model:
    """Call n of `stage` gets reply n, the last one from there on."""
    return lambda call: replies[min(call.n, len(replies) - 1)] if call.stage == stage else other


def letters(text: str) -> list[str]:
    return [f"Thought: So.\nOption: {letter}" for letter in text]


#: Method, settings, calls by stage, depth.
GRAPHS: list[tuple[str, dict[str, Any], dict[str, int], int]] = [
    *((name, {}, {"answer": 1}, 1) for name in ONE_CALL),
    ("self-consistency", {}, {"answer": 5}, 1),
    ("self-consistency", {"preset": "mdagents"}, {"answer": 6}, 1),
    ("self-consistency", {"samples": 1}, {"answer": 1}, 1),
    ("ensemble-refinement", {}, {"answer": 11, "refine": 33}, 2),
    ("ensemble-refinement", {"preset": "scaled"}, {"answer": 5, "refine": 9}, 2),
    ("ensemble-refinement", {"preset": "code"}, {"answer": 3, "refine": 1}, 2),
    ("medprompt", {}, {"answer": 5}, 1),
    ("medprompt", {"preset": "code"}, {"answer": 5}, 1),
]


@pytest.mark.parametrize(("name", "settings", "calls", "depth"), GRAPHS)
def test_call_graph(name: str, settings: dict[str, Any], calls: dict[str, int], depth: int) -> None:
    seen = answer(lambda _: "Option: B", method=name, **{"preset": "paper", **settings})
    assert {stage: seen.count(stage) for stage in calls} == calls
    assert len(seen.spans) == sum(calls.values())
    assert seen.makespan == depth


def test_refinements_wait_for_every_draft_and_for_nothing_else() -> None:
    seen = answer(
        lambda _: "Option: B",
        method="ensemble-refinement",
        preset="scaled",
        seconds=lambda call: 1 + call.n / 4,
    )
    last = max(end for name, (_, end) in seen.spans.items() if name.startswith("answer:"))
    for name, (begun, _) in seen.spans.items():
        assert begun == (0 if name.startswith("answer:") else last)


@pytest.mark.parametrize("name", ONE_CALL)
@pytest.mark.parametrize(
    ("reply", "option"),
    [
        ("Option: C", "C"),
        ("Thought: The first test (A) is not enough.\n**Option: D**", "D"),
        ("Thought: It may be A.\nFinal answer: B", "B"),
        ("Option: G", None),
        ("Option: A or B", None),
        ("I cannot tell.", None),
    ],
)
def test_one_call_is_read(name: str, reply: str, option: str | None) -> None:
    assert answer(saying(reply), method=name).decision.option == option


@pytest.mark.parametrize("name", [*ONE_CALL, *SAMPLED])
@pytest.mark.parametrize("error", FAILURES)
def test_a_failed_call_fails_the_question(name: str, error: CallError) -> None:
    with pytest.raises(type(error)) as caught:
        answer(saying(error, "Option: A"), method=name)
    assert caught.value.stage == "answer"


@pytest.mark.parametrize("error", FAILURES)
def test_a_failed_refinement_fails_the_question(error: CallError) -> None:
    with pytest.raises(type(error)) as caught:
        answer(
            saying("Option: A", error, "Option: A", stage="refine"), method="ensemble-refinement"
        )
    assert caught.value.stage == "refine"


@pytest.mark.parametrize("name", [*ONE_CALL, *SAMPLED])
@pytest.mark.parametrize("error", WORDLESS)
def test_no_word_at_all_is_an_error(name: str, error: CallError) -> None:
    with pytest.raises(type(error)):
        answer(saying(error), method=name)


@pytest.mark.parametrize("error", WORDLESS)
def test_a_sample_without_a_word_is_an_invalid_vote(error: CallError) -> None:
    decision = answer(saying(error, *letters("BBAA")), method="self-consistency").decision
    assert decision.option == "B"
    assert decision.detail["votes"] == {"A": 2, "B": 2}
    assert (decision.detail["invalid"], decision.detail["tied"]) == (1, ["A", "B"])


@pytest.mark.parametrize(
    ("votes", "option"),
    [
        ("BBBAC", "B"),
        ("ACBBB", "B"),
        ("CABBB", "B"),
        ("DCDCA", "D"),
        ("CDCDA", "C"),
        ("EEEEA", "A"),
    ],
)
def test_self_consistency_counts(votes: str, option: str) -> None:
    decision = answer(saying(*letters(votes)), method="self-consistency").decision
    assert decision.option == option
    assert sum(decision.detail["votes"].values()) + decision.detail["invalid"] == 5


def test_ties_do_not_depend_on_arrival() -> None:
    def decided(order: Sequence[int]) -> str | None:
        said = saying(*letters("DCDCA"))
        seen = answer(said, method="self-consistency", seconds=lambda call: order[call.n])
        return seen.decision.option

    assert {decided(order) for order in permutations(range(1, 6))} == {"D"}


def test_only_unparsed_samples_are_no_answer() -> None:
    decision = answer(saying("Hard to say."), method="self-consistency").decision
    assert decision.option is None
    assert decision.detail["invalid"] == 5


@pytest.mark.parametrize("name", ["self-consistency", "ensemble-refinement"])
def test_samples_have_seeds_of_their_own(name: str) -> None:
    seen = answer(saying("Option: A"), method=name)
    seeds = [body["seed"] for body in seen.bodies.values()]
    assert len(set(seeds)) == len(seeds) > 1
    assert {body["temperature"] for body in seen.bodies.values()} == {0.7}


def test_samples_in_one_request() -> None:
    replies = [*letters("BB"), "", "Hm.", *letters("A")]
    seen = answer(saying(replies), method="self-consistency", one_request=True)
    assert len(seen.spans) == 1
    assert seen.bodies["answer:0"]["n"] == 5
    assert seen.decision.option == "B"
    assert seen.decision.detail["votes"] == {"A": 1, "B": 2}
    assert seen.decision.detail["invalid"] == 2


def test_refinement_in_one_request_a_stage() -> None:
    def model(call: Call) -> Sequence[str]:
        return letters("AB" if call.stage == "answer" else "CCD")

    seen = answer(model, method="ensemble-refinement", one_request=True, drafts=2, refinements=3)
    assert [seen.bodies[f"{stage}:0"]["n"] for stage in ("answer", "refine")] == [2, 3]
    assert seen.decision.option == "C"


def test_refinements_see_all_drafts_that_say_something() -> None:
    drafts: list[Said] = ["Because of the ECG.\nOption: A", Empty("nothing"), "Who knows."]

    def model(call: Call) -> Said:
        return drafts[call.n] if call.stage == "answer" else f"Option: {'DDB'[call.n % 3]}"

    seen = answer(model, method="ensemble-refinement", drafts=3, refinements=3)
    prompts = {seen.prompt(f"refine:{n}") for n in range(3)}
    assert len(prompts) == 1
    shown = prompts.pop()
    assert re.findall(r"Attempt (\d):\n(.*)", shown) == [
        ("1", "Because of the ECG."),
        ("2", "Who knows."),
    ]
    assert "2 attempts" in shown
    assert "(A) Electrocardiogram" in shown
    assert "Example 5" in shown
    assert seen.decision.option == "D"
    detail = seen.decision.detail
    assert detail["drafts"] == {"votes": {"A": 1}, "invalid": 2, "tied": []}
    assert detail["votes"] == {"B": 1, "D": 2}


def test_code_refines_cooler_and_without_examples() -> None:
    seen = answer(saying("Option: A"), method="ensemble-refinement", preset="code")
    assert seen.bodies["answer:0"]["temperature"] == 0.7
    assert seen.bodies["refine:0"]["temperature"] == 0.5
    assert "Example" not in seen.prompt("refine:0")


def test_prompts_ask_for_what_the_papers_ask_for() -> None:
    for name in [*ONE_CALL, *SAMPLED]:
        prompt = answer(saying("Option: A"), method=name).prompt("answer:0")
        for letter in QUESTION.options:
            assert f"\n({letter}) " in prompt
        assert ("Think step by step" in prompt) is (name not in ("zero-shot", "few-shot"))
        assert ("Example 1" in prompt) is (name not in ("zero-shot", "cot", "self-consistency")), (
            name
        )
        assert ("Thought: She" in prompt) is (
            name in ("few-shot-cot", "ensemble-refinement", "medprompt")
        )
        assert prompt.index("Question:\nA 60-year-old") > prompt.find("Example 5")


def test_constrained_zero_shot_allows_only_letters() -> None:
    seen = answer(saying("B"), method="zero-shot", constrain=True)
    assert seen.bodies["answer:0"]["structured_outputs"] == {"choice": [*QUESTION.options]}
    assert seen.decision.option == "B"


@pytest.mark.parametrize(
    ("name", "limit"), [("zero-shot", 50), ("cot", 300), ("ensemble-refinement", 300)]
)
def test_code_presets_have_the_codes_limits(name: str, limit: int) -> None:
    seen = answer(saying("Option: A"), method=name, preset="code")
    assert {body["max_tokens"] for body in seen.bodies.values()} == {limit}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("self-consistency", {"temperature": 0}),
        ("ensemble-refinement", {"temperature": "0"}),
        ("ensemble-refinement", {"refine_temperature": "0.0"}),
    ],
)
def test_samples_at_temperature_0_are_refused(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"all samples say the same.*above 0"):
        methods.find(name).parameters("paper", settings)


@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name, known in methods.every_method().items() for preset in known.presets],
)
def test_presets_have_known_parameters_of_the_right_types(name: str, preset: str) -> None:
    known = methods.find(name)
    assert known.parameters(None, known.presets[preset]) == known.parameters(preset, {})


def test_one_sample_may_be_greedy() -> None:
    methods.find("self-consistency").parameters("paper", {"temperature": 0, "samples": 1})
