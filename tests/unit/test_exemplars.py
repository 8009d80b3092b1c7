"""Exemplars: which files hold some, which ones a question gets, and what is told of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async import methods
from medagents_async.errors import UsageError
from medagents_async.methods import exemplars
from medagents_async.methods.retrieval import Index
from medagents_async.methods.tally import leader, plurality
from medagents_async.types import Question
from tests.support.bench import QUESTION, answer

SHIPPED = exemplars.read(exemplars.SHIPPED)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "question": f"Question number {number}?",
        "options": {"A": "yes", "B": "no"},
        "answer": "AB"[number % 2],
        "explanation": f"Since {number}.",
        **more,
    }


def file(folder: Path, *rows: dict[str, Any] | str) -> str:
    path = folder / "exemplars.jsonl"
    lines = [line if isinstance(line, str) else orjson.dumps(line).decode() for line in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def shown(
    method: str = "few-shot-cot", question: Question = QUESTION, **settings: Any
) -> list[str]:
    seen = answer(lambda _: "Option: A", method=method, question=question, **settings)
    ids = seen.decision.detail["exemplars"]
    assert seen.prompt("answer:0").count("\nExample ") == len(ids)
    return list(ids)


def test_shipped_exemplars_are_five_with_balanced_letters() -> None:
    assert Counter(exemplar.answer for exemplar in SHIPPED) == Counter("ABCDE")
    assert [exemplar.answer for exemplar in SHIPPED] != sorted("ABCDE")
    for exemplar in SHIPPED:
        assert list(exemplar.question.options) == [*"ABCDE"]
        assert len(set(exemplar.question.options.values())) == 5
        assert exemplar.thought
        assert len({exemplar.question.id for exemplar in SHIPPED}) == 5


def test_shipped_thoughts_name_the_letters_that_they_rule_out() -> None:
    for exemplar in SHIPPED:
        named = set(re.findall(r"\b([A-E])\b", exemplar.thought or ""))
        assert named == {*"ABCDE"} - {exemplar.answer}


def test_shipped_exemplars_are_in_no_evaluation_set(data: Path) -> None:
    wanted = {exemplars.plain(exemplar.question.text)[:80] for exemplar in SHIPPED}
    for path in data.rglob("*.jsonl"):
        text = exemplars.plain(path.read_text(encoding="utf-8", errors="replace"))
        assert not any(words in text for words in wanted), path


def test_all_questions_share_the_prompt_up_to_their_own_text() -> None:
    prompts = [
        answer(
            lambda _: "Option: A",
            method="few-shot-cot",
            question=Question(f"q{n}", n, f"{n} is what?", {"A": "a", "B": "b"}),
        ).prompt("answer:0")
        for n in (1, 2)
    ]
    start = prompts[0].index("1 is what?")
    assert start > 2000
    assert prompts[0][:start] == prompts[1][:start]


def test_few_shot_shows_answers_and_no_thoughts() -> None:
    seen = answer(lambda _: "Option: A", method="few-shot")
    assert "Thought:" not in seen.prompt("answer:0")
    assert re.findall(r"\nOption: ([A-E])\n", seen.prompt("answer:0")) == [*"CEADB"]


@pytest.mark.parametrize(
    "question",
    [
        Question("shipped-2", 0, "Another question?", {"A": "a", "B": "b"}),
        Question("q", 0, f"  {SHIPPED[1].question.text.upper()} ", {"A": "a", "B": "b"}),
        Question("q", 0, SHIPPED[1].question.text.replace("-", "‑"), {"A": "a", "B": "b"}),
    ],
)
def test_a_question_is_never_its_own_exemplar(question: Question) -> None:
    assert shown(question=question) == ["shipped-1", "shipped-3", "shipped-4", "shipped-5"]


def test_line_numbers_are_no_ids(tmp_path: Path) -> None:
    rows = [{**row(n), "id": None} for n in range(5)]
    question = Question("1", 0, "Another?", {"A": "a", "B": "b"})
    assert shown(question=question, exemplars=file(tmp_path, *rows)) == [*"12345"]


def test_choice_depends_on_seed_and_question_alone(tmp_path: Path) -> None:
    path = file(tmp_path, *(row(n) for n in range(30)))
    other = Question("q2", 1, QUESTION.text, QUESTION.options)
    first = shown(exemplars=path)
    assert len(set(first)) == 5
    assert first == shown(exemplars=path) == shown("self-consistency", shots=5, exemplars=path)
    assert first != shown(exemplars=path, exemplar_seed=1)
    assert first != shown(question=other, exemplars=path)
    assert len(shown(exemplars=path, shots=3)) == 3


def test_shots_0_is_zero_shot_and_reads_no_file() -> None:
    assert shown(shots=0) == []
    settings = {"shots": 0, "exemplars": "missing.jsonl"}
    methods.find("few-shot").parameters(None, settings)


def test_only_rows_with_a_thought_serve_chain_of_thought(tmp_path: Path) -> None:
    path = file(tmp_path, *(row(n, explanation=None if n < 3 else "So.") for n in range(8)))
    assert shown(exemplars=path) == [f"e{n}" for n in range(3, 8)]
    assert len(shown("few-shot", exemplars=path, shots=8)) == 8


def test_published_exemplars_can_be_used(data: Path) -> None:
    path = str(data / "fewshot_medpalm" / "exemplars.jsonl")
    assert len(shown(exemplars=path)) == len(shown("few-shot", exemplars=path)) == 5


@pytest.mark.parametrize("name", ["few-shot", "few-shot-cot", "self-consistency", "medprompt"])
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(1), "{torn"], "line 2: not JSON"),
        ([row(1), "", row(2, answer="C")], "line 3: the answer 'C' is not among the options A, B"),
        ([row(1, answer=None)], "line 1: answer: an exemplar needs one"),
        ([row(1, explanation=["a"])], "line 1: explanation: not a text"),
        (["{torn"] * 25, "… and 5 more"),
        ([""], "holds no solved question"),
        ([row(1), row(2)], "has 2 solved questions"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, rows: list[Any], says: str) -> None:
    settings = {"exemplars": file(tmp_path, *rows), "shots": 5}
    with pytest.raises(UsageError) as caught:
        methods.find(name).parameters(None, settings)
    assert says in str(caught.value)


def test_missing_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cannot read nowhere.jsonl: .*Name a JSONL file"):
        methods.find("few-shot").parameters(None, {"exemplars": "nowhere.jsonl"})


def test_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = file(tmp_path, *(row(n) for n in range(5)))
    assert shown(exemplars=path)[0] == "e0"
    file(tmp_path, *(row(n) for n in range(5, 10)))
    assert shown(exemplars=path)[0] == "e5"


def test_index_ranks_by_words_and_equals_by_place() -> None:
    index = Index(["heart attack", "kidney stones", "heart failure", "kidney stones", "skin"])
    assert index.top("Stones in the kidney?", 3) == [1, 3, 0]
    assert index.top("heart failure", 1) == [2]
    assert index.top("unheard of", 5) == [0, 1, 2, 3, 4]
    assert index.top("", 2) == [0, 1]
    assert index.top("skin", 99) == [4, 0, 1, 2, 3]
    assert Index(["the", "of"]).top("the heart", 5) == [0, 1]
    assert Index([]).top("heart", 5) == []


@pytest.mark.parametrize(
    ("ballots", "winner", "tied"),
    [
        (["B", "B", "A"], "B", ()),
        (["C", "A", "A", "C"], "C", ("A", "C")),
        ([None, "B", "A"], "B", ("A", "B")),
        ([None, None], None, ()),
        ([], None, ()),
    ],
)
def test_plurality(ballots: list[str | None], winner: str | None, tied: tuple[str, ...]) -> None:
    tally = plurality(ballots, QUESTION.options)
    assert (tally.winner, tally.tied) == (winner, tied)
    assert tally.invalid == ballots.count(None)
    assert sum(tally.votes.values()) + tally.invalid == len(ballots)
    assert list(tally.votes) == sorted(tally.votes)


def test_weights_and_preference() -> None:
    tally = plurality(["A", "B", "B", None], QUESTION.options, [5, 2, 2, 9])
    assert (tally.winner, dict(tally.votes)) == ("A", {"A": 5, "B": 4})
    assert leader({"A": 2, "B": 3, "C": 3}, ["C", "B"]) == ("C", ("B", "C"))
