"""What agents of groups reply: rankings, confidences, triages, teams and messages."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medagents_async.parsing import (
    Member,
    Team,
    complexity,
    confidence,
    members,
    messages,
    ranking,
    teams,
)

DRUGS = {"A": "Aspirin", "B": "Heparin", "C": "Furosemide", "D": "Vitamin D, or A"}


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ("Ranking: B > A > D > C", "BADC"),
        ("**Ranking:** (B) > (A) > (D) > (C).", "BADC"),
        ("Ranking: b > a", "BA"),
        ("Ranking: B, A; D", "BAD"),
        ("Ranking: B", "B"),
        ("Ranking: B (Heparin) > A. Aspirin > D: Vitamin D, or A", "BAD"),
        ("Final ranking:\n\n1. B\n2. (A) Aspirin\n3. **D** - weak\n\nSo B.", "BAD"),
        ("Ranking: 1. B, 2. A", "BA"),
        ("Ranking: A > B\nNo, wait.\nRanking: B > A", "BA"),
        ("Ranking: [best] > [next]\nI say B.", None),
        ("Ranking: B > A > B", None),
        ("Ranking: B > E", None),
        ("Ranking: B = A > C", None),
        ("Ranking: B > A/C", None),
        ("Ranking: B > A, C", None),
        ("Ranking: A. B > C", None),
        ("Ranking: 2. A, 1. B", None),
        ("Ranking: A patient > B", None),
        ("B is best, then A.", None),
        ("<think>Ranking: B > A", None),
        ("", None),
    ],
)
def test_ranking(reply: str, order: str | None) -> None:
    assert ranking(reply, DRUGS) == (None if order is None else [*order])


def test_a_cut_ranking_counts_only_where_it_is_complete() -> None:
    assert ranking("Ranking: B > A", DRUGS, cut=True) is None
    assert ranking("Ranking: B > A > C > D", DRUGS, cut=True) == [*"BACD"]


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        ("Confidence: 85%", 0.85),
        ("Confidence: 85", 0.85),
        ("**Confidence level:** 0.85", 0.85),
        ("Confidence (0-100): 70 percent.", 0.7),
        ("My confidence is 8/10", 0.8),
        ("Confidence: 9 out of 10.", 0.9),
        ('{"confidence_level": 1}\nConfidence: 1.0', 1.0),
        ("Confidence: 100%", 1.0),
        ("Confidence: 0", 0.0),
        ("Confidence: 20%\nConfidence: 30%", 0.3),
        ("Confidence: 1", None),
        ("Confidence: 1.2", None),
        ("Confidence: 120%", None),
        ("Confidence: 1200", None),
        ("Confidence: 80-90%", None),
        ("Confidence: 8/0", None),
        ("Confidence: -5%", None),
        ("Confidence: high", None),
        ("85%", None),
        ("", None),
    ],
)
def test_confidence(reply: str, share: float | None) -> None:
    assert confidence(reply) == share


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ("Complexity: low", "low"),
        ("**Complexity:** Moderate\nReason: two systems.", "moderate"),
        ("Complexity level is HIGH - many comorbidities", "high"),
        ("moderate", "moderate"),
        ("**High**.", "high"),
        ("2) intermediate", "moderate"),
        ("Complexity: low\nOn reflection:\nComplexity: high", "high"),
        ("Complexity: low, moderate or high", None),
        ("Complexity: not high", None),
        ("Complexity: low to moderate", None),
        ("Complexity: moderate-high", None),
        ("The patient is at high risk and has low pressure.", None),
        ("The blood pressure was high.", None),
        ("Complexity: unclear", None),
        ("highly moderated", None),
        ("", None),
    ],
)
def test_complexity(reply: str, level: str | None) -> None:
    assert complexity(reply) == level


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("1. Cardiologist - the heart", [Member("Cardiologist", "the heart")]),
        (
            "Here are the experts:\n"
            "1) Cardiologist – treats hearts (Hierarchy: Cardiologist > Nurse)\n"
            "2) **Nurse** - cares - Hierarchy: Independent",
            [Member("Cardiologist", "treats hearts"), Member("Nurse", "cares")],
        ),
        ("Member 1: Surgeon | trauma", [Member("Surgeon", "trauma")]),
        ("Lead: Internist\nExpert 2: Surgeon", [Member("Internist", lead=True), Member("Surgeon")]),
        ("Medical Field: Cardiology | Urology", [Member("Cardiology"), Member("Urology")]),
        ("1. 42\n2. ---", []),
        ("I cannot say.", []),
        ("", []),
    ],
)
def test_members(reply: str, found: list[Member]) -> None:
    assert members(reply) == found


def test_teams() -> None:
    assert teams(
        "Sure, these groups may help:\n1. Nobody - nothing\n"
        "**Team 1: Initial Assessment Team (IAT)**\nLead: Internist - triage\nMember 1: Nurse\n\n"
        "Group 2 - Final Review and Decision Team\nMember 1 (Lead): Surgeon - trauma\n"
    ) == [
        Team(
            "Initial Assessment Team (IAT)",
            (Member("Internist", "triage", lead=True), Member("Nurse")),
        ),
        Team("Final Review and Decision Team", (Member("Surgeon", "trauma", lead=True),)),
    ]
    assert teams("There is no team: I am alone.") == teams("") == []


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("Message to 2: Why B?\nThink of K.", [(2, "Why B?\nThink of K.")]),
        ("**Message to Expert 1:** Yes.\nTo 2: No.", [(1, "Yes."), (2, "No.")]),
        ("Message to 1 and 2 (the surgeons): Hm.", [(1, "Hm."), (2, "Hm.")]),
        ("Message to all: Hm.", [(1, "Hm."), (2, "Hm.")]),
        ("Message to 3: me\nMessage to 1: you", [(1, "you")]),
        ("Message to 9: far\nMessage to 1: near", [(1, "near")]),
        ("No message", []),
        ("I agree with all of them.\n**No message.**", []),
        ("Message to 9: far", None),
        ("Message to 1:", None),
        ("To be sure: one would need tests.", None),
        ("I have no message from home", None),
        ("", None),
    ],
)
def test_messages_of_the_last_of_three(reply: str, found: list[tuple[int, str]] | None) -> None:
    assert messages(reply, 3, sender=3) == found


READERS: list[Callable[[str], object]] = [
    lambda text: ranking(text, DRUGS),
    confidence,
    complexity,
    members,
    teams,
    lambda text: messages(text, 5, 1),
]
PIECES = st.sampled_from(
    "Ranking: |Confidence: |Complexity: |Message to |all|Team 1: |Lead|Member 2: |1. |2) |A|B|> |, "
    "|%|0.9|80|low|high| - |\n|**|no message|<think>|</think>|(|:|é|\x00".split("|")
)


@pytest.mark.parametrize("read", READERS)
@given(text=st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_total(read: Callable[[str], object], text: str) -> None:
    read(text)


@given(st.permutations([*"ABCD"]), st.integers(1, 4))
def test_every_ranking_reads_back(order: list[str], length: int) -> None:
    listed = order[:length]
    assert ranking(f"Because.\nRanking: {' > '.join(listed)}", DRUGS) == listed


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "unit",
    ["\n", " ", "*", "Ranking: ", "Confidence ", "Member ", "> A ", "to 1, ", "Lead (", "- "],
)
def test_time_is_linear(read: Callable[[str], object], unit: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        read("Member " + unit * count)
        return time.process_time() - start

    assert seconds(20_000) < 1
