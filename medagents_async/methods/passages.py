"""Passages of a corpus that fit a question, for methods that look things up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import orjson

from medagents_async.errors import UsageError
from medagents_async.methods.retrieval import Index

#: Where a row has its text, in the order of preference; the first is MedRAG's title with content.
TEXT_FIELDS = ("contents", "content", "text")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of the corpus; `id` is its row's own, or else the number of its line from 1."""

    id: str
    text: str


class Corpus:
    """The rows of a JSONL file, each with its text in `contents`, `content` or `text`."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the file cannot be read, and at its first row without text."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"cannot read the corpus {path}: {error.strerror}") from error
        self._passages = [
            _passage(path, number, line) for number, line in enumerate(lines, 1) if line.strip()
        ]
        if not self._passages:
            raise UsageError(f"the corpus {path} holds no text")
        self._index = Index([passage.text for passage in self._passages])

    def about(self, query: str, count: int) -> list[Passage]:
        """The `count` passages most like `query` by BM25, the best first."""
        return [self._passages[place] for place in self._index.top(query, count)]


def corpus(path: Path) -> Corpus:
    """The corpus in `path`, read once while the file stays as it is. Raises UsageError."""
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read the corpus {path}: {error.strerror}") from error
    return _cached(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1)
def _cached(path: Path, changed: int, size: int) -> Corpus:
    del changed, size  # they tell versions of a file apart
    return Corpus(path)


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the corpus {path}, line {number}: no JSON ({error})") from error
    texts = [row.get(name) for name in TEXT_FIELDS] if isinstance(row, dict) else []
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is None:
        fields = ", ".join(TEXT_FIELDS)
        raise UsageError(f"the corpus {path}, line {number}: no text in any of {fields}")
    return Passage(str(row.get("id") or number), text.strip())
