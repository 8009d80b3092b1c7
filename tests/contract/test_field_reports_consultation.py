"""Faults that users of such evaluators reported, P11 to P29: what becomes of a whole consultation.

Every case is one question of the same run of the real command. Experts agree and the model answers
in good form, except in the stages that the case replaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import Run

Said = str | Reply
#: What is said in a stage, or in the call n of a stage as "stage/n".
Replies = Mapping[str, Said]
EXPERTS = 7  # five on the question, two on the options
RETRIES = 2
VOTE_TOKENS, RECRUIT_TOKENS = 30, 50

NULL = Reply(body=b'{"choices":[{"index":0,"message":{"content":null}}]}')
MUSINGS = "<think>S3NTINEL, so NO, hence Option: A</think>\n"
ENDLESS = "<think>" + "hm " * 100

VOTES: dict[str, tuple[Said, str]] = {
    "P12-know": ("I know this report well: YES", "yes"),
    "P12-diagnosis": ("The diagnosis is right. YES.", "yes"),
    "P12-no-revisions": ("**YES, no revisions needed**", "yes"),
    "P12-bold": ("**NO**", "no"),
    "P12-bold-stop": ("**No.**", "no"),
    "P12-brackets": ("[NO]", "no"),
    "P12-empty": ("", "unclear"),
    "P12-neither": ("Nothing is known.", "unclear"),
    "P27-in-reasoning": (Reply("", reasoning="YES"), "unclear"),
    "P29-cut-thought": (ENDLESS, "unclear"),
    "P29-cut-reasoning": (Reply("YES", reasoning="hm " * 100), "unclear"),
}

#: The reply, and how many fields it names.
FIELDS: dict[str, tuple[Said, int]] = {
    "P14-mixed": ("Medical Field: Cardiology|Nephrology, \n1. Neurology", 3),
    "P14-bullets": ("**Medical Fields:**\n- Cardiology\n- Nephrology\n- Neurology", 3),
    "P14-seven": (
        "Medical Field: Cardiology | Nephrology | Neurology | Surgery | Urology | Oncology | ENT",
        7,
    ),
    "P14-one": ("Medical Field: Cardiology", 1),
    "P14-same": ("Medical Field: " + " | ".join(["Cardiology"] * 5), 5),
    "P14-empty": ("", 0),
    "P14-prose": ("The patient has chest pain.", 0),
    "P25-null-fields": (NULL, 0),
    "P29-cut-fields": (ENDLESS, 0),
}

#: The report's reply, and what of it every voter and the decision must see.
REPORTS: dict[str, tuple[str, list[str]]] = {
    "P15-missing": ("Oedema speaks for C.", ["Oedema speaks for C."]),
    "P15-bold": ("**Total Analysis:** Oedema speaks for C.", ["Oedema speaks for C."]),
    "P15-capitals": ("TOTAL ANALYSIS\nOedema speaks for C.", ["Oedema speaks for C."]),
    "P15-both": (
        "Key Knowledge: The loop acts first.\nTotal Analysis: Oedema speaks for C.",
        ["The loop acts first.", "Oedema speaks for C."],
    ),
    "P15-both-bold": (
        "**Key Knowledge**:\nThe loop acts first.\n\n**Total Analysis**:\nOedema speaks for C.",
        ["The loop acts first.", "Oedema speaks for C."],
    ),
}

OTHERS: dict[str, Replies] = {
    "P11-failed-call": {"decide": Reply(status=500)},
    "P25-one-vote": {"vote/2": NULL, f"vote/{EXPERTS + 2}": NULL},
    "P25-report": {"summarise": NULL},
    "P28-thinking": {},
}

CASES: dict[str, Replies] = {
    **{case: {"vote": said} for case, (said, _) in VOTES.items()},
    **{case: {"recruit_question": said} for case, (said, _) in FIELDS.items()},
    **{case: {"summarise": said} for case, (said, _) in REPORTS.items()},
    **OTHERS,
}


def script(request: Request) -> Reply:
    replies = CASES[request.question_id]
    said = replies.get(f"{request.stage}/{request.n}", replies.get(request.stage))
    if said is not None:
        return Reply(said) if isinstance(said, str) else said
    usual = Reply("YES") if request.stage == "vote" else plausible(request)
    return Reply(f"{MUSINGS}{usual.text}") if request.question_id == "P28-thinking" else usual


@pytest.fixture(scope="module")
def consulted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The row of every case; under "manifest" the run's manifest."""
    questions = [
        {
            "id": case,
            "question": "A man has oedema. What helps?",
            "options": {"A": "Aspirin", "B": "Heparin", "C": "Furosemide", "D": "Digoxin"},
            "answer": "A",
        }
        for case in CASES
    ]
    limits = {"rounds": 1, "vote_tokens": VOTE_TOKENS, "recruit_tokens": RECRUIT_TOKENS}
    settings = [part for item in limits.items() for part in ("--set", "{}={}".format(*item))]
    with running(script) as simulator:
        job = Run(tmp_path_factory.mktemp("consulted"), simulator.url, questions)
        assert job(*settings, "--retries", str(RETRIES)).code == 1
    rows = {row["id"]: row for row in job.rows()}
    assert len(rows) == len(CASES)
    return {**rows, "manifest": job.manifest()}


