"""A server's HTTP answer as a completion, or as the error that says who can act on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from medagents_async import parsing
from medagents_async.errors import (
    CallError,
    Empty,
    Malformed,
    ReasoningOnly,
    Refused,
    Truncated,
    Unavailable,
)
from medagents_async.types import Completion, Usage

_MAY_PASS = {408, 425, 429}
_BUSY = {429, 503}
#: What vLLM says of a reply that it gave up in the middle, as it does when it is stopped.
_BROKEN_OFF = {"abort", "error"}
LONGEST_WISH_S = 300.0


def read(status: int, headers: Mapping[str, str], body: bytes, samples: int = 1) -> Completion:
    """The completion in an answer to `/chat/completions`, of so many samples.

    Its text may be empty: see `wordless`. Raises CallError: Unavailable for what may pass,
    Refused for what may not, Malformed for a 200 that is no completion.
    """
    if status != 200:
        raise _failure(status, headers, body)
    try:
        reply = load(body)
        choices = reply["choices"]
        if samples > 1:  # of which the server may have finished another first
            choices = sorted(choices, key=lambda choice: choice.get("index") or 0)
        first, *others = [_choice(choices[n]) for n in range(samples)]
        usage, fingerprint = _usage(reply.get("usage") or {}), _text(reply, "system_fingerprint")
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Malformed(f"not a chat completion ({error}): {excerpt(body)}") from error
    text, reasoning, finish_reason = first
    for *_, reason in (first, *others):
        if reason in _BROKEN_OFF:
            raise Unavailable(f"the server broke the reply off ({reason})")
    more = tuple((other, reason) for other, _, reason in others)
    return Completion(text, finish_reason, usage, reasoning, fingerprint, more)


def _choice(choice: Mapping[str, Any]) -> tuple[str, str | None, str]:
    """(visible text, thinking, finish reason) of one sample."""
    message = choice["message"]
    reasoning = _text(message, "reasoning") or _text(message, "reasoning_content")
    text, thinking = parsing.visible(_text(message, "content") or "")
    reasoning = "\n".join(part for part in (reasoning, thinking) if part) or None
    return text, reasoning, _text(choice, "finish_reason") or "stop"


def _text(holder: Mapping[str, Any], name: str) -> str | None:
    found = holder.get(name)
    if not isinstance(found, str | None):
        raise TypeError(f"a {type(found).__name__} where a text should be")
    return found


def load(body: bytes) -> Any:
    """JSON that a server sent; lone surrogates, which no UTF-8 file can hold, become U+FFFD."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        # Twenty times slower, but it takes NaN and escapes that are not valid Unicode.
        try:
            decoded = json.loads(body, parse_constant=lambda _: None)
            repaired = json.dumps(decoded, ensure_ascii=False).encode("utf-8", "replace")
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        return json.loads(repaired)


def server_words(body: bytes) -> str:
    """The human part of an error body: vLLM sends `error` as an object, a text, or `detail`."""
    try:
        document = load(body)
    except ValueError:
        return excerpt(body)
    error = document.get("error", document) if isinstance(document, dict) else document
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return error if isinstance(error, str) else excerpt(body)


def excerpt(body: bytes, length: int = 300) -> str:
    """The start of a body as text fit for an error message."""
    text = " ".join(body[: 4 * length].decode("utf-8", "replace").split())
    return text if len(text) <= length else text[:length] + "…"


def _failure(status: int, headers: Mapping[str, str], body: bytes) -> CallError:
    words = server_words(body)
    if status in _MAY_PASS or status >= 500:
        wish = _seconds(headers.get("retry-after"))
        return Unavailable(f"HTTP {status}: {words}", retry_after=wish, busy=status in _BUSY)
    if 300 <= status < 400:
        words = f"redirects are not followed; give {headers.get('location')} as --base-url"
    return Refused(status, words)


def wordless(completion: Completion) -> CallError | None:
    """Why a completion has no text, None where it has some."""
    if any(completion.texts):
        return None
    if completion.truncated:
        where = "while the model was still thinking" if completion.reasoning else "before any text"
        return Truncated(f"the token limit was reached {where}; raise this stage's limit")
    if completion.reasoning:
        return ReasoningOnly("the model thought, but wrote no answer")
    return Empty("the model's reply is empty")


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    counts = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        details.get("cached_tokens"),
    )
    return Usage(*(min(max(int(count or 0), 0), 2**53) for count in counts))


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After is a number of seconds or a date; anything else is as good as none.

    No wish is followed for longer than LONGEST_WISH_S: a run must not hang on a slip.
    """
    if retry_after is None:
        return None
    try:
        return min(max(0.0, float(retry_after)), LONGEST_WISH_S)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if not when.tzinfo:
        return None
    return min(max(0.0, (when - datetime.now(UTC)).total_seconds()), LONGEST_WISH_S)
