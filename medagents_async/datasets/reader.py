"""A whole input file: checked once from end to end, then read again row by row."""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from medagents_async.datasets import recognised
from medagents_async.datasets.drafts import LeftOut, Making, canonical
from medagents_async.datasets.rows import BadRow, item, loads, parse
from medagents_async.datasets.sources import File, Record, Sources
from medagents_async.errors import BadImage, InputError, UsageError
from medagents_async.images import Album
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

    `rows` counts the good ones, `illustrated` those of them with images; `bad` has the numbers of
    the lines that are left out. `digest` does not depend on the order of the rows.
    `chosen` holds the ids that the selection keeps, None for all. `names` has a hash of each
    row's id, by index.
    """

    path: Path
    digest: str
    rows: int
    illustrated: int
    bad: frozenset[int]
    chosen: frozenset[str] | None
    names: array[int]

    def __len__(self) -> int:
        return self.rows if self.chosen is None else len(self.chosen)

    def wants(self, identity: str) -> bool:
        return self.chosen is None or identity in self.chosen

    @property
    def skipped(self) -> int:
        return len(self.bad)

    def items(self, finished: Iterable[str] = ()) -> Iterator[Item]:
        """The chosen rows in the order of the file, read as they are wanted.

        Those whose ids are `finished` are passed over unread, which matters among 200,000. It goes
        by a hash of 64 bits: should two ids ever share one, a row too few is given.
        """
        skipped = {_name(identity) for identity in finished}
        chosen = None if self.chosen is None else {_name(identity) for identity in self.chosen}

        def wanted(index: int) -> bool:
            name = self.names[index] if index < len(self.names) else None
            return name not in skipped and (chosen is None or name in chosen)

        for number, row in _rows(self.path, wanted):
            if number not in self.bad and isinstance(row, Item) and self.wants(row.question.id):
                yield row


def check(
    path: Path,
    selection: Selection,
    *,
    skip_bad_rows: bool = False,
    album: Album | None = None,
) -> Source:
    """Read the whole of `path` and find every bad row, a look at its images included.

    Without an `album` paths start from the file's folder, and remote images are allowed.
    Raises UsageError where the file cannot be read or holds no row, and InputError with every
    bad line unless `skip_bad_rows`.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    album = album or Album(folder=path.parent)
    problems: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    digest = illustrated = 0
    kept: list[str] = []
    names = array("Q")
    for number, row in _rows(path):
        names.append(_name(row.question.id) if isinstance(row, Item) else 0)
        if not isinstance(row, Item):
            problems.append((number, row))
            continue
        identity = row.question.id
        if identity in seen:
            problems.append((number, f"id {identity!r} is taken by line {seen[identity]}"))
            continue
        try:
            images = album.fingerprints(row.question.images)
        except BadImage as reason:
            problems.append((number, str(reason)))
            continue
        seen[identity] = number
        illustrated += bool(images)
        # A sum of row digests is the same for every order of the rows.
        content = _digested(row, images)
        digest += int.from_bytes(hashlib.blake2b(content, digest_size=16).digest())
        if selection.shard is None or names[-1] % selection.shard[1] == selection.shard[0]:
            kept.append(identity)
    if problems and not skip_bad_rows:
        raise InputError(str(path), problems)
    if not seen:
        raise UsageError(f"{path} holds no question")
    chosen = _chosen(kept, selection)
    bad = frozenset(number for number, _ in problems)
    return Source(path, f"{digest % 2**128:032x}", len(seen), illustrated, bad, chosen, names)


def _chosen(kept: list[str], selection: Selection) -> frozenset[str] | None:
    if selection.whole:
        return None
    if selection.sample is not None and selection.sample < len(kept):
        places = random.Random(selection.seed).sample(range(len(kept)), selection.sample)  # noqa: S311
        kept = [kept[place] for place in sorted(places)]
    if selection.limit is not None:
        kept = kept[: selection.limit]
    return frozenset(kept)


def _rows(
    path: Path, wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[int, Item | str]]:
    """(line number, item or the reason why there is none); blank lines are passed over.

    So are rows that are not `wanted` by their index.
    """
    index = 0
    parse = _parser(path)
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if not line or line.isspace():
                continue
            if wanted(index):
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


def _digested(row: Item, images: list[str]) -> bytes:
    question = row.question
    content = [
        question.id,
        question.text,
        list(question.options.items()),
        question.context,
        row.answer,
    ]
    # Where images lie does not matter, only what they show.
    return orjson.dumps([*content, images] if images else content)


def _name(identity: str) -> int:
    """A hash of an id, 64 bits; a shard is its remainder."""
    return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest())
