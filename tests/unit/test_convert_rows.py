"""Every set's records in the shapes that their publishers use, and what must not come through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.datasets import find, reader
from medagents_async.datasets.conversion import Account, convert
from medagents_async.datasets.drafts import Making
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.rows import without_choices
from medagents_async.datasets.sources import File, Record, Sources
from medagents_async.errors import UsageError
from tests.support.published import BULLET, CHOICES, MCQA, PNG, REFUSED, SHAPES, XRAY

Converted = Callable[..., tuple[list[dict[str, Any]], Account]]


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    """`converted(name, file, records)`: the rows that come out, and the account of them."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "f.png").write_bytes(PNG)

    def run(name: str, file: str, *records: object, explanations: bool = False) -> Any:
        path = tmp_path / file
        path.write_bytes(b"\n".join(orjson.dumps(record) for record in records))
        making = Making(pictures=Pictures(tmp_path / "in.jsonl", pictures))
        account = Account()
        sources = Sources([File(path)])
        lines = convert(find(name), sources, making, account, explanations=explanations)
        return [orjson.loads(line) for line in lines], account

    return run


@pytest.mark.parametrize(("name", "file", "record", "expected"), SHAPES)
def test_published_shape(
    converted: Converted, name: str, file: str, record: dict[str, Any], expected: dict[str, Any]
) -> None:
    rows, account = converted(name, file, record)
    assert account.problems == []
    (row,) = rows
    assert {part: row[part] for part in expected} == expected
    assert b"GOLD" not in orjson.dumps(row)


@pytest.mark.parametrize(("name", "record", "word"), REFUSED)
def test_no_row(converted: Converted, name: str, record: dict[str, Any], word: str) -> None:
    sound = {**MCQA, "cop": 4} if name == "medmcqa" else record
    rows, account = converted(name, "file.jsonl", sound, record)
    *_, (label, line, reason) = account.problems
    assert (label, line) == ("file.jsonl", 2)
    assert word in reason
    assert len(rows) == (name == "medmcqa")


def test_left_out_are_counted(converted: Converted) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("path-vqa", {"image": "f.png", "question": "what?", "answer": "a cell"}),
        ("mmlu", {"question": "Q?", **CHOICES, "answer": 0, "subject": "astronomy"}),
        ("mmlu-pro", {"question": "Q?", "options": ["x", "y"], "answer": "A", "category": "law"}),
        ("mimic-cxr-vqa", {**XRAY, "semantic_type": "query", "answer": []}),
        ("medmcqa", {**MCQA, "cop": -1}),
    ]
    for name, record in cases:
        rows, account = converted(name, "file.jsonl", record)
        assert (rows, account.problems, account.left_out.total()) == ([], [], 1)


def test_where_cop_begins_is_found_out(converted: Converted) -> None:
    def answers(*numbers: int) -> list[str]:
        rows, _ = converted("medmcqa", "x.jsonl", *({**MCQA, "cop": n} for n in numbers))
        return [row["answer"] for row in rows]

    assert answers(1, 2, 3, 4) == ["A", "B", "C", "D"]
    assert answers(1, 2, 3, 0) == ["B", "C", "D", "A"]
    with pytest.raises(UsageError, match="cannot be told"):
        answers(1, 2, 3)
    with pytest.raises(UsageError, match="alike"):
        answers(0, 4)


def test_the_same_record_again_is_left_out_and_another_refused(converted: Converted) -> None:
    row = {"id": "x", "question": "Q?", "options": {"A": "a", "B": "b"}, "answer": "A"}
    rows, account = converted("medqa", "x.jsonl", row, row, {**row, "answer": "B"})
    assert len(rows) == 1
    assert list(account.left_out.values()) == [1]
    assert account.problems == [("x.jsonl", 3, "id 'x' is taken by x.jsonl 1")]


def test_explanations_where_asked_for(converted: Converted) -> None:
    rows, _ = converted("medmcqa", "x.jsonl", {**MCQA, "cop": 4}, explanations=True)
    assert rows[0]["explanation"] == "GOLD"


def test_images_inside_records_are_written(converted: Converted, tmp_path: Path) -> None:
    record = {"image": {"bytes": PNG, "path": None}, "question": "is it?", "answer": "yes"}
    where = Pictures(tmp_path / "in.jsonl")
    row = find("path-vqa").row(Record("test", 1, 0, record), where)
    (image,) = row.images
    assert (tmp_path / image).read_bytes() == PNG
    assert image.startswith("in.images/")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Q?\nAnswer Choices: (A) x (B) y", "Q?"),
        ("Q?\nAnswer Choices: (A) other (B) words", "Q?"),
        ("Q?\nAnswer Choices: (A) x (B) y (C) z", None),
        ("Q?\nAnswer Choices: (B) x (A) y", None),
        ("Q? Answer Choices: none", None),
        ("Answer Choices: (A) x (B) y", None),
        ("Q?", None),
    ],
)
def test_only_a_list_of_the_options_is_taken_out(question: str, expected: str | None) -> None:
    kept, choices = without_choices(question, {"A": "x", "B": "y"})
    assert kept == (expected or question)
    assert (choices is None) == (expected is None)


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({**MCQA, "cop": 4}, "D"),
        ({**MCQA, "cop": 0}, "A"),
        ({**BULLET}, "E"),
        ({"question": "Q?", **CHOICES, "answer": 1, "subject": "anatomy"}, "B"),
        (
            {
                "pubid": 5,
                "question": "Does it?",
                "context": {"contexts": ["First."]},
                "long_answer": "GOLD",
                "final_decision": "no",
            },
            "B",
        ),
    ],
)
def test_batch_reads_published_lines(tmp_path: Path, record: dict[str, Any], answer: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n" + orjson.dumps(record) + b"\n")
    source = reader.check(path, reader.Selection())
    (item,) = source.items()
    assert item.answer == answer
    assert "GOLD" not in f"{item.question.text} {item.question.context} {item.question.options}"
