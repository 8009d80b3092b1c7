"""Majority, weighted and Borda voting: who wins, by which rule, and that no failure votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medagents_async.errors import CallError, Empty, Refused, Unavailable
from medagents_async.methods.borda_count import points
from medagents_async.types import Call
from tests.support.bench import QUESTION, Said, Seen, answer

METHODS = {
    "majority-vote": ("answer", "Thought: so.\nOption: {}"),
    "weighted-vote": ("answer", "Option: {}\nConfidence: 80%"),
    "borda-count": ("rank", "Ranking: {}"),
}


def vote(method: str, replies: Sequence[Said], **settings: Any) -> Seen:
    """Voter n says `replies[n]`; the later a voter's number, the earlier its reply."""
    return answer(
        lambda call: replies[call.n],
        method=method,
        seconds=lambda call: 1 + len(replies) - call.n,
        agents=len(replies),
        **settings,
    )


@pytest.mark.parametrize("method", METHODS)
def test_all_voters_are_asked_at_once(method: str) -> None:
    stage, form = METHODS[method]
    seen = answer(lambda _: form.format("C"), method=method)
    assert seen.spans == {f"{stage}:{n}": (0, 1) for n in range(5)}
    assert seen.decision.option == "C"
    assert [step.agent for step in seen.steps][:2] == ["Internal Medicine", "Emergency Medicine"]
    for n in range(5):
        for letter, text in QUESTION.options.items():
            assert f"({letter}) {text}" in seen.prompt(f"{stage}:{n}")


@pytest.mark.parametrize("method", METHODS)
def test_roles_go_round_and_their_names_are_told_apart(method: str) -> None:
    stage, form = METHODS[method]
    seen = answer(lambda _: form.format("C"), method=method, roles="Urology|Surgery", agents=3)
    assert [step.agent for step in seen.steps] == ["Urology", "Surgery", "Urology (2)"]
    assert "(2)" not in seen.prompt(f"{stage}:2")


@pytest.mark.parametrize("method", METHODS)
def test_layouts_have_the_same_words(method: str) -> None:
    stage, form = METHODS[method]
    paper = answer(lambda _: form.format("C"), method=method)
    shared = answer(lambda _: form.format("C"), method=method, layout="shared-prefix")
    assert len(paper.bodies[f"{stage}:0"]["messages"]) == 2
    assert len(shared.bodies[f"{stage}:0"]["messages"]) == 1
    for name in paper.bodies:
        assert sorted(paper.prompt(name).split()) == sorted(shared.prompt(name).split())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [Unavailable("gone"), Refused(400, "too long")])
def test_a_failed_call_fails_the_question(method: str, error: CallError) -> None:
    stage, form = METHODS[method]

    def said(call: Call) -> Said:
        return error if call.n == 3 else form.format("C")

    with pytest.raises(type(error)) as caught:
        answer(said, method=method)
    assert caught.value.stage == stage


@pytest.mark.parametrize("method", METHODS)
def test_who_says_nothing_or_nothing_clear_has_no_vote(method: str) -> None:
    form = METHODS[method][1]
    seen = vote(method, [Empty("nothing"), "Who knows.", form.format("Z"), form.format("B")])
    assert seen.decision.option == "B"
    assert seen.decision.detail["invalid"] == 3
    seen = vote(method, ["Who knows.", "Option, ranking, confidence?"])
    assert (seen.decision.option, seen.decision.detail["invalid"]) == (None, 2)
    with pytest.raises(Empty):
        vote(method, [Empty("nothing")] * 2)


@pytest.mark.parametrize(
    ("letters", "winner", "tied"),
    [("BBBAC", "B", []), ("CABBB", "B", []), ("CABBA", "A", ["A", "B"]), ("DCBA", "D", [*"ABCD"])],
)
def test_majority(letters: str, winner: str, tied: list[str]) -> None:
    seen = vote("majority-vote", [f"Option: {letter}" for letter in letters])
    detail = seen.decision.detail
    assert (seen.decision.option, detail["tied"]) == (winner, tied)
    assert detail["votes"] == {key: letters.count(key) for key in "ABCD" if key in letters}
    assert [*detail["answers"].values()] == [*letters]


