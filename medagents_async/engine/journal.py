"""Replies of questions that are still open, so that a killed run repeats no finished call.

A method is deterministic given its replies: run again, it asks the same calls, and those that
are on record answer at once. One small file a question, deleted when its row is in OUT.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import orjson

from medagents_async.engine import jsonl
from medagents_async.engine.retry import Attempts
from medagents_async.errors import OutputFailed, UsageError
from medagents_async.types import Call, Completion, Usage


class Journal:
    """The folder of all records. It may be deleted at any time: only work is lost.

    Raises UsageError where it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make {folder}: {error.strerror}") from error

    def record(self, question_id: str, repeat: int) -> Record:
        """The record of one (question, repeat), which is empty when it was never begun."""
        name = hashlib.blake2b(f"{repeat}/{question_id}".encode(), digest_size=12).hexdigest()
        return Record(self.folder / f"{name}.jsonl")

    def clear(self) -> None:
        """Forget all, at the end of a run that has every outcome."""
        for path in self.folder.glob("*.jsonl*"):
            path.unlink(missing_ok=True)


class Record:
    """The finished calls of one (question, repeat); without a `path`, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: dict[str, tuple[str, Completion, Attempts]] = {}
        if path is not None and path.exists():
            try:
                jsonl.repair(path)
                self._entries = {entry["call"]: _entry(entry) for _, entry in jsonl.read(path)}
            except (UsageError, LookupError, TypeError):
                path.unlink()  # spoilt, or of another version: worth no more than its calls

    def recall(self, call: Call) -> tuple[Completion, Attempts] | None:
        """The reply to this very request, if it is on record.

        A request that differs (the method or a prompt has changed, or an earlier reply has) is
        not the same call, whatever its name.
        """
        entry = self._entries.get(call.request_id)
        return entry[1:] if entry is not None and entry[0] == _digest(call) else None

    def add(self, call: Call, completion: Completion, attempts: Attempts) -> None:
        """Raises OutputFailed."""
        if self._path is None:
            return
        entry = {
            "call": call.request_id,
            "digest": _digest(call),
            "completion": completion,
            "attempts": attempts,
        }
        # Opened for each line: one descriptor a question would run into the system's limit.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            try:
                descriptor = os.open(self._path, flags, 0o644)
            except FileNotFoundError:  # somebody deleted the folder
                self._path.parent.mkdir(exist_ok=True)
                descriptor = os.open(self._path, flags, 0o644)
        except OSError as error:
            raise OutputFailed(f"cannot write {self._path}: {error.strerror}") from error
        try:
            line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
            jsonl.append(descriptor, line, self._path)
        finally:
            os.close(descriptor)

    def delete(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _entry(row: dict[str, Any]) -> tuple[str, Completion, Attempts]:
    stored = row["completion"]
    completion = dict(stored, usage=Usage(**stored["usage"]), more=tuple(stored["more"]))
    return row["digest"], Completion(**completion), Attempts(**row["attempts"])


def _digest(call: Call) -> str:
    return hashlib.blake2b(call.body, digest_size=12).hexdigest()
