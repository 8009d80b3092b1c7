"""The golden call graph of MedAgents: which calls are made, and who waits for whom."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medagents_async.errors import CallError, Empty, Refused, Unavailable, UsageError
from medagents_async.prompts import PromptPack
from medagents_async.types import Call, Question
from tests.support.bench import QUESTION, Model, Said, Seen, answer

FIELDS = {
    "recruit_question": "Medical Field: Cardiology | Pulmonology | Surgery | Radiology | Oncology",
    "recruit_option": "Medical Field: Emergency Medicine | Pathology",
}
REPORT = "Key Knowledge: ST elevation matters.\nTotal Analysis: An electrocardiogram comes first."
PANEL = 7


def model(vote: Callable[[int, int], Said] = lambda *_: "YES", /, **stages: Said) -> Model:
    """Says what `stages` has for a stage; `vote` gets (round from 1, place of the voter)."""

    def said(call: Call) -> Said:
        if call.stage in stages:
            return stages[call.stage]
        if call.stage == "vote":
            return vote(call.n // PANEL + 1, call.n % PANEL)
        return {
            **FIELDS,
            "summarise": REPORT,
            "revise": REPORT,
            "decide": "Option: A",
        }.get(call.stage, f"{call.stage} {call.n} says so.")

    return said


def dyadic(seed: int) -> Callable[[Call], float]:
    """Seeded durations that add up exactly, so that times may be compared with ==."""
    chance = random.Random(seed)
    return lambda _: chance.randrange(1, 4096) / 1024


def golden(
    rounds: dict[int, list[int]], again: dict[int, list[int]] | None = None
) -> dict[str, list[str]]:
    """Call to the calls that it waits for; `rounds` maps a round to the places that object.

    `again` maps a round to the places whose first vote was unclear; `limit` is 5 rounds.
    """
    waits: dict[str, list[str]] = {"recruit_question:0": [], "recruit_option:0": []}
    question_side = [f"analyse_question:{n}" for n in range(5)]
    option_side = [f"analyse_option:{n}" for n in range(2)]
    waits |= {name: ["recruit_question:0"] for name in question_side}
    waits |= {name: ["recruit_option:0", *question_side] for name in option_side}
    waits["summarise:0"] = option_side
    report = ["summarise:0"]
    for number, objectors in rounds.items():
        first = (number - 1) * PANEL
        last = {n: f"vote:{first + n}" for n in range(PANEL)}
        waits |= dict.fromkeys(last.values(), report)
        for n in (again or {}).get(number, []):
            second = f"vote:{5 * PANEL + first + n}"
            waits[second] = [last[n]]
            last[n] = second
        advice = {f"advise:{first + n}": [last[n]] for n in objectors}
        waits |= advice
        report = [*last.values(), *advice]
        if objectors:
            waits[f"revise:{number - 1}"] = report
            report = [f"revise:{number - 1}"]
    waits["decide:0"] = report
    return waits


def check(seen: Seen, waits: dict[str, list[str]]) -> None:
    assert set(seen.spans) == set(waits)
    for name, (begun, _) in seen.spans.items():
        assert begun == max((seen.spans[other][1] for other in waits[name]), default=0), name


EVERYONE = list(range(PANEL))
#: The places that object in each round; calls; depth.
BRANCHES: dict[str, tuple[dict[int, list[int]], int, int]] = {
    "agree at once": ({1: []}, 18, 6),
    "one objects once": ({1: [3], 2: []}, 18 + 2 + 7, 9),
    "an option expert objects twice": ({1: [6], 2: [6], 3: []}, 18 + 2 * 9, 12),
    "two object, then one": ({1: [0, 5], 2: [5], 3: []}, 18 + 3 + 2 + 2 * 7, 12),
    "never agree": (dict.fromkeys(range(1, 6), EVERYONE), 86, 20),
}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("seed", range(5))
def test_every_call_starts_when_what_it_reads_is_there(branch: str, seed: int) -> None:
    rounds, calls, _ = BRANCHES[branch]
    said = model(lambda number, place: "NO" if place in rounds[number] else "YES")
    seen = answer(said, seconds=dyadic(seed))
    assert len(seen.spans) == calls
    check(seen, golden(rounds))


@pytest.mark.parametrize("branch", BRANCHES)
def test_depth(branch: str) -> None:
    rounds, _, depth = BRANCHES[branch]
    seen = answer(model(lambda number, place: "NO" if place in rounds[number] else "YES"))
    assert seen.makespan == depth
    assert seen.decision.option == "A"
    assert seen.decision.detail["rounds"] == len(rounds)
    assert seen.decision.detail["agreed"] is (branch != "never agree")


def test_code_preset_stops_after_three_rounds() -> None:
    seen = answer(model(lambda *_: "NO"), preset="code")
    assert (len(seen.spans), seen.makespan) == (56, 14)
    assert {body["temperature"] for body in seen.bodies.values()} == {0.0}
    limits = {name.split(":")[0]: body["max_tokens"] for name, body in seen.bodies.items()}
    assert limits == {
        "recruit_question": 50,
        "recruit_option": 50,
        "analyse_question": 300,
        "analyse_option": 300,
        "summarise": 2500,
        "vote": 30,
        "advise": 500,
        "revise": 2500,
        "decide": 2500,
    }


def test_unclear_vote_is_asked_again_with_the_choice_constrained() -> None:
    def said(call: Call) -> Said:
        if call.stage == "vote" and call.n == 2:
            return "It depends."
        return model()(call)

    seen = answer(said, seconds=dyadic(1))
    check(seen, golden({1: []}, again={1: [2]}))
    assert seen.bodies[f"vote:{5 * PANEL + 2}"]["structured_outputs"] == {"choice": ["YES", "NO"]}
    assert "structured_outputs" not in seen.bodies["vote:2"]


@pytest.mark.parametrize(
    ("counts_as", "rounds", "advice"), [("yes", 1, 0), ("no", 5, 5), ("unclear", 1, 0)]
)
@pytest.mark.parametrize("reply", ["Perhaps.", Empty("nothing")])
def test_vote_that_stays_unclear_is_recorded_and_counts_as_told(
    counts_as: str, rounds: int, advice: int, reply: Said
) -> None:
    def vote(_: int, place: int) -> Said:
        return reply if place == 4 else "YES"

    def said(call: Call) -> Said:
        if call.stage == "vote":
            return vote(0, call.n % PANEL)
        return model()(call)

    seen = answer(said, unclear_vote=counts_as)
    detail = seen.decision.detail
    assert (detail["rounds"], seen.count("advise")) == (rounds, advice)
    assert detail["votes"][0]["Oncology"] == "unclear"


@pytest.mark.parametrize("stage", ["recruit_question", "recruit_option"])
@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("Medical Field: Cardiology", 1),
        ("Medical Field: A1 | B2 | C3 | D4 | E5 | F6 | G7", 7),
        ("Medical Field: Surgery | Surgery | Surgery | surgery | Surgery", 5),
        ("I am sorry, but I cannot classify this.", 0),
        (Empty("nothing"), 0),
    ],
)
def test_panel_always_has_its_size_and_distinct_names(stage: str, reply: Said, named: int) -> None:
    wanted = 5 if stage == "recruit_question" else 2
    seen = answer(model(**{stage: reply}))
    detail = seen.decision.detail
    names = [*detail["question_experts"], *detail["option_experts"]]
    assert len(names) == len({name.casefold() for name in names}) == PANEL
    assert detail[stage] == {
        "named": named,
        "padded": max(0, wanted - named),
        "cut": max(0, named - wanted),
    }
    assert (seen.count("vote"), len(detail["votes"][0])) == (PANEL, PANEL)


def test_an_expert_of_both_sides_votes_twice() -> None:
    seen = answer(model(recruit_option="Medical Field: cardiology | Cardiology"))
    assert seen.decision.detail["option_experts"] == ["cardiology (2)", "Cardiology (3)"]
    assert "(2)" not in seen.prompt("analyse_option:0")


@pytest.mark.parametrize("stage", ["summarise", "revise"])
def test_report_without_sections_is_kept_whole(stage: str) -> None:
    seen = answer(
        model(lambda number, _: "NO" if number == 1 else "YES", **{stage: "Just do an ECG."})
    )
    assert seen.decision.option == "A"
    assert "Just do an ECG." in seen.prompt("vote:0" if stage == "summarise" else "vote:7")


def test_paper_keeps_key_knowledge_and_code_drops_it() -> None:
    objecting = model(lambda number, _: "NO" if number == 1 else "YES")
    for name in ("vote:0", "vote:7", "decide:0"):
        assert "ST elevation matters." in answer(objecting).prompt(name)
        assert "ST elevation matters." not in answer(objecting, preset="code").prompt(name)
    assert "Key Knowledge:" in answer(objecting).prompt("revise:0")


def test_revision_sees_the_advice_of_its_round_or_of_all() -> None:
    def advice_in(**settings: Any) -> list[bool]:
        seen = answer(model(lambda *_: "NO"), rounds=2, **settings)
        return [f"advise {n} says so." in seen.prompt("revise:1") for n in range(14)]

    assert advice_in() == [False] * 7 + [True] * 7
    assert advice_in(accumulate_advice=True) == [True] * 14


def test_prompts_show_what_the_paper_has_them_show() -> None:
    seen = answer(model())
    for letter, text in QUESTION.options.items():
        assert f"({letter}) {text}" in seen.prompt("recruit_option:0")
        assert f"({letter}) {text}" not in seen.prompt("recruit_question:0")
        assert f"({letter}) {text}" not in seen.prompt("analyse_question:0")
        assert f"({letter}) {text}" not in seen.prompt("vote:0")
        assert f"({letter}) {text}" in seen.prompt("decide:0")
    for n in range(5):
        assert f"analyse_question {n} says so." in seen.prompt("analyse_option:1")
        assert f"analyse_question {n} says so." in seen.prompt("summarise:0")
    for n in range(2):
        assert f"analyse_option {n} says so." in seen.prompt("summarise:0")
    assert "Cardiology" in seen.prompt("analyse_question:0")
    code = answer(model(lambda *_: "NO"), preset="code")
    assert "(A) Electrocardiogram" in code.prompt("vote:0")
    for name in ("revise:0", "decide:0"):
        assert [message["role"] for message in code.bodies[name]["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("stages", "calls", "depth"),
    [("direct", 1, 1), ("cot", 1, 1), ("analysis", 10, 4), ("summary", 11, 5)],
)
def test_ablation(stages: str, calls: int, depth: int) -> None:
    seen = answer(model(), stages=stages)
    assert (len(seen.spans), seen.makespan, seen.decision.option) == (calls, depth, "A")


def test_forced_and_counted_experts() -> None:
    seen = answer(model(), domains="Urology|Urology", option_domains="Genetics")
    assert seen.decision.detail["question_experts"] == ["Urology", "Urology (2)"]
    assert len(seen.spans) == 2 + 1 + 1 + 3 + 1
    seen = answer(model(), question_experts=1, option_experts=0)
    assert len(seen.spans) == 1 + 1 + 1 + 1 + 1


def test_pubmedqa_gets_four_question_experts() -> None:
    question = Question("p", 0, "Does it?", {"A": "yes", "B": "no", "C": "maybe"}, "An abstract.")
    seen = answer(model(), question=question)
    assert seen.count("analyse_question") == 4
    assert "An abstract." in seen.prompt("recruit_question:0")
    assert answer(model(), question=question, preset="code").count("analyse_question") == 5


@pytest.mark.parametrize(
    "stage", ["recruit_question", "analyse_question", "summarise", "vote", "advise", "decide"]
)
@pytest.mark.parametrize("error", [Unavailable("gone"), Refused(400, "too long")])
def test_a_failed_call_fails_the_question_and_is_no_text(stage: str, error: CallError) -> None:
    objecting = model(lambda *_: "NO")
    with pytest.raises(type(error)) as caught:
        answer(lambda call: error if call.stage == stage else objecting(call))
    assert caught.value.stage == stage


def test_unparsed_decision_names_no_option() -> None:
    assert answer(model(decide="I would rather not say.")).decision.option is None


def test_shared_prefix_leaves_siblings_nothing_of_their_own_but_the_field() -> None:
    said = model(lambda number, _: "NO" if number == 1 else "YES")
    paper, shared = answer(said), answer(said, layout="shared-prefix")
    assert REPORT.split("Total Analysis: ")[1] in shared.prompt("vote:0")
    same_but_for_the_field(paper, shared)


def same_but_for_the_field(paper: Seen, shared: Seen) -> None:
    """Both layouts say the same; with `shared-prefix` siblings differ in their last words only."""
    stages: dict[str, list[str]] = {}
    for name in paper.bodies:
        words, fewer = (re.findall(r"\w+", seen.prompt(name).lower()) for seen in (paper, shared))
        assert {*words} - {*fewer} <= {"as", "an", "in", "expert", "speak"}
        assert not {*fewer} - {*words}
        assert len(fewer) > 0.8 * len(words)
        stages.setdefault(name.partition(":")[0], []).append(shared.prompt(name))
    for stage in ("analyse_question", "analyse_option", "vote", "advise"):
        first, second = stages[stage][:2]
        common = next(
            n for n, pair in enumerate(zip(first, second, strict=False)) if len({*pair}) > 1
        )
        assert max(len(first), len(second)) - common <= len("Emergency Medicine."), stage


@pytest.mark.parametrize("layout", ["paper", "shared-prefix"])
@pytest.mark.parametrize("shown", [True, False])
def test_voters_see_the_question_where_the_report_has_it(layout: str, shown: bool) -> None:
    said = model(lambda number, _: "NO" if number == 1 else "YES")
    seen = answer(said, layout=layout, question_in_report=shown)
    for name in ("vote:0", "advise:0", "revise:0", "vote:7"):
        assert seen.prompt(name).count(QUESTION.text) == shown, name
        assert seen.prompt(name).count("(A) ") == shown, name
    assert seen.prompt("decide:0").count(QUESTION.text) == 1
    if layout == "shared-prefix" and shown:  # the choice goes on where the last votes began
        material = seen.prompt("vote:7").partition("Read the report")[0]
        assert "electrocardiogram comes first" in material
        assert seen.prompt("decide:0").startswith(material)


def test_a_template_that_goes_by_the_older_report_is_refused(tmp_path: Path) -> None:
    """The report used to have the question in it; its template would show none at all now."""
    task = "## task\n{% if not question_in_report %}{{ question }}{% endif %} {{ report }}\n"
    (tmp_path / "decide.md").write_text(task)
    with pytest.raises(UsageError, match="question_in_report"):
        PromptPack("medagents", tmp_path)
