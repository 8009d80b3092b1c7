"""Append-only files of JSON lines that survive a kill at any moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from medagents_async.errors import OutputFailed, UsageError

_BLOCK = 1 << 20


def append(descriptor: int, line: bytes, path: Path) -> None:
    """Write one line whole. Raises OutputFailed where the system does not take all of it."""
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        raise OutputFailed(
            f"cannot write {path}: {error.strerror}. Every line before is safe; "
            "make room or mend the folder, then run the same command again to resume"
        ) from error


def repair(path: Path) -> None:
    """Cut off a torn last line, which a kill leaves even in a single write, and keep it aside.

    Appending after it would spoil the next line, too. The torn bytes go to `PATH.torn`.
    """
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start, tail = end, b""
        while start > 0 and b"\n" not in tail:
            step = min(_BLOCK, start)
            start = file.seek(start - step)
            tail = file.read(step) + tail
            file.seek(start)
        torn = tail[tail.rfind(b"\n") + 1 :]
        if torn:
            with path.with_name(path.name + ".torn").open("ab") as aside:
                aside.write(torn + b"\n")
            file.truncate(end - len(torn))


def read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of every line that is not blank.

    Raises UsageError at one that is no object.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UsageError(
                    f"{path}, line {number} is not JSON ({error}); "
                    "mend or delete that line, or write to another file"
                ) from error
            if not isinstance(row, dict):
                raise UsageError(f"{path}, line {number} is no JSON object")
            yield number, row


def replace(path: Path, content: bytes) -> None:
    """Write a file in one piece: readers see the old or the new one, never half.

    Raises OutputFailed.
    """
    scratch = path.with_name(path.name + ".tmp")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise OutputFailed(f"cannot write {path}: {error.strerror}") from error
