"""Parts of one job: their outputs, and where the rows of each are."""

from __future__ import annotations

import fcntl
import hashlib
import os
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from medagents_async import manifest
from medagents_async.errors import UsageError


@dataclass
class Part:
    """One output that goes into the merge: its manifest and its open file.

    `shard` is (I, N); `wanted` says how many rows its run was to have, None where it was killed
    before it could say.
    """

    path: Path
    document: dict[str, Any]
    file: BinaryIO
    rows: int = 0
    torn: bool = False

    @property
    def selection(self) -> dict[str, Any]:
        return dict(self.document["arguments"]["selection"])

    @property
    def shard(self) -> tuple[int, int]:
        index, count = self.selection.get("shard") or (0, 1)
        return int(index), int(count)

    @property
    def wanted(self) -> int | None:
        totals = self.document["totals"]
        return None if totals is None else int(totals["questions"])

    @property
    def all_wanted(self) -> int | None:
        """How many rows all shards together must have; None for a part of the questions only."""
        if self.selection.get("limit") or self.selection.get("sample"):
            return None
        return int(self.document["rows"]) * int(self.document["arguments"]["repeats"])


@dataclass
class Rows:
    """Where every row is, in columns: a million Python objects would take 20 times the memory."""

    index: array[int] = field(default_factory=lambda: array("q"))
    repeat: array[int] = field(default_factory=lambda: array("i"))
    name: array[int] = field(default_factory=lambda: array("Q"))  # a hash of the id
    part: array[int] = field(default_factory=lambda: array("i"))
    start: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: Mapping[str, Any], part: int, start: int, length: int) -> None:
        """Raises LookupError, TypeError or OverflowError where `row` is no row of a run."""
        self.index.append(row["index"])
        self.repeat.append(row["repeat"])
        digest = hashlib.blake2b(str(row["id"]).encode(), digest_size=8).digest()
        self.name.append(int.from_bytes(digest))
        self.part.append(part)
        self.start.append(start)
        self.length.append(length)

    def line(self, parts: Sequence[Part], place: int) -> bytes:
        file = parts[self.part[place]].file
        return os.pread(file.fileno(), self.length[place], self.start[place])

    def order(self) -> Any:
        """Places in the order of (index, repeat)."""
        return np.lexsort((np.asarray(self.repeat), np.asarray(self.index)))

    def doubles(self, most: int) -> list[tuple[int, int]]:
        """Pairs of rows for the same (id, repeat) or the same (index, repeat); the first few."""
        found: dict[tuple[int, int], None] = {}
        repeat = np.asarray(self.repeat)
        for key in (np.asarray(self.index), np.asarray(self.name)):
            order = np.lexsort((repeat, key))
            before, after = order[:-1], order[1:]
            same = (key[before] == key[after]) & (repeat[before] == repeat[after])
            for place in np.flatnonzero(same)[:most]:
                one, other = sorted((int(before[place]), int(after[place])))
                found[one, other] = None
        return list(found)[:most]


def open_part(path: Path, stack: ExitStack) -> Part:
    """Raises UsageError where there is no output of a run, or a run is still writing it."""
    beside = manifest.path_for(path)
    try:
        file = stack.enter_context(path.open("rb"))
        document = orjson.loads(beside.read_bytes())
        part = Part(path, document, file)
        _ = part.shard, part.wanted, part.all_wanted, document["configuration"]
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{beside} is no manifest of a run ({error})") from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(f"a run is still writing {path}; wait for its end") from error
    return part
