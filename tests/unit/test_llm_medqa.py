"""The golden call graph of LLM-MedQA: MedAgents' consultation, and cases from the beginning."""

from __future__ import annotations

from typing import Any

import pytest

from medagents_async.errors import CallError, Empty, Refused, Unavailable
from medagents_async.types import Call
from tests.support.bench import QUESTION, Said, Seen, answer
from tests.unit.test_medagents import (
    BRANCHES,
    PANEL,
    check,
    dyadic,
    golden,
    model,
    same_but_for_the_field,
)

CASE = "Context: A man with pain.\nKey Mechanism/Reasoning: ST.\nNeutrality Check: Others remain."


def solve(said: Any, **settings: Any) -> Seen:
    def with_case(call: Call) -> Said:
        return f"{CASE} {call.n}" if call.stage == "case" else said(call)

    return answer(with_case, method="llm-medqa", **settings)


def objecting(rounds: dict[int, list[int]]) -> Any:
    return model(lambda number, place: "NO" if place in rounds.get(number, []) else "YES")


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("cases", [0, 1, 2])
def test_every_call_starts_when_what_it_reads_is_there(branch: str, cases: int) -> None:
    rounds, calls, _ = BRANCHES[branch]
    seen = solve(objecting(rounds), seconds=dyadic(cases), cases=cases)
    waits = golden(rounds) | {f"case:{n}": [] for n in range(cases)}
    waits["summarise:0"] = [*waits["summarise:0"], *(f"case:{n}" for n in range(cases))]
    assert len(seen.spans) == calls + cases
    check(seen, waits)


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize(("preset", "cases"), [("paper", 1), ("no-cases", 0)])
def test_presets_calls_and_depth(branch: str, preset: str, cases: int) -> None:
    rounds, calls, depth = BRANCHES[branch]
    seen = solve(objecting(rounds), preset=preset)
    assert (len(seen.spans), seen.makespan) == (calls + cases, depth)
    assert (seen.decision.option, seen.decision.detail["cases"]) == ("A", cases)
    assert seen.decision.detail["agreed"] is (branch != "never agree")
    assert {(body["temperature"], body["top_p"]) for body in seen.bodies.values()} == {(0.0, 1.0)}


def test_suggestions_accumulate_as_in_algorithm_1() -> None:
    def advice_in(**settings: Any) -> list[bool]:
        seen = solve(model(lambda *_: "NO"), rounds=2, **settings)
        return [f"advise {n} says so." in seen.prompt("revise:1") for n in range(14)]

    assert advice_in() == [True] * 14
    assert advice_in(accumulate_advice=False) == [False] * 7 + [True] * 7


def test_prompts_show_what_the_paper_has_them_show() -> None:
    seen = solve(model(), cases=2)
    for letter, text in QUESTION.options.items():
        for name in ("recruit_option:0", "analyse_option:1", "case:0", "decide:0"):
            assert f"({letter}) {text}" in seen.prompt(name)
        for name in ("recruit_question:0", "analyse_question:0", "vote:0"):
            assert f"({letter}) {text}" not in seen.prompt(name)
    for n in range(5):
        assert f"analyse_question {n} says so." in seen.prompt("analyse_option:1")
        assert f"analyse_question {n} says so." in seen.prompt("summarise:0")
    for n in range(2):
        assert f"analyse_option {n} says so." in seen.prompt("summarise:0")
        assert f"{CASE} {n}" in seen.prompt("summarise:0")
        assert "Neutrality Check:" in seen.prompt(f"case:{n}")
    assert "fewer than 50 words" in seen.prompt("recruit_question:0")
    assert "ST elevation matters." in seen.prompt("vote:0")


def test_without_cases_no_prompt_mentions_any() -> None:
    seen = solve(model(), preset="no-cases")
    assert "case" not in seen.prompt("summarise:0").lower()


def test_experts_recruited_singly() -> None:
    def said(call: Call) -> Said:
        if call.stage == "recruit_question":
            return ["Medical Field: Cardiology", "Medical Field: A | B", "No idea."][call.n % 3]
        return model()(call)

    seen = solve(said, recruiting="singly", seconds=dyadic(3))
    detail = seen.decision.detail
    assert (seen.count("recruit_question"), seen.count("recruit_option")) == (5, 2)
    assert detail["question_experts"] == [
        "Cardiology",
        "A",
        "General Medicine",
        "Cardiology (2)",
        "A (2)",
    ]
    assert detail["recruit_question"] == {"named": 6, "padded": 1, "cut": 2}
    recruited = [f"recruit_question:{n}" for n in range(5)]
    assert all(seen.spans[name][0] == 0 for name in recruited)
    for n in range(5):  # which reads its own field only, but its name is told from the others'
        begun = seen.spans[f"analyse_question:{n}"][0]
        assert begun == max(seen.spans[name][1] for name in recruited)


@pytest.mark.parametrize("stage", ["recruit_question", "recruit_option"])
@pytest.mark.parametrize("reply", ["I cannot classify this.", Empty("nothing")])
def test_garbled_recruiting_still_gives_the_whole_panel(stage: str, reply: Said) -> None:
    seen = solve(model(**{stage: reply}))
    detail = seen.decision.detail
    names = [*detail["question_experts"], *detail["option_experts"]]
    assert len({name.casefold() for name in names}) == PANEL
    assert detail[stage]["padded"] == (5 if stage == "recruit_question" else 2)


def test_garbled_reports_votes_and_decisions() -> None:
    seen = solve(model(summarise="Do an ECG.", decide="Hard to say."))
    assert "Total Analysis: Do an ECG." in seen.prompt("vote:0")
    assert seen.decision.option is None
    seen = solve(model(lambda *_: "Perhaps."), rounds=1)
    assert set(seen.decision.detail["votes"][0].values()) == {"unclear"}
    assert (seen.count("vote"), seen.count("advise")) == (2 * PANEL, PANEL)


STAGES = (
    "recruit_question recruit_option analyse_question analyse_option case "
    "summarise vote advise revise decide"
).split()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [Unavailable("gone"), Refused(400, "too long")])
def test_a_failed_call_fails_the_question_and_is_no_text(stage: str, error: CallError) -> None:
    usual = model(lambda *_: "NO")
    with pytest.raises(type(error)) as caught:
        answer(
            lambda call: error if call.stage == stage else usual(call),
            method="llm-medqa",
        )
    assert caught.value.stage == stage


def test_an_empty_case_fails_the_question() -> None:
    with pytest.raises(Empty):
        answer(
            lambda call: Empty("nothing") if call.stage == "case" else model()(call),
            method="llm-medqa",
        )


def test_shared_prefix_leaves_siblings_nothing_of_their_own_but_the_field() -> None:
    said = model(lambda number, _: "NO" if number == 1 else "YES")
    same_but_for_the_field(solve(said), solve(said, layout="shared-prefix"))


def test_shared_options_of_the_consultation_work_here_too() -> None:
    seen = solve(model(), domains="Urology|Urology", option_domains="Genetics", constrain=True)
    assert seen.decision.detail["question_experts"] == ["Urology", "Urology (2)"]
    assert seen.bodies["decide:0"]["structured_outputs"] == {"choice": [*"ABCD"]}
    assert len(seen.spans) == 2 + 1 + 1 + 1 + 3 + 1
