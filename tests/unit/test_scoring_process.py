"""What the methods record of their consultations, read back by its shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medagents_async.scoring.consultation import consultations
from medagents_async.scoring.process import process
from tests.support.records import made

MEDAGENTS: dict[str, Any] = {
    "question_experts": ["Cardiology", "Nephrology"],
    "option_experts": ["Cardiology (2)"],
    "rounds": 2,
    "agreed": True,
    "votes": [
        {"Cardiology": "yes", "Nephrology": "no", "Cardiology (2)": "unclear"},
        {"Cardiology": "yes", "Nephrology": "yes", "Cardiology (2)": "yes"},
    ],
}
MODERATE: dict[str, Any] = {
    "complexity": "moderate",
    "experts": ["Cardiologist", "Nurse", "Surgeon"],
    "rounds": 1,
    "consensus": True,
    "answers": [
        {"Cardiologist": "B", "Nurse": "A", "Surgeon": None},
        {"Cardiologist": "A", "Nurse": "A", "Surgeon": "A"},
    ],
}
HIGH = {"complexity": "high", "teams": {"Initial": ["Nurse", "Surgeon"], "Final": ["Nurse (2)"]}}


def test_votes_on_a_report() -> None:
    found = process(MEDAGENTS)
    assert found.experts == ("Cardiology", "Nephrology", "Cardiology")
    assert (found.rounds, found.agreed, found.counted) == (2, True, "votes")
    assert found.votes == ((1, 1, 1), (3, 0, 0))
    assert [*found.entropies] == pytest.approx([1.585, 0], abs=1e-3)
    assert found.first is None


def test_answers_by_round() -> None:
    """A reply without an option is no answer; of equal ones the first member's leads."""
    found = process(MODERATE)
    assert (found.complexity, found.agreed, found.counted) == ("moderate", True, "answers")
    assert [*found.entropies] == [1, 0]
    assert found.first == "B"
    assert found.votes == ()


def test_teams() -> None:
    assert process(HIGH).experts == ("Nurse", "Surgeon", "Nurse")


@pytest.mark.parametrize(
    ("detail", "entropies", "first"),
    [
        ({"votes": {"A": 2, "B": 2}, "invalid": 1, "tied": ["A", "B"]}, (1,), None),
        ({"answers": {"x": "A", "y": "B"}, "votes": {"A": 90, "B": 10}}, (1,), None),
        ({"drafts": {"votes": {"A": 1, "B": 4}, "tied": []}, "votes": {"A": 3}}, (0,), "B"),
        ({"drafts": {"votes": {"A": 1, "B": 1}, "tied": ["A", "B"]}}, (), None),
        ({"answers": [{"x": None, "y": None}]}, (None,), None),
        ({"votes": {}}, (None,), None),
        ({"votes": "?"}, (), None),
    ],
)
def test_counts_of_votes(
    detail: dict[str, Any], entropies: tuple[float, ...], first: str | None
) -> None:
    found = process(detail)
    assert (found.entropies, found.first) == (entropies, first)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*MEDAGENTS, *MODERATE, *HIGH, "drafts", "consensus"])


@given(st.dictionaries(NAMES, JSON))
@settings(deadline=None, max_examples=300)
def test_any_detail_is_read(detail: dict[str, Any]) -> None:
    """A user's own method may write what it likes."""
    consultations([made(1, detail=detail)])


def test_a_run_of_consultations() -> None:
    run = [
        made(1, "A", "A", detail=MODERATE),
        made(2, "A", "B", detail=MODERATE),
        made(3, "C", "C", detail=MODERATE | {"answers": [{"x": "C"}], "consensus": False}),
        made(4, None, "B", detail=MODERATE),  # came to no decision
        made(5, "A", "A", detail=HIGH),
    ]
    found = consultations(run)
    assert found.rounds == {"1": 4}
    assert found.agreed == 0.75
    assert {level: score.rows for level, score in found.complexity.items()} == {
        "high": 1,
        "moderate": 4,
    }
    assert [(each.round, each.questions, each.mean) for each in found.entropy] == [
        (1, 4, 0.75),
        (2, 3, 0),
    ]
    assert found.experts[0] == ("Nurse", 6)
    assert found.distinct_experts == 3
    flips = found.flips
    assert flips is not None
    assert (flips.rows, flips.right_to_wrong, flips.wrong_to_right) == (3, 1, 1)
    assert (flips.stayed_right, flips.stayed_wrong) == (1, 0)


def test_flips_are_not_invented() -> None:
    found = consultations([made(1, detail=MEDAGENTS)])
    assert found.flips is None
    assert found.no_flips is not None
    assert "not defined" in found.no_flips
    assert [(v.round, v.yes, v.no, v.unclear) for v in found.votes] == [(1, 1, 1, 1), (2, 3, 0, 0)]


def test_one_field_in_two_spellings_is_one() -> None:
    run = [made(n, detail={"experts": [name]}) for n, name in enumerate(["Oncology", "oncology"])]
    assert consultations(run).experts == [("Oncology", 2)]
