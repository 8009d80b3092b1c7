"""What scoring keeps of a row: a few hundred bytes, whatever its trace weighs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from medagents_async.scoring.process import Process, process
from medagents_async.types import Status

STATUSES = get_args(Status)


@dataclass(frozen=True, slots=True)
class Record:
    """One (question, repeat). `error` is its kind; `seconds` run from first call to outcome.

    `truncated` counts replies that ended at a token limit.
    """

    id: str
    index: int
    repeat: int
    status: Status
    prediction: str | None
    answer: str | None
    subject: str | None = None
    error: str | None = None
    calls: int = 0
    truncated: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    process: Process = field(default_factory=Process)

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.repeat

    @property
    def correct(self) -> bool | None:
        """None without an answer key. What has no prediction is wrong."""
        return None if self.answer is None else self.prediction == self.answer

    @property
    def tokens(self) -> int:
        """Prompt and completion together, those that a server had cached included."""
        return self.prompt_tokens + self.completion_tokens


def record(row: Mapping[str, Any]) -> Record:
    """The record of a row of OUT.

    Only a row whose status is `ok` has a prediction, whatever else it says. Raises LookupError,
    TypeError or ValueError where it is no such row.
    """
    status = row["status"]
    if status not in STATUSES:
        raise ValueError(f"no status: {status!r}")
    usage, error, subject = row.get("usage") or {}, row.get("error") or {}, row.get("subject")
    return Record(
        id=str(row["id"]),
        index=int(row["index"]),
        repeat=int(row["repeat"]),
        status=status,
        prediction=_letter(row["prediction"]) if status == "ok" else None,
        answer=_letter(row["answer"]),
        subject=None if subject is None else sys.intern(str(subject)),
        error=sys.intern(str(error.get("kind", "unknown"))) if status == "error" else None,
        calls=int(row.get("calls", 0)),
        truncated=int(row.get("truncated", 0)),
        retries=int(row.get("retries", 0)),
        prompt_tokens=int(usage.get("prompt_tokens", 0)),
        completion_tokens=int(usage.get("completion_tokens", 0)),
        cached_tokens=int(usage.get("cached_tokens", 0)),
        seconds=float(row.get("seconds", 0.0)),
        process=process(row.get("detail") or {}),
    )


def _letter(value: Any) -> str | None:
    return None if value is None else sys.intern(str(value))