@pytest.mark.parametrize(
    ("ballots", "winner", "votes"),
    [
        (["A 90%", "B 40%", "B 40%"], "A", {"A": 90, "B": 80}),
        (["A 30", "A 0.3", "B 60%"], "A", {"A": 60, "B": 60}),
        (["B 10%", "A 20%", "B 10%", "A 0%"], "B", {"A": 20, "B": 20}),
        (["A surely", "B 40%"], "A", {"A": 50, "B": 40}),
        (["A 150%", "B 60%"], "B", {"A": 50, "B": 60}),
        (["C 0%", "Z 100%"], "C", {"C": 0}),
    ],
)
def test_weights_are_the_stated_confidences(
    ballots: list[str], winner: str, votes: dict[str, int]
) -> None:
    replies = ["Option: {}\nConfidence: {}".format(*ballot.split()) for ballot in ballots]
    seen = vote("weighted-vote", replies)
    assert seen.decision.option == winner
    assert seen.decision.detail["votes"] == votes


def test_an_unstated_confidence_is_recorded_and_weighs_as_told() -> None:
    replies = ["Option: A", "Option: B\nConfidence: 40%"]
    seen = vote("weighted-vote", replies, unstated_confidence=0)
    assert seen.decision.option == "B"
    assert [*seen.decision.detail["confidences"].values()] == [None, 40]


@pytest.mark.parametrize(
    ("rankings", "winner", "scores"),
    [
        (["A > B > C > D", "B > C > A > D"], "B", [4, 5, 3, 0]),
        # Nobody's first choice of three may win: it is what the rule is for.
        (["A > C > B > D", "B > C > A > D", "D > C > A > B"], "C", [5, 4, 6, 3]),
        # A ranking of one option gives it as much as one of all.
        (["A", "B > A"], "A", [5, 4, 1.5, 1.5]),
        (["A > B", "B > A"], "A", [5, 5, 1, 1]),
        (["B > A", "A > B"], "B", [5, 5, 1, 1]),
        (["A > B > C > D", "D > C > B > A"], "A", [3, 3, 3, 3]),
    ],
)
def test_borda_points_and_ties(rankings: list[str], winner: str, scores: list[float]) -> None:
    seen = vote("borda-count", [f"Ranking: {ranking}" for ranking in rankings])
    detail = seen.decision.detail
    assert seen.decision.option == winner
    assert detail["points"] == dict(zip("ABCD", scores, strict=True))
    best = [key for key, score in detail["points"].items() if score == max(scores)]
    assert detail["tied"] == (best if len(best) > 1 else [])


def test_unlisted_options_get_nothing_where_told() -> None:
    seen = vote("borda-count", ["Ranking: A", "Ranking: B > C"], unlisted="zero")
    assert seen.decision.detail["points"] == {"A": 3, "B": 3, "C": 2, "D": 0}
    assert seen.decision.option == "A"


OPTIONS = [*"ABCDEF"]
RANKINGS = st.lists(
    st.tuples(st.permutations(OPTIONS), st.integers(1, 6)).map(lambda pair: pair[0][: pair[1]]),
    max_size=6,
)


@given(RANKINGS)
def test_every_ranking_hands_out_the_same_points(rankings: list[list[str]]) -> None:
    scores = points(rankings, OPTIONS, "average")
    assert sum(scores.values()) == len(rankings) * sum(range(6))
    for ranking in rankings:
        alone = points([ranking], OPTIONS, "average")
        assert [alone[option] for option in ranking] == [5.0, 4, 3, 2, 1, 0][: len(ranking)]
