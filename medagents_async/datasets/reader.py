"""A whole input file: checked once from end to end, then read again row by row."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from medagents_async.datasets import recognised
from medagents_async.datasets.drafts import LeftOut, Making, canonical
from medagents_async.datasets.rows import BadRow, item, loads, parse
from medagents_async.datasets.sources import File, Record, Sources
from medagents_async.errors import InputError, UsageError
from medagents_async.types import Item

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Selection:
    """Which rows: the first `limit` of a seeded `sample` of those in `shard` (I of N, from 0)."""

    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None

    @property
    def whole(self) -> bool:
        return self.limit is None and self.sample is None and self.shard is None


@dataclass(frozen=True)
class Source:
    """An input file that has been checked.

    `rows` counts the good ones, `skipped` the bad ones left out; `digest` does not depend on the
    order of the rows.
    `chosen` holds the ids that the selection keeps, None for all.
    """

    path: Path
    digest: str
    rows: int
    skipped: int
    chosen: frozenset[str] | None

    def __len__(self) -> int:
        return self.rows if self.chosen is None else len(self.chosen)

    def wants(self, identity: str) -> bool:
        return self.chosen is None or identity in self.chosen

    def items(self) -> Iterator[Item]:
        """The chosen rows in the order of the file, read as they are wanted."""
        taken = set[str]() if self.skipped else None  # a repeated id is a bad row, left out
        for _, row in _rows(self.path):
            if not isinstance(row, Item) or not self.wants(row.question.id):
                continue
            if taken is not None:
                if row.question.id in taken:
                    continue
                taken.add(row.question.id)
            yield row


def check(path: Path, selection: Selection, *, skip_bad_rows: bool = False) -> Source:
    """Read the whole of `path` and find every bad row.

    Raises UsageError where the file cannot be read or holds no row, and InputError with every
    bad line unless `skip_bad_rows`.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    problems: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    digest = 0
    kept: list[str] = []
    for number, row in _rows(path):
        if not isinstance(row, Item):
            problems.append((number, row))
            continue
        identity = row.question.id
        if identity in seen:
            problems.append((number, f"id {identity!r} is taken by line {seen[identity]}"))
            continue
        seen[identity] = number
        # A sum of row digests is the same for every order of the rows.
        digest += int.from_bytes(hashlib.blake2b(_digested(row), digest_size=16).digest())
        if selection.shard is None or _shard(identity, selection.shard[1]) == selection.shard[0]:
            kept.append(identity)
    if problems and not skip_bad_rows:
        raise InputError(str(path), problems)
    if not seen:
        raise UsageError(f"{path} holds no question")
    chosen = _chosen(kept, selection)
    return Source(path, f"{digest % 2**128:032x}", len(seen), len(problems), chosen)


def _chosen(kept: list[str], selection: Selection) -> frozenset[str] | None:
    if selection.whole:
        return None
    if selection.sample is not None and selection.sample < len(kept):
        places = random.Random(selection.seed).sample(range(len(kept)), selection.sample)  # noqa: S311
        kept = [kept[place] for place in sorted(places)]
    if selection.limit is not None:
        kept = kept[: selection.limit]
    return frozenset(kept)


def _rows(path: Path) -> Iterator[tuple[int, Item | str]]:
    """(line number, item or the reason why there is none); blank lines are passed over."""
    index = 0
    parse = _parser(path)
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
            if not line:
                continue
            try:
                yield number, parse(line, number, index)
            except BadRow as reason:
                yield number, str(reason)
            index += 1


def _parser(path: Path) -> Callable[[bytes, int, int], Item]:
    """What makes an item of a line: by the first line the file may be one of a published set."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        dataset = recognised(loads(first.removeprefix(_BOM)))
    except BadRow:
        return parse
    if dataset is None:
        return parse
    make = dataset.maker(Sources([File(path, lines=True)]), Making())

    def published(line: bytes, number: int, index: int) -> Item:
        try:
            draft = make(Record(path.stem, number, index, loads(line)))
        except LeftOut as reason:
            raise BadRow(f"not for this set: {reason}") from reason
        return item(canonical(draft, draft.id), number, index)

    return published


def _digested(row: Item) -> bytes:
    question = row.question
    return orjson.dumps(
        [
            question.id,
            question.text,
            list(question.options.items()),
            question.context,
            row.answer,
        ]
    )


def _shard(identity: str, count: int) -> int:
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest()) % count
