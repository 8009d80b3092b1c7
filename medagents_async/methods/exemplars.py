"""Solved questions that a prompt shows before the one to answer."""

from __future__ import annotations

import codecs
import random
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import orjson

from medagents_async.datasets.rows import ALIASES, BadRow, parse
from medagents_async.errors import InputError, UsageError
from medagents_async.methods.answering import Answering
from medagents_async.types import Count, Question

#: Written for this project: five questions, each letter the answer once.
SHIPPED = Path(__file__).with_name("exemplars.jsonl")


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A question with its answer and, where there is one, the thought that leads to it."""

    question: Question
    answer: str
    thought: str | None
    named: bool  # whether its row has an id, and not just a line number

    def is_about(self, question: Question) -> bool:
        """Whether this is `question` itself, by its id or by its words."""
        same_id = self.named and self.question.id == question.id
        return same_id or plain(self.question.text) == plain(question.text)


def plain(text: str) -> str:
    """The words of a text alone: no case, no punctuation, no typography."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def read(path: Path) -> tuple[Exemplar, ...]:
    """The rows of a JSONL file: those of an input file with `answer` and maybe `explanation`.

    Raises UsageError where it cannot be read, naming the lines that are no exemplars.
    """
    return _rows(str(path), content(path))


def content(path: Path) -> bytes:
    """A file that a parameter names, without its byte order mark. Raises UsageError."""
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}. Name a JSONL file, as seen from the folder "
            "that the command runs in"
        ) from error


@lru_cache(maxsize=4)  # by content: a file that changes between two runs of a process is read again
def _rows(path: str, lines: bytes) -> tuple[Exemplar, ...]:
    rows: list[Exemplar] = []
    problems: list[str] = []
    for number, line in enumerate(lines.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(_exemplar(line, number, len(rows)))
        except BadRow as reason:
            problems.append(f"  line {number}: {reason}")
    if problems:
        shown = problems[: InputError.SHOWN]
        if len(problems) > len(shown):
            shown.append(f"  … and {len(problems) - len(shown)} more")
        raise UsageError("\n".join([f"{path} has rows that are no solved questions:", *shown]))
    if not rows:
        raise UsageError(f"{path} holds no solved question")
    return tuple(rows)


def _exemplar(line: bytes, number: int, index: int) -> Exemplar:
    item = parse(line, number, index)
    if item.answer is None:
        raise BadRow("answer: an exemplar needs one")
    if item.question.images:
        raise BadRow("images: an exemplar is shown without them")
    document = orjson.loads(line)
    thought = document.get("explanation")
    if not isinstance(thought, str | None):
        raise BadRow("explanation: not a text")
    named = any(document.get(name) is not None for name in ALIASES["id"])
    return Exemplar(item.question, item.answer, thought or None, named)


def with_thoughts(exemplars: Iterable[Exemplar], wanted: bool) -> tuple[Exemplar, ...]:
    """Those that have a thought, or all of them, without."""
    if wanted:
        return tuple(exemplar for exemplar in exemplars if exemplar.thought)
    return tuple(replace(exemplar, thought=None) for exemplar in exemplars)


def choose(
    pool: Sequence[Exemplar], question: Question, count: int, seed: int = 0
) -> tuple[Exemplar, ...]:
    """`count` of `pool`, never `question` itself; all that are left where they are no more.

    Which ones and in which order depends on `seed` and the question's id alone. A pool of just
    `count` keeps its order, so that all questions share the prompt's beginning.
    """
    others = [exemplar for exemplar in pool if not exemplar.is_about(question)]
    if len(others) <= count:
        return tuple(others)
    return tuple(random.Random(f"{seed}/{question.id}").sample(others, count))  # noqa: S311


def ids(exemplars: Iterable[Exemplar]) -> list[str]:
    """What goes into a row's `detail`."""
    return [exemplar.question.id for exemplar in exemplars]


@dataclass(frozen=True, kw_only=True)
class Shots(Answering):
    """`shots` exemplars out of the file `exemplars`, by default the five that are shipped.

    Where the file holds more, `exemplar_seed` and the question's id choose.
    Raises UsageError where the file cannot be used or holds too few.
    """

    shots: Count = 5
    exemplars: Path | None = None
    exemplar_seed: int = 0

    #: Whether the exemplars show how they came to their answers.
    think = True

    def __post_init__(self) -> None:
        if len(self.pool) < self.shots:
            raise UsageError(
                f"{self.source} has {len(self.pool)} solved questions"
                f"{' with an explanation' if self.think else ''}, and shots is {self.shots}: "
                f"name a file with more, or ask for fewer with --set shots={len(self.pool)}"
            )

    @property
    def source(self) -> Path:
        """Where the exemplars come from."""
        return self.exemplars or SHIPPED

    @cached_property
    def pool(self) -> tuple[Exemplar, ...]:
        """All exemplars that may be shown."""
        if self.shots == 0:
            return ()
        return with_thoughts(read(self.source), self.think)

    def shown(self, question: Question) -> tuple[tuple[Exemplar, ...], dict[str, Any]]:
        """The exemplars for `question`, and what goes into its row's `detail`."""
        chosen = choose(self.pool, question, self.shots, self.exemplar_seed)
        return chosen, {"exemplars": ids(chosen)}
