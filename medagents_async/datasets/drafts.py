"""What a set's function makes of one published record."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from medagents_async.datasets import rows
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.rows import LETTERS, BadRow
from medagents_async.datasets.sources import Record

YES_NO = {"A": "yes", "B": "no"}
M = TypeVar("M", bound=BaseModel)


class LeftOut(Exception):
    """Why a sound record is no question of this set."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A row before it is checked. Without an `id` it is called by its file and row.

    `mended` says what is not as published. `explanation` gives the answer away: it is written
    only where it was asked for.
    """

    question: str
    options: Mapping[str, str]
    answer: str | None
    id: str | None = None
    context: str | None = None
    subject: str | None = None
    images: tuple[str, ...] = ()
    explanation: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    mended: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Making:
    """How to make what the files do not hold: options by `seed`, so many `choices`, pictures."""

    seed: int = 0
    choices: int = 5
    frames: int = 8
    pictures: Pictures = field(default_factory=lambda: Pictures(Path("in.jsonl")))

    def options(
        self, answer: str, others: Collection[str], identity: str
    ) -> tuple[dict[str, str], str]:
        """`answer` among `choices` - 1 of `others`, and its letter; by seed and identity alone.

        Raises BadRow where there are too few others.
        """
        pool = sorted(set(others) - {answer})
        if len(pool) < self.choices - 1:
            raise BadRow(f"{len(pool)} other answers, and --choices {self.choices} wants more")
        chance = random.Random(f"{self.seed}/{identity}")  # noqa: S311
        texts = [answer, *chance.sample(pool, self.choices - 1)]
        chance.shuffle(texts)
        options = lettered(texts)
        return options, LETTERS[texts.index(answer)]


def canonical(draft: Draft, name: str | None) -> dict[str, Any]:
    """The row of a draft, as batch reads it. Raises BadRow."""
    row = {
        "id": name,
        "question": draft.question,
        "context": draft.context,
        "options": dict(draft.options),
        "answer": draft.answer,
        "subject": draft.subject,
        "images": list(draft.images),
        "meta": {key: value for key, value in draft.meta.items() if value is not None},
    }
    rows.check(row)
    return row


def lettered(texts: Sequence[str]) -> dict[str, str]:
    """Options A, B, … with these texts."""
    return dict(zip(LETTERS, texts, strict=False))


def read(model: type[M], record: Record) -> M:
    """The record's fields in a set's published shape. Raises BadRow."""
    try:
        return model.model_validate(record.fields)
    except ValidationError as error:
        raise BadRow(rows.reasons(error)) from error


def plain(record: Record, **changes: Any) -> Draft:
    """The draft of a record that has options by letter and the answer's letter: MedQA's kin.

    Raises BadRow, also where the published text of the answer is not that of its letter.
    """
    row = rows.check(record.fields)
    text = record.fields.get("answer")
    if row.answer is not None and text not in (None, row.answer, row.options[row.answer]):
        raise BadRow(f"the answer is {row.answer}, and its text is not that of option {row.answer}")
    facts: dict[str, Any] = {
        "id": None if row.id is None else str(row.id),
        "question": row.question,
        "options": row.options,
        "answer": row.answer,
        "context": row.context,
        "subject": row.subject,
    }
    return Draft(**{**facts, **changes})


def spread(fields: Mapping[str, Any]) -> dict[str, str]:
    """Options out of the columns opa, opb, … up to the first that is missing or empty."""
    texts: list[str] = []
    for letter in "abcdefghij":
        text = fields.get(f"op{letter}")
        if not isinstance(text, str) or not text:
            break
        texts.append(text)
    return lettered(texts)
