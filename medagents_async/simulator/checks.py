"""What vLLM refuses before it computes anything, in its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from .bodies import error, unknown_model
from .script import Request

Refusal = tuple[int, bytes]  # status, body

_NUMBERS = {
    "max_tokens": (int, "integer"),
    "max_completion_tokens": (int, "integer"),
    "n": (int, "integer"),
    "seed": (int, "integer"),
    "temperature": (float, "number"),
    "top_p": (float, "number"),
}


def refusal(
    request: Request, content_type: str, models: Sequence[str], *, multimodal: bool
) -> Refusal | None:
    """Say why this chat request is refused, or None. Unknown fields are no reason.

    The prompt's length is not looked at here.
    """
    problem = _form(request, content_type)
    if problem is not None:
        message, loc = problem
        param = loc and f"body.{loc}"
        text = f"1 validation error:\n  {message}"
        return 400, error(400, text, kind="Bad Request", param=param)
    body = request.body
    model = body.get("model")
    if model is not None and model not in models:
        return 404, unknown_model(model, models)
    rejected = _content(body, models[0], multimodal=multimodal) or _range(body)
    if rejected is not None:
        words, param = rejected
        return 400, error(400, words, param=param)
    return None


def too_long(prompt: int, max_model_len: int) -> Refusal | None:
    """Refuse a prompt of `prompt` tokens if it leaves no room for one token of a reply."""
    if prompt < max_model_len:
        return None
    # vLLM stops counting here, so it always names one token too many.
    words = (
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt "
        f"contains at least {max_model_len + 1} input tokens, which exceeds this limit even "
        "without any output tokens. Please reduce the length of the input prompt. "
        f"(parameter=input_tokens, value={max_model_len + 1})"
    )
    return 400, error(400, words, param="input_tokens")


def token_limit(body: Mapping[str, Any], room: int) -> int:
    """Tell how many tokens a reply may have: what is asked for, cut in silence to what fits."""
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or room
    return min(asked, room)


def _form(request: Request, content_type: str) -> tuple[str, str | None] | None:
    """(message, location) of the first thing that is not of the right type."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        return "Unsupported Media Type: Only 'application/json' is allowed", None
    body = request.body
    if not body:
        try:
            value = orjson.loads(request.raw)
        except orjson.JSONDecodeError as bad:
            place = f"'loc': 'body.{bad.pos}', 'msg': 'JSON decode error'"
            detail = f"'input': '<dict of 0 items>', 'ctx': {{'error': '{bad.msg}'}}"
            return f"{{'type': 'json_invalid', {place}, {detail}}}", str(bad.pos)
        if not isinstance(value, dict):
            words = "Input should be a valid dictionary or object to extract fields from"
            return _invalid("model_attributes_type", "body", words, value), None
    if "messages" not in body:
        shown = f"<dict of {len(body)} items>"
        return _invalid("missing", "body.messages", "Field required", shown), "messages"
    return _types(body)


def _types(body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    messages = body["messages"]
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        words = "Input should be a valid list of messages"
        return _invalid("list_type", "body.messages", words, "<messages>"), "messages"
    parts = [m["content"] for m in messages if isinstance(m.get("content"), list)]
    if not all(isinstance(part, dict) for some in parts for part in some):
        words = "Input should be a valid dictionary"
        return _invalid("dict_type", "body.messages", words, "<content>"), "messages"
    for name in ("structured_outputs", "response_format"):
        if not isinstance(body.get(name), dict | None):
            words = "Input should be a valid dictionary"
            return _invalid("dict_type", f"body.{name}", words, body[name]), name
    return _numbers(body)


def _numbers(body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    for name, (kind, noun) in _NUMBERS.items():
        value = body.get(name)
        if value is None or isinstance(value, kind | int):
            continue
        words, code = f"Input should be a valid {noun}", f"{kind.__name__}_type"
        if isinstance(value, str):
            words += f", unable to parse string as {'an' if noun == 'integer' else 'a'} {noun}"
            code = f"{kind.__name__}_parsing"
        elif isinstance(value, float):
            words += ", got a number with a fractional part"
            code = "int_from_float"
        return _invalid(code, f"body.{name}", words, value), name
    return None


def _invalid(code: str, loc: str, words: str, value: object) -> str:
    return f"{{'type': '{code}', 'loc': '{loc}', 'msg': '{words}', 'input': '{value}'}}"


def _content(
    body: Mapping[str, Any], model: str, *, multimodal: bool
) -> tuple[str, str | None] | None:
    if not body["messages"]:
        return (
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        ), None
    if body.get("stream"):
        return "The simulator does not stream; send the request without `stream`.", "stream"
    parts = (m["content"] for m in body["messages"] if isinstance(m.get("content"), list))
    if not multimodal and any(part.get("type") != "text" for some in parts for part in some):
        return f"{model} is not a multimodal model", None
    outputs = body.get("structured_outputs") or {}
    if len([kind for kind in outputs if kind in ("json", "regex", "choice", "grammar")]) > 1:
        return (
            "You can only use one kind of constraints for structured outputs "
            "('json', 'regex' or 'choice')."
        ), None
    if outputs.get("choice") == []:
        return "Choice '[]' cannot be an empty list", None
    return None


def _range(body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    temperature, top_p, n = (body.get(name) for name in ("temperature", "top_p", "n"))
    if n is not None and n < 1:
        return f"n must be at least 1, got {n}.", None
    for name, bad, rule, value in (
        ("temperature", (temperature or 0) < 0, "must be non-negative", temperature),
        ("top_p", top_p is not None and not 0 < top_p <= 1, "must be in (0, 1]", top_p),
    ):
        if bad:
            shown = float(value or 0)
            return f"{name} {rule}, got {shown}. (parameter={name}, value={shown})", name
    for name in ("max_tokens", "max_completion_tokens"):
        value = body.get(name)
        if value is not None and value < 1:
            words = f"{name} must be at least 1, got {value}."
            return f"{words} (parameter={name}, value={value})", name
    return None
