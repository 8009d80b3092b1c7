"""OUT.jsonl: one row for each (question, repeat), appended when it is done."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any, Literal

import orjson

from medagents_async.engine import jsonl
from medagents_async.errors import OutputFailed, UsageError
from medagents_async.types import Outcome, Step

Trace = Literal["full", "brief", "off"]
#: What totals add up over rows, beside `usage`.
SUMMED = ("calls", "truncated", "cut_by_context", "retries")
Key = tuple[str, int]  # (question id, repeat)


class Sink:
    """Appends rows to `path` and knows which are there already.

    `folder` is the run's journal folder; a lock on it keeps a second run off the same OUT.
    Raises UsageError when another run holds it or a line is no row.
    """

    SYNC_S = 1.0

    def __init__(self, path: Path, folder: Path, method: str, trace: Trace) -> None:
        self.path = path
        self._method = method
        self._trace = trace
        self._dirty = False
        self._lock = _locked(folder, path)
        self.done: dict[Key, dict[str, Any]] = {}
        if path.exists():
            jsonl.repair(path)
            self._read()
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            _sync_folder(path.parent)
        except OSError as error:
            raise OutputFailed(f"cannot write {path}: {error.strerror}") from error

    def _read(self) -> None:
        """Take in finished rows; those that ended in an error are owed again and leave the file."""
        kept, owed = [], 0
        for number, row in jsonl.read(self.path):
            try:
                key, status = (str(row["id"]), int(row["repeat"])), row["status"]
            except (LookupError, TypeError, ValueError) as error:
                raise UsageError(
                    f"{self.path}, line {number} is no row of a run; write to another file"
                ) from error
            if status == "error":
                owed += 1
            elif key not in self.done:
                kept.append(number)
                self.done[key] = _summary(row)
        if owed:
            wanted = set(kept)
            with self.path.open("rb") as file:
                lines = [line for number, line in enumerate(file, 1) if number in wanted]
            jsonl.replace(self.path, b"".join(lines))

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
        if self._dirty:
            self._dirty = False
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        self.sync()
        os.close(self._descriptor)
        os.close(self._lock)


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
        "reply": completion.text if completion else None,
        "reasoning": completion.reasoning if completion else None,
        "finish_reason": completion.finish_reason if completion else None,
        "usage": completion.usage if completion else None,
        "error": step.error,
        "queued_s": round(step.queued_s, 6),
        "seconds": round(step.seconds, 6),
        "attempts": step.attempts,
        "server": step.server,
    }
    if trace == "brief":
        del row["request"]
    return row


def _locked(folder: Path, path: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(
            f"another run is writing {path}; wait for it, or write to another file"
        ) from error
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
