"""Medprompt: the way back from shuffled options, and exemplars out of a run's own solutions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async import methods
from medagents_async.errors import Empty, UsageError
from medagents_async.methods.shuffling import fixed_by, shuffled
from medagents_async.methods.solutions import thought
from medagents_async.types import Call, Question
from tests.support.bench import QUESTION, Model, Said, Seen, answer


def medprompt(said: Callable[[dict[str, str]], Said], **settings: Any) -> Seen:
    """`said` gets what the prompt shows under each letter."""

    def model(call: Call) -> Said:
        content = orjson.loads(call.body)["messages"][-1]["content"]
        options = re.findall(r"(?m)^\(([A-Z])\) (.*)$", content.rpartition("Options:")[2])
        return said(dict(options))

    return answer(model, method="medprompt", **settings)


def naming(text: str) -> Callable[[dict[str, str]], str]:
    """The letter under which `text` is shown, whatever it is."""
    return lambda shown: f"Option: {next(key for key, seen in shown.items() if seen == text)}"


@pytest.mark.parametrize("letter", QUESTION.options)
def test_answers_come_back_to_their_own_letters(letter: str) -> None:
    seen = medprompt(naming(QUESTION.options[letter]))
    assert seen.decision.option == letter
    assert seen.decision.detail["votes"] == {letter: 5}
    assert len(set(seen.decision.detail["orders"])) > 1


def test_options_that_read_the_same_come_back_by_position() -> None:
    question = Question("twins", 0, "Which?", {"A": "x", "B": "x", "C": "y", "D": "y"})

    def always(letter: str) -> Model:
        orders = [shuffled(question, n) for n in range(5)]
        places = [{own: shown for shown, own in order.items()}[letter] for order in orders]
        return lambda call: f"Option: {places[call.n]}"

    for letter in question.options:
        decision = answer(always(letter), method="medprompt", question=question).decision
        assert (decision.option, decision.detail["votes"]) == (letter, {letter: 5})


def test_a_model_that_always_says_a_spreads_its_votes() -> None:
    seen = medprompt(lambda _: "Option: A")
    orders = seen.decision.detail["orders"]
    for letter, count in seen.decision.detail["votes"].items():
        assert count == sum(order[0] == letter for order in orders)


def test_orders_depend_on_question_and_number_alone() -> None:
    others = Question("q2", 7, QUESTION.text, QUESTION.options)
    assert shuffled(QUESTION, 1) == shuffled(QUESTION, 1)
    assert any(shuffled(QUESTION, n) != shuffled(others, n) for n in range(5))
    assert all(set(shuffled(QUESTION, n).values()) == set(QUESTION.options) for n in range(50))


def test_unread_and_wordless_replies_are_invalid() -> None:
    replies: Iterator[Said] = iter(["Hm.", Empty("nothing"), "Option: Z"])
    seen = medprompt(lambda shown: next(replies, naming("Spirometry")(shown)))
    assert (seen.decision.option, seen.decision.detail["invalid"]) == ("C", 3)


@pytest.mark.parametrize(
    "text",
    [
        "All of the above",
        "None of the above.",
        "all the above",
        "Any of these",
        "None",
        "Both A and B",
        "A and C",
        "Both (A) & (C)",
        "a, b and d are correct",
        "Both AB",
        "A > C > B",
        "Options B and C increase",
        "Neither of them",
        "Both of these options",
        "Both option 2 and 3",
        "A",
    ],
)
@pytest.mark.parametrize(("temperature", "calls"), [(0.7, 5), (0.0, 1)])
def test_options_about_options_keep_their_order(text: str, temperature: float, calls: int) -> None:
    question = Question("q", 0, "Which?", {"A": "iron", "B": "zinc", "C": "lead", "D": text})
    seen = medprompt(lambda _: "Option: D", question=question, temperature=temperature)
    assert seen.decision.option == "D"
    assert seen.decision.detail["orders"] == ["ABCD"] * calls
    assert seen.decision.detail["fixed_order"] == f"option D speaks of others: {text}"
    assert len(seen.spans) == calls


@pytest.mark.parametrize(
    "text",
    [
        "Hepatitis B and C serology",
        "Vitamin A",
        "Both eyes are red",
        "Just above the knee",
        "None of the offspring will be affected",
        "They repel each other",
        "",
        "1 and 2",
    ],
)
def test_other_options_are_shuffled(text: str) -> None:
    question = Question("q", 0, "Which?", {"A": "iron", "B": "zinc", "C": "lead", "D": text})
    assert fixed_by(question) is None


def test_question_that_lists_its_options_keeps_their_order() -> None:
    text = "Which? Answer Choices: (A) iron (B) zinc"
    assert fixed_by(Question("q", 0, text, {"A": "iron", "B": "zinc"}))
    assert not fixed_by(Question("q", 0, "Is vitamin A) iron?", {"A": "zinc", "B": "tin"}))


# Preparation and retrieval


TRAINING = [
    {
        "id": f"t{n}",
        "question": text,
        "options": {"A": "yes", "B": "no"},
        "answer": "A",
    }
    for n, text in enumerate(
        ["Is chest pain bad?", "Is crushing chest pain bad?", "Do feet itch?", "Does skin burn?"]
    )
]


def solution(n: int, **more: Any) -> dict[str, Any]:
    reply = f"Thought: Reason {n}, not B.\nOption: A"
    trace = [{"stage": "answer", "reply": reply}]
    found = {"id": f"t{n}", "repeat": 0, "correct": True, "answer": "A", "trace": trace}
    return found | more


def files(folder: Path, solutions: list[Any], training: list[Any] = TRAINING) -> dict[str, Any]:
    settings = {}
    for name, rows in {"training": training, "solutions": solutions}.items():
        path = folder / f"{name}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        settings[name] = str(path)
    return settings


def test_the_most_similar_question_is_shown_last(tmp_path: Path) -> None:
    settings = files(tmp_path, [solution(n) for n in range(4)])
    seen = medprompt(naming("Biopsy"), shots=2, **settings)
    assert seen.decision.option == "D"
    assert seen.decision.detail["pool"] == "training"
    assert seen.decision.detail["exemplars"] == ["t0", "t1"]
    prompt = seen.prompt("answer:0")
    assert prompt.index("Thought: Reason 0, not B.\nOption: A") < prompt.index("Thought: Reason 1")
    assert "Thought: Thought" not in prompt


def test_wrong_solutions_are_left_out(tmp_path: Path) -> None:
    wrong = [solution(1, correct=False), solution(2, correct=None), solution(0), solution(3)]
    seen = medprompt(naming("Biopsy"), shots=2, **files(tmp_path, wrong))
    assert seen.decision.detail["exemplars"] == ["t3", "t0"]
    with pytest.raises(UsageError, match="has 2 solved questions with an explanation"):
        medprompt(naming("Biopsy"), shots=3, **files(tmp_path, wrong))


def test_the_query_is_not_among_its_exemplars(tmp_path: Path) -> None:
    settings = files(tmp_path, [solution(n) for n in range(4)])
    by_text = Question("q", 0, "is Crushing chest pain bad", {"A": "a", "B": "b"})
    by_id = Question("t1", 0, "Crushing chest pain", {"A": "a", "B": "b"})
    for question in (by_text, by_id):
        seen = answer(
            lambda _: "Option: A", method="medprompt", question=question, shots=4, **settings
        )
        assert "t1" not in seen.decision.detail["exemplars"]
        assert len(seen.decision.detail["exemplars"]) == 3


def test_the_first_repeat_that_is_right_counts(tmp_path: Path) -> None:
    repeats = [
        solution(1, repeat=2, trace=[{"stage": "answer", "reply": "Late.\nOption: A"}]),
        solution(1, repeat=0, correct=False),
        solution(1, repeat=1, trace=[{"stage": "answer", "reply": "Early.\nOption: A"}]),
    ]
    seen = medprompt(naming("Biopsy"), shots=1, **files(tmp_path, repeats))
    assert "Thought: Early.\nOption: A" in seen.prompt("answer:0")


def test_training_rows_may_bring_their_explanations(tmp_path: Path) -> None:
    explained = [{**row, "explanation": "So it is."} for row in TRAINING]
    settings = files(tmp_path, [], explained)
    seen = medprompt(naming("Biopsy"), shots=2, training=settings["training"])
    assert seen.prompt("answer:0").count("Thought: So it is.") == 2


def test_without_a_pool_the_fixed_exemplars_serve_and_the_row_says_so() -> None:
    detail = medprompt(naming("Biopsy")).decision.detail
    assert (detail["pool"], len(detail["exemplars"])) == ("fixed", 5)


@pytest.mark.parametrize(
    ("solutions", "says"),
    [
        ([{"id": "t0"}], "line 1 is no row of a run.*--method cot"),
        ([solution(0), solution(1, trace=None)], "line 2 is no row of a run"),
        ([solution(0, answer="B")], "other questions than the training file"),
        ([solution(9)], "has 0 solved questions"),
        ([solution(0, trace=[])], "has 0 solved questions"),
    ],
)
def test_unfit_solutions_are_refused(tmp_path: Path, solutions: list[Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        methods.find("medprompt").parameters(None, {"shots": 1, **files(tmp_path, solutions)})


def test_solutions_need_their_questions(tmp_path: Path) -> None:
    settings = files(tmp_path, [solution(0)])
    with pytest.raises(UsageError, match="--set training=FILE"):
        methods.find("medprompt").parameters(None, {"solutions": settings["solutions"]})


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Thought: It is so.\nOption: A", "It is so."),
        ("**Thought:** It is so.\n\n**Option: A**", "It is so."),
        ("It is so.\n\nFinal answer: A", "It is so."),
        ("One: Option: B? No.\nOption: A", "One: Option: B? No."),
        ("It is so, hence A.", "It is so, hence A."),
        ("Option: A", "Option: A"),
    ],
)
def test_thought_ends_where_the_choice_begins(reply: str, said: str) -> None:
    assert thought(reply) == said
