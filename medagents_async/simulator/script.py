"""What a script gets and what it gives: one request in, one reply out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

from pydantic import ConfigDict

Fault = Literal["reset", "truncate", "hang", "garbage"]


@dataclass(frozen=True)
class Request:
    """One chat request, as it arrived.

    `question_id`, `repeat`, `stage` and `n` come from the header
    `X-Request-Id: <percent-quoted question id>/<repeat>/<stage>/<n>`; they are empty or 0 where
    the header is missing or has another form. Header names are in lower case. `body` is {} where
    `raw` is no JSON object. `arrival` counts the chat requests of this server from 0, `attempt`
    says how often this `X-Request-Id` came before, `choice` which of the `n` choices of the
    body is asked for.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    question_id: str = ""
    repeat: int = 0
    n: int = 0
    session_id: str = ""
    request_id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""
    arrival: int = 0
    attempt: int = 0
    choice: int = 0

    @cached_property
    def contents(self) -> tuple[tuple[str, str], ...]:
        """(role, text) of every message; of a list of content parts, only the texts."""
        messages = self.body.get("messages")
        if not isinstance(messages, list):
            return ()
        return tuple(
            (str(message.get("role", "")), _plain(message.get("content")))
            for message in messages
            if isinstance(message, dict)
        )

    @cached_property
    def text(self) -> str:
        """All messages, joined by newlines."""
        return "\n".join(text for _, text in self.contents)

    @cached_property
    def system(self) -> str:
        """The system messages, joined by newlines."""
        return "\n".join(text for role, text in self.contents if role == "system")

    @cached_property
    def user(self) -> str:
        """The user's messages, joined by newlines."""
        return "\n".join(text for role, text in self.contents if role == "user")


@dataclass(frozen=True)
class Reply:
    """What the server shall do with one request.

    A `status` of 400 and more sends vLLM's error body with the words of `error`. `delay`, in
    seconds, comes on top of the server's latency. `text` is cut at the request's `max_tokens`,
    whereupon `finish_reason` becomes "length"; `reasoning` is thought first, out of the same
    tokens. Token counts left at None are estimated; `cached_tokens` fills in
    `usage.prompt_tokens_details`. `body` replaces the whole body.

    `fault`: "reset" breaks the connection after the request was read and before any byte of the
    reply; "truncate" sends half of the body and closes; "hang" never answers; "garbage" is a
    200 whose body is no JSON.
    """

    # Read by pydantic when a JSON script is loaded: a misspelt field is an error.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    text: str | None = "OK"
    status: int = 200
    delay: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    reasoning: str | None = None
    reasoning_field: str = "reasoning"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    fault: Fault | None = None
    body: bytes | None = None
    error: str | None = None
    fingerprint: str | None = None


Script = Callable[[Request], Reply | Awaitable[Reply]]


def split_request_id(header: str) -> tuple[str, int, str, int]:
    """Split an `X-Request-Id` into (question id, repeat, stage, n); ("", 0, "", 0) if odd."""
    try:
        question, repeat, stage, n = header.rsplit("/", 3)
        return unquote(question), int(repeat), stage, int(n)
    except ValueError:
        return "", 0, "", 0


def _plain(content: object) -> str:
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""
