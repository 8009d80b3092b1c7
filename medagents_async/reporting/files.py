"""OUT.jsonl and its manifest, read back. Rows stream by: only their records stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from medagents_async import manifest
from medagents_async.engine import jsonl
from medagents_async.errors import UsageError
from medagents_async.scoring.records import Record, record
from medagents_async.scoring.runs import Run


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of each whole line.

    A last line without its end is passed over: its run goes on, or was killed. Raises UsageError
    where the file is not there, or another line is no JSON object.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        yield from jsonl.read(path)
    except UsageError:
        if not _torn(path):
            raise


def _torn(path: Path) -> bool:
    """Whether the file ends within a line; only that line can then be the one that is no JSON."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def load(path: Path) -> Run:
    """A run by its OUT file. Raises UsageError where a line is no row, or a row is there twice."""
    records: list[Record] = []
    seen: dict[tuple[str, int], int] = {}
    for number, row in rows(path):
        try:
            found = record(row)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{path}, line {number} is no row of a run ({error!r})") from error
        if found.key in seen:
            raise UsageError(
                f"{path}, line {number}: question {found.id!r}, repeat {found.repeat} is in line "
                f"{seen[found.key]}, too; give files of different runs one by one"
            )
        seen[found.key] = number
        records.append(found)
    records.sort(key=lambda each: (each.index, each.repeat))
    return Run(path.name.removesuffix(".jsonl"), records, described(path))


def described(path: Path) -> dict[str, Any]:
    """The manifest beside OUT, empty where there is none. Raises UsageError where it is none."""
    beside = manifest.path_for(path)
    if not beside.exists():
        return {}
    try:
        document = orjson.loads(beside.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{beside} is no manifest ({error}); move it away") from error
    if not isinstance(document, dict):
        raise UsageError(f"{beside} is no manifest; move it away")
    return document
