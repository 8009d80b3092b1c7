"""The golden call graphs of MDAgents: which calls each path makes, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from medagents_async.errors import CallError, Empty, Refused, Unavailable
from medagents_async.methods.mdagents_high import TEAMS, care_teams
from medagents_async.parsing import Member, Team
from medagents_async.types import Call
from tests.support.bench import QUESTION, Model, Said, Seen, answer
from tests.unit.test_medagents import check, dyadic

N = 5
EXPERTS = "\n".join(f"{n}. Role {n} - expertise {n}" for n in range(1, N + 1))
GROUPS = "\n".join(
    f"Team {n}: {name}\nLead: Lead {n} - leading\nMember 1: First {n} - this\nMember 2: Second {n}"
    for n, name in enumerate(TEAMS, 1)
)
Talk = Callable[[int], str]


def model(level: str = "moderate", /, agree: int | None = 1, **stages: Said) -> Model:
    """All say B from round `agree` on; before it, or without it, the first one says C.

    `stages` replaces what is said in a stage, or in a call as `stage_n`.
    """

    def said(call: Call) -> Said:
        round_ = call.n // N + 1
        differs = level == "moderate" and call.n % N == 0 and (agree is None or round_ < agree)
        usual = {
            "triage": f"Complexity: {level}",
            "recruit": GROUPS if level == "high" else EXPERTS,
            "answer": f"answer {call.n}\nOption: {'C' if differs else 'B'}",
            "discuss": f"Message to {(call.n + 1) % N + 1}: note {call.n}",
            "decide": "Option: B",
        }.get(call.stage, f"{call.stage} {call.n} says so.")
        return stages.get(f"{call.stage}_{call.n}", stages.get(call.stage, usual))

    return said


def solve(said: Model, **settings: Any) -> Seen:
    return answer(said, method="mdagents", **settings)


def moderate(rounds: int, turns: int = 1, review: bool = True) -> dict[str, list[str]]:
    """Call to the calls that it waits for, with so many rounds of talk."""
    waits: dict[str, list[str]] = {"triage:0": [], "recruit:0": ["triage:0"]}
    last = [f"answer:{n}" for n in range(N)]
    waits |= {name: ["recruit:0"] for name in last}
    for number in range(rounds):
        for turn in range(turns):
            first = (number * turns + turn) * N
            talk = [f"discuss:{first + n}" for n in range(N)]
            waits |= dict.fromkeys(talk, last)
            last = talk
        answers = [f"answer:{(number + 1) * N + n}" for n in range(N)]
        if review:
            feedback = [f"feedback:{number * N + n}" for n in range(N)]
            waits |= dict.fromkeys(feedback, last)
            waits |= {name: [own] for name, own in zip(answers, feedback, strict=True)}
        else:
            waits |= dict.fromkeys(answers, last)
        last = answers
    return waits | {"decide:0": last}


def high(parallel: bool = False, discussion: bool = True) -> dict[str, list[str]]:
    waits: dict[str, list[str]] = {"triage:0": [], "recruit:0": ["triage:0"]}
    before = ["recruit:0"]
    for team in range(3):
        assign, *findings = (f"discuss:{team * 3 + n}" for n in range(3))
        if discussion:
            waits[assign] = before
        waits |= dict.fromkeys(findings, [assign] if discussion else before)
        waits[f"report:{team}"] = findings
        before = before if parallel else [f"report:{team}"]
    return waits | {"decide:0": [f"report:{team}" for team in range(3)]}


#: The model; settings; who waits for whom; calls; depth.
BRANCHES: dict[str, tuple[Model, dict[str, Any], dict[str, list[str]], int, int]] = {
    "low": (model("low"), {}, {"triage:0": [], "answer:0": ["triage:0"]}, 2, 2),
    "agree at once": (model(), {}, moderate(0), 8, 4),
    "agree after talk": (model(agree=2), {}, moderate(1), 23, 7),
    "never agree": (model(agree=None), {}, moderate(3), 53, 13),
    "two turns": (model(agree=2), {"turns": 2}, moderate(1, turns=2), 28, 8),
    "no review": (model(agree=2), {"preset": "no-review"}, moderate(1, review=False), 18, 6),
    "high": (model("high"), {}, high(), 15, 12),
    "parallel": (model("high"), {"team_order": "parallel"}, high(parallel=True), 15, 6),
    "unled": (model("high"), {"team_discussion": False}, high(discussion=False), 12, 9),
}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("seed", range(3))
def test_every_call_starts_when_what_it_reads_is_there(branch: str, seed: int) -> None:
    said, settings, waits, calls, _ = BRANCHES[branch]
    seen = solve(said, seconds=dyadic(seed), **settings)
    assert len(seen.spans) == calls
    check(seen, waits)
    assert seen.decision == solve(said, **settings).decision  # whatever the order of arrival


@pytest.mark.parametrize("branch", BRANCHES)
def test_depth_and_answer(branch: str) -> None:
    said, settings, _, _, depth = BRANCHES[branch]
    seen = solve(said, **settings)
    assert (seen.makespan, seen.decision.option) == (depth, "B")


@pytest.mark.parametrize(("level", "depth"), [("low", 1), ("moderate", 3), ("high", 11)])
def test_a_forced_path_needs_no_triage(level: str, depth: int) -> None:
    seen = solve(model(level), complexity=level)
    assert (seen.count("triage"), seen.makespan) == (0, depth)
    assert (seen.decision.detail["complexity"], seen.decision.detail["triage"]) == (level, "forced")


@pytest.mark.parametrize("reply", ["Hard to say.", "low or high", Empty("nothing")])
def test_an_unclear_triage_means_moderate_and_is_recorded(reply: Said) -> None:
    detail = solve(model(triage=reply)).decision.detail
    assert (detail["complexity"], detail["triage"]) == ("moderate", "unclear")


def test_low_shows_three_solved_questions() -> None:
    seen = solve(model("low"))
    assert seen.prompt("answer:0").count("\nThought: ") == 3 + 1
    assert len(seen.decision.detail["exemplars"]) == 3
    assert "solved example" not in solve(model("low"), shots=0).prompt("answer:0")


def test_messages_and_feedback_reach_those_they_are_for() -> None:
    seen = solve(model(agree=3), turns=2)
    for n in range(N):
        sender = (n - 1) % N  # whose messages the model sends to expert n + 1
        second_turn, again = seen.prompt(f"discuss:{N + n}"), seen.prompt(f"answer:{N + n}")
        heading = f"to you from expert {sender + 1} (Role {sender + 1})"
        assert f"{heading}:\nnote {sender}\n" in second_turn
        assert [m for m in range(N) if f"note {m}\n" in second_turn] == sorted({n, sender})
        assert f"note {N + sender}\n" in again
        assert f"answer {n}\n" in again
        assert [m for m in range(N) if f"feedback {m} says" in again] == [n]
        assert f"note {sender}\n" in seen.prompt(f"answer:{2 * N + n}")
        assert all(f"answer {m}\n" in seen.prompt(f"discuss:{n}") for m in range(N))
        assert all(f"note {m}\n" in seen.prompt(f"feedback:{n}") for m in range(2 * N))
    decision = seen.prompt("decide:0")
    assert all(f"answer {n}\n" in decision for n in range(3 * N))
    assert all(f"note {n}\n" in decision for n in range(4 * N))
    assert all(f"feedback {n} says" in decision for n in range(2 * N))


def test_record_of_a_discussion() -> None:
    seen = solve(model(agree=2, discuss_3="It is hot today.", discuss_4="Message to 9: far"))
    detail = seen.decision.detail
    names = [f"Role {n}" for n in range(1, N + 1)]
    assert detail["experts"] == names
    assert (detail["rounds"], detail["consensus"]) == (1, True)
    assert detail["answers"] == [
        dict(zip(names, "CBBBB", strict=True)),
        dict(zip(names, "BBBBB", strict=True)),
    ]
    sent = [[f"Role {n}", f"Role {n + 1}"] for n in (1, 2, 3)]
    assert detail["messages"] == [sent, []]
    assert detail["unclear_messages"] == [["Role 4", "Role 5"], []]
    assert "It is hot" not in seen.prompt("decide:0")


def test_where_nobody_wants_to_talk_the_first_answers_decide() -> None:
    seen = solve(model(agree=None, discuss="No message"))
    assert (len(seen.spans), seen.decision.detail["rounds"]) == (8 + N, 0)
    assert seen.decision.detail["consensus"] is False
    assert all(f"answer {n}\n" in seen.prompt("decide:0") for n in range(N))


def test_garbled_or_silent_talk_ends_no_discussion() -> None:
    for reply in ("Well.", Empty("nothing")):
        seen = solve(model(agree=None, discuss=reply))
        assert (seen.decision.detail["rounds"], seen.count("feedback")) == (3, 3 * N)


def test_unread_answers_agree_with_none() -> None:
    detail = solve(model(answer="No idea."), rounds=1).decision.detail
    assert (detail["consensus"], [*detail["answers"][1].values()]) == (False, [None] * N)


@pytest.mark.parametrize("level", ["low", "moderate", "high"])
def test_unparsed_decision_names_no_option(level: str) -> None:
    stage = "answer" if level == "low" else "decide"
    replies: dict[str, Any] = {stage: "It depends."}
    assert solve(model(level, **replies)).decision.option is None


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("1) Role – x (Hierarchy: Role > Nurse)", 1),
        ("\n".join(f"{n}. Role - x" for n in range(1, 8)), 7),
        ("I recruit nobody.", 0),
        (Empty("nothing"), 0),
    ],
)
def test_a_team_always_has_its_size_and_distinct_names(reply: Said, named: int) -> None:
    detail = solve(model(recruit=reply)).decision.detail
    assert len({name.casefold() for name in detail["experts"]}) == N
    padded, cut = max(0, N - named), max(0, named - N)
    assert detail["recruit"] == {"named": named, "padded": padded, "cut": cut}
    detail = solve(model("high", recruit=reply)).decision.detail
    assert [*detail["teams"]] == [*TEAMS]
    assert len({name for names in detail["teams"].values() for name in names}) == 9


def test_teams_come_in_the_papers_order_and_each_once() -> None:
    doctor, boss = Member("Doctor"), Member("Boss", lead=True)
    final, labs, imaging = (
        Team(name, (doctor, boss)) for name in ("Review Team", "Labs", "Imaging")
    )
    teams, record = care_teams([final, labs, imaging], 3, 1)
    assert [team.name for team in teams] == ["Labs", "Imaging", "Review Team"]
    assert [team.members[0].name for team in teams] == ["Boss", "Boss (2)", "Boss (3)"]
    assert record["members"]["Labs"] == {"named": 2, "padded": 0, "cut": 1}
    teams, record = care_teams([final, labs, imaging], 2, 1)
    assert ([team.name for team in teams], record["cut"]) == (["Labs", "Review Team"], 1)
    teams, record = care_teams([labs], 4, 1)
    names = [TEAMS[0], "Labs", "Diagnostic Evidence Team", TEAMS[2]]
    assert ([team.name for team in teams], record["padded"]) == (names, 3)


def test_every_team_reads_the_earlier_reports_and_the_decision_all() -> None:
    seen = solve(model("high"))
    for name, read in {"discuss:0": 0, "discuss:3": 1, "report:1": 1, "discuss:8": 2}.items():
        assert [f"report {n} says" in seen.prompt(name) for n in range(3)] == [
            n < read for n in range(3)
        ]
    assert all(f"report {n} says" in seen.prompt("decide:0") for n in range(3))
    assert all(f"note {n}" in seen.prompt("report:1") for n in (4, 5))
    parallel = solve(model("high"), team_order="parallel")
    assert "report 0 says" not in parallel.prompt("report:2")
    assert all(f"report {n} says" in parallel.prompt("decide:0") for n in range(3))


def test_ensemble_of_temperatures() -> None:
    said = model("high", decide_0="Option: C", decide_3="Who knows.")
    seen = solve(said, preset="ensemble")
    temperatures = [seen.bodies[f"decide:{n}"]["temperature"] for n in range(5)]
    assert temperatures == [0.0, 0.3, 0.7, 1.0, 1.2]
    ensemble = seen.decision.detail["ensemble"]
    assert (seen.decision.option, ensemble["options"]) == ("B", ["C", "B", "B", None, "B"])
    assert (seen.makespan, ensemble["invalid"]) == (12, 1)


FAILING = {
    "low": ["triage", "answer"],
    "moderate": ["triage", "recruit", "answer", "discuss", "feedback", "decide"],
    "high": ["triage", "recruit", "discuss", "report", "decide"],
}


@pytest.mark.parametrize(
    ("level", "stage"), [(level, stage) for level, stages in FAILING.items() for stage in stages]
)
@pytest.mark.parametrize("error", [Unavailable("gone"), Refused(400, "too long")])
def test_a_failed_call_fails_the_question(level: str, stage: str, error: CallError) -> None:
    with pytest.raises(type(error)) as caught:
        solve(model(level, agree=None, **{stage: error}))
    assert caught.value.stage == stage


@pytest.mark.parametrize("level", ["low", "moderate", "high"])
def test_layouts_have_the_same_words(level: str) -> None:
    said = model(level, agree=2)
    paper, shared = solve(said), solve(said, layout="shared-prefix")
    for name in paper.bodies:
        assert sorted(paper.prompt(name).split()) == sorted(shared.prompt(name).split())
        assert QUESTION.text in paper.prompt(name)