def prompts(row: dict[str, Any], stage: str) -> list[str]:
    return [
        "\n".join(message["content"] for message in step["request"]["messages"])
        for step in row["trace"]
        if step["stage"] == stage
    ]


@pytest.mark.parametrize("case", VOTES)
def test_vote(consulted: dict[str, Any], case: str) -> None:
    row = consulted[case]
    assert row["status"] == "ok"
    (votes,) = row["detail"]["votes"]
    assert list(votes.values()) == [VOTES[case][1]] * EXPERTS


@pytest.mark.parametrize("case", FIELDS)
def test_every_expert_is_there_and_votes(consulted: dict[str, Any], case: str) -> None:
    row, named = consulted[case], FIELDS[case][1]
    detail = row["detail"]
    assert row["status"] == "ok"
    assert detail["recruit_question"] == {
        "named": named,
        "padded": max(0, 5 - named),
        "cut": max(0, named - 5),
    }
    experts = [*detail["question_experts"], *detail["option_experts"]]
    assert len(set(experts)) == len(experts) == EXPERTS
    for stage, speakers in {
        "analyse_question": detail["question_experts"],
        "analyse_option": detail["option_experts"],
        "vote": experts,
    }.items():
        assert [step["agent"] for step in row["trace"] if step["stage"] == stage] == speakers
    assert detail["votes"] == [dict.fromkeys(experts, "yes")]


@pytest.mark.parametrize("case", REPORTS)
def test_report_reaches_voters_and_decision(consulted: dict[str, Any], case: str) -> None:
    row = consulted[case]
    assert row["status"] == "ok"
    seen = [*prompts(row, "vote"), *prompts(row, "decide")]
    assert len(seen) == EXPERTS + 1
    for prompt in seen:
        assert all(part in prompt for part in REPORTS[case][1])


def test_p11_failed_call_is_an_error_not_an_answer(consulted: dict[str, Any]) -> None:
    row = consulted["P11-failed-call"]
    assert (row["status"], row["prediction"], row["correct"]) == ("error", None, False)
    assert (row["error"]["kind"], row["error"]["stage"]) == ("unavailable", "decide")
    assert row["trace"][-1]["attempts"] == 1 + RETRIES
    assert row["trace"][-1]["reply"] is None


def test_p25_null_content_costs_one_vote(consulted: dict[str, Any]) -> None:
    row = consulted["P25-one-vote"]
    assert row["status"] == "ok"
    (votes,) = row["detail"]["votes"]
    assert list(votes.values()) == ["yes", "yes", "unclear", "yes", "yes", "yes", "yes"]


def test_p25_null_content_costs_at_most_its_question(consulted: dict[str, Any]) -> None:
    row = consulted["P25-report"]
    assert (row["status"], row["prediction"]) == ("error", None)
    assert (row["error"]["kind"], row["error"]["stage"]) == ("empty", "summarise")
    failed = [case for case in CASES if consulted[case]["status"] == "error"]
    assert sorted(failed) == ["P11-failed-call", "P25-report"]


def test_p28_thought_reaches_no_other_agent(consulted: dict[str, Any]) -> None:
    row = consulted["P28-thinking"]
    assert row["status"] == "ok"
    assert set(row["detail"]["votes"][0].values()) == {"yes"}
    for step in row["trace"]:
        assert "S3NTINEL" in step["reasoning"]
        assert "S3NTINEL" not in step["reply"]
        assert all("S3NTINEL" not in message["content"] for message in step["request"]["messages"])


@pytest.mark.parametrize(
    ("case", "stage", "limit"),
    [
        ("P29-cut-thought", "vote", VOTE_TOKENS),
        ("P29-cut-reasoning", "vote", VOTE_TOKENS),
        ("P29-cut-fields", "recruit_question", RECRUIT_TOKENS),
    ],
)
def test_spent_limit_is_seen_and_told_by_stage(
    consulted: dict[str, Any], case: str, stage: str, limit: int
) -> None:
    row = consulted[case]
    steps = [step for step in row["trace"] if step["stage"] == stage]
    assert {step["request"]["max_tokens"] for step in steps} == {limit}
    cut = Counter(step["stage"] for step in row["trace"] if step["finish_reason"] == "length")
    assert cut == {stage: len(steps)}
    assert {step["usage"]["completion_tokens"] for step in steps} == {limit}
    assert row["truncated"] == len(steps)


def test_p29_truncated_replies_are_in_the_summary(consulted: dict[str, Any]) -> None:
    # Every vote of two questions, each asked for twice, and one list of fields.
    assert consulted["manifest"]["totals"]["truncated"] == 2 * 2 * EXPERTS + 1
