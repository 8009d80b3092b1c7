"""What a model wrote on the questions that it answered right, out of a run's OUT file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import orjson

from medagents_async.errors import UsageError
from medagents_async.methods.exemplars import Exemplar, content

#: Stages whose reply is the answer with what led to it.
ANSWERING = ("answer", "decide")
_MARKER = re.compile(r"(?i)[*_#>\s]*\b(?:final\s)?(?:option|answer)[*_]*\s*:")


def solved(training: Iterable[Exemplar], path: Path) -> tuple[Exemplar, ...]:
    """Those of `training` that the run in `path` answered right, with the run's chain of thought.

    Raises UsageError where `path` is no OUT file, or one of other questions.
    """
    thoughts = _thoughts(str(path), content(path))
    found = []
    for exemplar in training:
        answer, thought = thoughts.get(exemplar.question.id, (None, ""))
        if answer is None:
            continue
        if answer != exemplar.answer:
            raise UsageError(
                f"{path} comes from other questions than the training file: it has "
                f"{answer} as the answer to {exemplar.question.id!r}, not {exemplar.answer}"
            )
        found.append(replace(exemplar, thought=thought))
    return tuple(found)


@lru_cache(maxsize=1)
def _thoughts(path: str, rows: bytes) -> Mapping[str, tuple[str, str]]:
    """Question id to (its answer, the thought that found it), of the lowest repeat that did."""
    found: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(rows.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            identity, repeat, trace = row["id"], row["repeat"], row["trace"]
            if row["correct"] is not True or found.get(identity, (repeat + 1,))[0] < repeat:
                continue
            replies = [step["reply"] for step in trace if step["stage"] in ANSWERING]
            if replies:
                found[identity] = (repeat, row["answer"], thought(replies[-1]))
        except (LookupError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path}, line {number} is no row of a run. Make the file with: python -m "
                "medagents_async.batch TRAINING.jsonl SOLUTIONS.jsonl --method cot"
            ) from error
    return {identity: (answer, text) for identity, (_, answer, text) in found.items()}


def thought(reply: str) -> str:
    """A reply up to its last "Option:", without the heading; all of it where it has none."""
    ends = [marker.start() for marker in _MARKER.finditer(reply)]
    head = reply[: ends[-1]].strip() if ends else ""
    return re.sub(r"(?i)^[*_#\s]*thought[*_]*\s*:[*_\s]*", "", head or reply.strip())
