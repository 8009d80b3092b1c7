"""Replies of questions that are still open, so that a killed run repeats no finished call.

A method is deterministic given its replies: run again, it asks the same calls, and those that
are on record answer at once. One small file a question, deleted when its row is in OUT.
"""

from __future__ import annotations

import asyncio
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
        self._failure: OutputFailed | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._there = set(os.listdir(folder))  # looked up once, not for each question
        except OSError as error:
            raise UsageError(f"cannot make {folder}: {error.strerror}") from error

    def record(self, question_id: str, repeat: int) -> Record:
        """The record of one (question, repeat), which is empty when it was never begun."""
        name = hashlib.blake2b(f"{repeat}/{question_id}".encode(), digest_size=12).hexdigest()
        return Record(self, name, begun=f"{name}.jsonl" in self._there)

    def clear(self) -> None:
        """Forget all, at the end of a run that has every outcome."""
        for path in self.folder.glob("*.jsonl*"):
            path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Where the record of that name is."""
        return self.folder / f"{name}.jsonl"

    def write(self, name: str, lines: bytes) -> None:
        """Append to a record's file; where that fails, whoever uses the journal next is told."""
        path = self.path(name)
        # Opened each time: one descriptor a question would run into the system's limit.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            try:
                descriptor = os.open(path, flags, 0o644)
            except FileNotFoundError:  # somebody deleted the folder
                self.folder.mkdir(exist_ok=True)
                descriptor = os.open(path, flags, 0o644)
            try:
                jsonl.append(descriptor, lines, path)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._failure = OutputFailed(f"cannot write {path}: {error.strerror}")
        except OutputFailed as error:
            self._failure = error

    def check(self) -> None:
        """Raises OutputFailed where something could not be written."""
        if self._failure is not None:
            raise self._failure


class Record:
    """The finished calls of one (question, repeat); without a `journal`, nothing is kept.

    Replies are written as soon as the event loop comes round: what comes of a question's last
    one is in OUT before that, and then there is nothing left to write.
    """

    def __init__(
        self, journal: Journal | None = None, name: str = "", *, begun: bool = False
    ) -> None:
        self._journal = journal
        self._name = name
        self._there = begun
        self._unwritten: list[tuple[Call, Completion, Attempts]] = []
        self._entries: dict[str, tuple[str, Completion, Attempts]] = {}
        if journal is not None and begun and (path := journal.path(name)).exists():
            try:
                jsonl.repair(path)
                self._entries = {entry["call"]: _entry(entry) for _, entry in jsonl.read(path)}
            except (UsageError, LookupError, TypeError):
                path.unlink()  # spoilt, or of another version: worth no more than its calls
            except OSError as error:
                raise OutputFailed(f"cannot read {path}: {error.strerror}; remove it") from error

    def recall(self, call: Call) -> tuple[Completion, Attempts] | None:
        """The reply to this very request, if it is on record.

        A request that differs (the method or a prompt has changed, or an earlier reply has) is
        not the same call, whatever its name.
        """
        entry = self._entries.get(call.request_id) if self._entries else None
        return entry[1:] if entry is not None and entry[0] == _digest(call) else None

    def add(self, call: Call, completion: Completion, attempts: Attempts) -> None:
        """Keep a reply. Raises OutputFailed where an earlier one could not be written."""
        if self._journal is None:
            return
        self._journal.check()
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write, self._journal)
        self._unwritten.append((call, completion, attempts))

    def _write(self, journal: Journal) -> None:
        entries, self._unwritten = self._unwritten, []
        if entries:
            self._there = True
            journal.write(self._name, b"".join(_line(*entry) for entry in entries))

    def delete(self) -> None:
        """Forget the question, whose outcome is safe. Raises OutputFailed as `add` does."""
        self._unwritten.clear()
        if self._journal is not None:
            self._journal.check()
            if self._there:
                self._journal.path(self._name).unlink(missing_ok=True)


def _line(call: Call, completion: Completion, attempts: Attempts) -> bytes:
    row = {
        "call": call.request_id,
        "digest": _digest(call),
        "completion": completion,
        "attempts": attempts,
    }
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _entry(row: dict[str, Any]) -> tuple[str, Completion, Attempts]:
    stored = row["completion"]
    completion = dict(
        stored, usage=Usage(**stored["usage"]), more=tuple(map(tuple, stored["more"]))
    )
    return row["digest"], Completion(**completion), Attempts(**row["attempts"])


def _digest(call: Call) -> str:
    return hashlib.blake2b(call.body, digest_size=12).hexdigest()
