"""OUT.jsonl: one row for each (question, repeat), appended when it is done."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from medagents_async.engine import jsonl
from medagents_async.errors import OutputFailed, UsageError
from medagents_async.types import Outcome, Status, Step

Trace = Literal["full", "brief", "off"]
#: What totals add up over rows, and over their `usage`.
SUMMED = ("calls", "truncated", "cut_by_context", "retries")
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")
STATUSES = get_args(Status)
Key = tuple[str, int]  # (question id, repeat)


class Sink:
    """Appends rows to `path` and knows which are there already.

    Rows that ended in an error leave the file where `owed` wants them again; `note` gets what
    totals need of each that stays and that `owed` would want. A lock on the file keeps a second run
    off. Raises UsageError when another run holds it, it cannot be opened, or a
    line is no row.
    """

    SYNC_S = 1.0

    def __init__(
        self,
        path: Path,
        method: str,
        trace: Trace,
        owed: Callable[[Key], bool],
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        self.path = path
        self._method = method
        self._trace = trace
        self._dirty = False
        self.done: set[Key] = set()
        self._descriptor = _locked(path)
        try:
            jsonl.repair(path)
            dropped = self._take_in(owed, note)
            if dropped:
                self._rewrite(dropped)
            _sync_folder(path.parent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _take_in(
        self, owed: Callable[[Key], bool], note: Callable[[dict[str, Any]], None]
    ) -> set[int]:
        """Fill `done`; returns the numbers of the lines that must leave the file."""
        dropped = set()
        for number, row in jsonl.read(self.path):
            try:
                key, status = (str(row["id"]), int(row["repeat"])), row["status"]
                if status not in STATUSES or not isinstance(row["usage"], dict):
                    raise TypeError
            except (LookupError, TypeError, ValueError) as error:
                raise UsageError(
                    f"{self.path}, line {number} is no row of a run; write to another file"
                ) from error
            wanted = owed(key)
            if key in self.done or (status == "error" and wanted):
                dropped.add(number)
            else:
                self.done.add(key)
                if wanted:
                    note(row)
        return dropped

    def _rewrite(self, dropped: set[int]) -> None:
        scratch = self.path.with_name(self.path.name + ".tmp")
        scratch.unlink(missing_ok=True)
        fresh = _locked(scratch)  # before it becomes OUT, so that OUT is never without a lock
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number not in dropped:
                    jsonl.append(fresh, line, scratch)
        os.fsync(fresh)
        scratch.replace(self.path)
        os.close(self._descriptor)
        self._descriptor = fresh

    def write(self, outcome: Outcome) -> dict[str, Any]:
        """Append the outcome's row and return what totals need of it. Raises OutputFailed."""
        row = _row(outcome, self._method, self._trace)
        jsonl.append(
            self._descriptor, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE), self.path
        )
        self._dirty = True
        return _summary(row)

    async def keep_synced(self) -> None:
        """Bring rows to the disk once a second, in a thread: a kill loses none, a power cut few."""
        while True:
            await asyncio.sleep(self.SYNC_S)
            await asyncio.to_thread(self.sync)

    def sync(self) -> None:
        """Raises OutputFailed, also where OUT was deleted or moved away meanwhile."""
        if not self._dirty:
            return
        self._dirty = False
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise OutputFailed(f"cannot write {self.path}: {error.strerror}") from error
        if os.fstat(self._descriptor).st_nlink == 0:
            raise OutputFailed(f"{self.path} was deleted while the run was writing it")

    def close(self) -> None:
        """Raises OutputFailed."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """The little of a row that totals need; the rest of 200,000 rows would not fit into memory."""
    return {name: row.get(name) for name in ("status", "correct", *SUMMED, "usage")}


def _row(outcome: Outcome, method: str, trace: Trace) -> dict[str, Any]:
    item, steps = outcome.item, sorted(outcome.steps, key=lambda step: step.order)
    completions = [step.completion for step in steps if step.completion is not None]
    usages = [completion.usage for completion in completions]
    correct = None if item.answer is None else outcome.prediction == item.answer
    return {
        "id": item.question.id,
        "index": item.question.index,
        "repeat": outcome.repeat,
        "status": outcome.status,
        "prediction": outcome.prediction,
        "answer": item.answer,
        "correct": correct,
        "subject": item.subject,
        "error": outcome.error,
        "method": method,
        "calls": len(steps),
        "truncated": sum(completion.truncated for completion in completions),
        "cut_by_context": sum(step.cut_by_context for step in steps),
        "retries": sum(step.attempts - 1 for step in steps),
        "usage": {
            "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
            "completion_tokens": sum(usage.completion_tokens for usage in usages),
            "cached_tokens": sum(usage.cached_tokens for usage in usages),
        },
        "seconds": round(outcome.seconds, 6),
        "detail": outcome.detail,
        "trace": [] if trace == "off" else [_trace_row(step, trace) for step in steps],
    }


def _trace_row(step: Step, trace: Trace) -> dict[str, Any]:
    completion = step.completion
    row: dict[str, Any] = {
        "stage": step.call.stage,
        "agent": step.agent,
        "round": step.round,
        "n": step.call.n,
        # The request is encoded once, when it is sent, and stored as those bytes.
        "request": orjson.Fragment(step.call.body) if trace == "full" else None,
        "reply": completion.text if completion and not step.error else None,
        "reasoning": completion.reasoning if completion else None,
        "finish_reason": completion.finish_reason if completion else None,
        "usage": completion.usage if completion else None,
        "error": str(step.error) if step.error else None,
        "asked_s": round(step.asked_s, 6),
        "queued_s": round(step.queued_s, 6),
        "seconds": round(step.seconds, 6),
        "attempts": step.attempts,
        "server": step.server,
    }
    if completion and completion.more:
        row["replies"] = completion.texts
    if trace == "brief":
        del row["request"]
    return row


def _locked(path: Path) -> int:
    """A descriptor that appends to `path` and holds its lock."""
    while True:
        try:
            if path.exists() and not path.is_file():
                raise UsageError(f"{path} is no file that rows can be read back from")
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                f"another run is writing {path}; wait for it, or write to another file"
            ) from error
        if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
        os.close(descriptor)  # it was replaced just before the lock was ours


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
