"""One JSON line of input to an `Item`, or the reason why not."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from medagents_async.types import Item, Question

LETTERS = string.ascii_uppercase


class BadRow(Exception):
    """Why a line is no usable row."""


def _options(value: Any) -> Any:
    """Options as letter to text; a list gets its letters from its entries or its order."""
    if not isinstance(value, list):
        return value
    if len(value) > len(LETTERS):
        raise ValueError(f"{len(value)} options, and letters for {len(LETTERS)}")
    if not all(isinstance(entry, dict) for entry in value):
        return dict(zip(LETTERS, value, strict=False))
    pairs = [
        (entry.get("letter", entry.get("key")), entry.get("content", entry.get("value")))
        for entry in value
    ]
    if len({letter for letter, _ in pairs}) < len(pairs):
        raise ValueError("two options have the same letter")
    return dict(pairs)


def _single(value: Any) -> Any:
    """An answer key published as a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _listed(value: Any) -> Any:
    """Tables write null where a row has none."""
    return tuple(value or ()) if isinstance(value, list | None) else value


#: Canonical name to the names in published sets, the first that has a value wins.
ALIASES = {"id": ("id", "realidx", "question_id"), "answer": ("answer_idx", "answer", "label")}
_OTHER_NAMES = {alias for name, aliases in ALIASES.items() for alias in aliases} - ALIASES.keys()
Text = Annotated[str, Field(min_length=1)]
Letter = Annotated[str, Field(pattern="^[A-Z]$")]


class Row(BaseModel):
    """The canonical row and the names that published sets use for the same things."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: str | int | None = None
    question: Text
    context: str | None = None
    options: Annotated[dict[Letter, str], BeforeValidator(_options), Field(min_length=2)]
    answer: Annotated[str | None, BeforeValidator(_single)] = None
    subject: str | None = None
    images: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = ()

    @model_validator(mode="before")
    @classmethod
    def _published_names(cls, document: dict[str, Any]) -> dict[str, Any]:
        """MedQA and its relatives have the letter in `answer_idx` and a text in `answer`."""
        if document.keys().isdisjoint(_OTHER_NAMES):
            return document
        canonical = dict(document)
        for name, aliases in ALIASES.items():
            values = (document[alias] for alias in aliases if document.get(alias) is not None)
            canonical[name] = next(values, None)
        return canonical


def check(document: dict[str, Any]) -> Row:
    """A row that holds together. Raises BadRow."""
    try:
        row = Row.model_validate(document)
    except ValidationError as error:
        raise BadRow(reasons(error)) from error
    if row.answer is not None and row.answer not in row.options:
        raise BadRow(f"the answer {row.answer!r} is not among the options {', '.join(row.options)}")
    if row.question.isspace():
        raise BadRow("the question is blank")
    return row


def loads(line: bytes) -> dict[str, Any]:
    """The JSON object in a line. Raises BadRow."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRow(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRow("not a JSON object")
    return document


def parse(line: bytes, number: int, index: int) -> Item:
    """The item in line `number` (from 1); `index` counts the rows from 0.

    A row without an id is called by its line number. Raises BadRow.
    """
    return item(loads(line), number, index)


def item(document: dict[str, Any], number: int, index: int) -> Item:
    """The item of a row's JSON object. Raises BadRow."""
    row = check(document)
    question = Question(
        str(number if row.id is None else row.id),
        index,
        without_choices(row.question, row.options)[0],
        row.options,
        row.context,
        row.images,
    )
    return Item(question, row.answer, row.subject)


def without_choices(question: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    """MedXpertQA's question without the choices that it repeats, and these.

    A method that shuffles options would show two orders. Only a list at the very end of just the
    row's letters, in order, is taken for one.
    """
    if "Answer Choices:" not in question:
        return question, None
    text, _, choices = question.rpartition("Answer Choices:")
    place = -1
    for letter in options if text.strip() else ():
        place = choices.find(f" ({letter}) ", place + 1)
        if place < 0:
            break
    more = f" ({LETTERS[len(options) % len(LETTERS)]}) "
    if place < 0 or not choices.startswith(" (A) ") or more in choices[place:]:
        return question, None
    return text.rstrip(), choices.strip()


def reasons(error: ValidationError) -> str:
    """What is wrong with a row, field by field."""
    return "; ".join(_reason(problem) for problem in error.errors())


def _reason(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
