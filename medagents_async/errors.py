"""The error tree, by who can act on it.

::

    MedAgentsError
    ├── UsageError           the user, before anything is sent         exit 2
    │   └── InputError       … bad rows, each with its line and reason
    ├── RunStopped           the user, then resume; work is on disk     exit 3
    │   ├── ServerGone       … the server did not come back
    │   ├── ServerChanged    … another model or fingerprint answers now
    │   ├── OutputFailed     … OUT or the journal cannot be written
    │   └── Interrupted      … SIGINT or SIGTERM                        exit 130
    └── CallError            nobody right now: the question ends as `error`
        ├── Unavailable      … retried: refused, reset, 408, 429, 5xx   kind "unavailable"
        │   └── TimedOut     … retried: no reply within --timeout       kind "timeout"
        ├── Refused          … never retried: any other 4xx             kind "refused"
        ├── Malformed        … a 200 whose body is no completion        kind "malformed"
        ├── Empty            … no text at all                           kind "empty"
        ├── ReasoningOnly    … thought, but said nothing                kind "reasoning_only"
        ├── Truncated        … cut by length before any text            kind "truncated"
        └── BadImage         … never sent: its image cannot be read     kind "image"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class MedAgentsError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(MedAgentsError):
    """The command cannot start; the message says what to change."""

    exit_status: ClassVar[int] = 2


class InputError(UsageError):
    """Rows of the input are not usable.

    `problems` holds (line number counted from 1, reason) for every bad line.
    """

    SHOWN = 20

    def __init__(self, path: str, problems: Sequence[tuple[int, str]]) -> None:
        self.problems = list(problems)
        lines = [f"  line {number}: {reason}" for number, reason in self.problems[: self.SHOWN]]
        if len(self.problems) > self.SHOWN:
            lines.append(f"  … and {len(self.problems) - self.SHOWN} more")
        count = len(self.problems)
        super().__init__(
            f"{path}: {count} bad row{'s' if count > 1 else ''}; nothing was sent.\n"
            + "\n".join(lines)
            + "\nMend them, or leave them out with --skip-bad-rows."
        )


class RunStopped(MedAgentsError):
    """The run ended early; the same command resumes it. `summary` says how far it came."""

    exit_status: ClassVar[int] = 3
    summary: Mapping[str, object] | None = None


class ServerGone(RunStopped):
    """No server answered for longer than the grace time."""


class ServerChanged(RunStopped):
    """What answers now is not what the run began with."""


class OutputFailed(RunStopped):
    """A result could not be written."""


class Interrupted(RunStopped):
    """The user or the machine asked the run to stop."""

    exit_status = 130


class CallError(MedAgentsError):
    """One call gave no usable reply. `kind` is what OUT's `error.kind` says."""

    kind: ClassVar[str] = "call"
    stage: str | None = None  # filled in by `ask`, which knows it


class Unavailable(CallError):
    """The server could not answer now; the same call may pass later.

    `retry_after` is the server's own wish in seconds. `went_down` says that the server itself
    stopped, which is no fault of the call and uses up none of its retries; `busy`, that it had no
    room for the call.
    """

    kind = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        went_down: bool = False,
        busy: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.went_down = went_down
        self.busy = busy


class TimedOut(Unavailable):
    """No whole reply within the time for one call."""

    kind = "timeout"


class Refused(CallError):
    """The server rejected the request; sending it again cannot help. Keeps the server's words."""

    kind = "refused"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Malformed(CallError):
    """Status 200, but the body is not a chat completion."""

    kind = "malformed"


class Empty(CallError):
    """The model ended its turn without any text."""

    kind = "empty"


class ReasoningOnly(CallError):
    """The reply holds thinking, but no text meant for the reader."""

    kind = "reasoning_only"


class Truncated(CallError):
    """The token limit was reached before any text meant for the reader."""

    kind = "truncated"


class BadImage(CallError):
    """An image is not there or is none. Most are found in the input's check, as bad rows."""

    kind = "image"
