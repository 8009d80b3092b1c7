"""What a script gets and what it gives: one request in, one reply out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

from pydantic import ConfigDict


@dataclass(frozen=True)
class Request:
    """One chat request, as it arrived.

    `stage`, `question_id`, `repeat` and `n` come from the header `X-Request-Id:
    <percent-quoted question id>/<repeat>/<stage>/<n>`; they are "" or 0 if it has another form.
    """

    body: Mapping[str, Any] = field(default_factory=dict)  # {} where `raw` is no JSON
    stage: str = ""
    question_id: str = ""
    repeat: int = 0
    n: int = 0
    request_id: str = ""  # the whole header
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""
    arrival: int = 0  # counts the chat requests of this server from 0
    attempt: int = 0  # how often this X-Request-Id came before
    sample: int = 0  # which of the `n` replies that the body asks for

    @cached_property
    def contents(self) -> list[tuple[str, str]]:
        """(role, text) of every message; of a list of content parts, only the texts."""
        return [(m.get("role", ""), _text(m.get("content"))) for m in self.body.get("messages", ())]

    @property
    def text(self) -> str:
        """All messages, joined by newlines."""
        return "\n".join(text for _, text in self.contents)

    @property
    def system(self) -> str:
        """The system messages, joined by newlines."""
        return "\n".join(text for role, text in self.contents if role == "system")

    @property
    def user(self) -> str:
        """The user's messages, joined by newlines."""
        return "\n".join(text for role, text in self.contents if role == "user")


@dataclass(frozen=True)
class Reply:
    """What the server shall do with one request.

    `fault`: "reset" breaks the connection after the request was read and before any byte of the
    reply; "truncate" sends half of the body and closes; "hang" never answers; "garbage" sends a
    body that is no JSON.
    """

    # Read by pydantic when a JSON script is loaded: a misspelt field is an error.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    text: str | None = "OK"  # cut at the request's max_tokens: finish_reason is then "length"
    status: int = 200  # from 400 on, vLLM's error body is sent
    delay: float = 0.0  # seconds, on top of the server's latency
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    reasoning: str | None = None  # thought before the text, out of the same max_tokens
    reasoning_field: str = "reasoning"
    prompt_tokens: int | None = None  # this and the next: what usage says instead of an estimate
    completion_tokens: int | None = None
    cached_tokens: int | None = None  # fills in usage.prompt_tokens_details
    fault: Literal["reset", "truncate", "hang", "garbage"] | None = None
    body: bytes | None = None  # instead of the whole body
    error: str | None = None  # the words of the error body
    fingerprint: str | None = None  # instead of the server's

    @property
    def failed(self) -> bool:
        """Whether it is an HTTP error."""
        return self.status >= HTTPStatus.BAD_REQUEST


Script = Callable[[Request], Reply | Awaitable[Reply]]


def split_request_id(header: str) -> tuple[str, str, int, int]:
    """Split an `X-Request-Id` into (stage, question id, repeat, n); ("", "", 0, 0) if odd."""
    try:
        question, repeat, stage, n = header.rsplit("/", 3)
        return stage, unquote(question), int(repeat), int(n)
    except ValueError:
        return "", "", 0, 0


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if "text" in part)
    return content or ""
