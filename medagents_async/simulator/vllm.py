"""What vLLM 0.32 refuses and what it says, as recorded from a real server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from medagents_async.simulator import tokens
from medagents_async.simulator.script import Reply, Request

Body = dict[str, Any]
#: A gauge or counter, one by `finished_reason`, or a histogram's (sum, count).
Metric = float | Mapping[str, float] | tuple[float, float]

_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


def cut(text: str, limit: int) -> tuple[str, int]:
    """(`text` up to its first `limit` tokens, how many tokens that are)."""
    left, encoded = tokens.cut(text, limit)
    return left, tokens.count(encoded)


@dataclass
class Refused(Exception):
    """An answer of `status`; without `message`, in HTTP's words for it."""

    status: int
    message: str | None = None
    param: str | None = None
    type: str | None = None

    @property
    def body(self) -> Body:
        """The body of the answer."""
        if self.status == HTTPStatus.UNAUTHORIZED and self.message is None:
            return {"error": "Unauthorized"}  # the one error that is a string
        phrase = HTTPStatus(self.status).phrase
        kind = self.type or _TYPES.get(self.status, phrase)
        error = {"message": self.message or phrase, "type": kind, "param": self.param}
        return {"error": error | {"code": self.status}}


class Chat(BaseModel):
    """The fields of a chat request that are looked at; any other is ignored, as by vLLM."""

    messages: list[dict[str, Any]]
    model: str | None = None
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    n: int = 1
    structured_outputs: dict[str, Any] | None = None


def check(request: Request, models: Sequence[str], max_model_len: int) -> bytes:
    """Give the tokens of the prompt, as `tokens.encode` does, or raise Refused."""
    try:
        chat = Chat.model_validate_json(request.raw)
    except ValidationError as error:
        first = error.errors()[0]
        loc = ".".join(map(str, ("body", *first["loc"])))
        shown = {"type": first["type"], "loc": loc, "msg": first["msg"]}
        raise Refused(400, f"1 validation error:\n  {shown}", loc, "Bad Request") from error
    if chat.model not in (None, *models):
        words = f"The model `{chat.model}` does not exist. Valid aliases: {', '.join(models)}."
        raise Refused(404, words, "model")
    if not chat.messages:
        words = "Cannot apply chat template to an empty conversation."
        raise Refused(400, f"{words} Provide at least one message.")
    _check_sampling(chat)
    prompt = tokens.encode(request.text)
    if (length := tokens.count(prompt)) >= max_model_len:
        words = f"This model's maximum context length is {max_model_len} tokens. However, your"
        raise Refused(400, f"{words} prompt contains {length} input tokens.", "input_tokens")
    return prompt


def _check_sampling(chat: Chat) -> None:
    if chat.n < 1:
        raise Refused(400, f"n must be at least 1, got {chat.n}.")
    if chat.n > 1 and chat.temperature == 0:
        raise Refused(400, f"n must be 1 when using greedy sampling, got {chat.n}.")
    constraints = chat.structured_outputs or {}
    if len(constraints.keys() & {"json", "regex", "choice", "grammar"}) > 1:
        words = "You can only use one kind of constraints for structured outputs"
        raise Refused(400, f"{words} ('json', 'regex' or 'choice').")
    if constraints.get("choice") == []:
        raise Refused(400, "Choice '[]' cannot be an empty list")


@dataclass(frozen=True, slots=True)
class Output:
    """A reply as far as the server lets it get; `count` tokens, of which `tokens` are known."""

    reply: Reply
    text: str | None
    reasoning: str | None
    finish_reason: str
    count: int
    tokens: bytes


def write(request: Request, reply: Reply, room: int) -> Output:
    """Cut what does not fit into `room` tokens, or the request's max_tokens, in silence."""
    limit = min(request.body.get("max_tokens") or room, room)
    thought, thought_tokens = tokens.cut(reply.reasoning or "", limit)
    text, text_tokens = tokens.cut(reply.text or "", limit - tokens.count(thought_tokens))
    thought_out = thought == (reply.reasoning or "")
    whole = thought_out and text == (reply.text or "")
    written = thought_tokens + text_tokens
    return Output(
        reply,
        text if thought_out and reply.text is not None else None,
        thought or None,
        reply.finish_reason if whole else "length",
        (reply.completion_tokens if whole else None) or tokens.count(written),
        written,
    )


def completion(
    request: Request, outputs: Sequence[Output], prompt_tokens: int, cached_tokens: int | None
) -> Body:
    """Build a chat completion, but for the server's `model` and `system_fingerprint`.

    `cached_tokens` is None where the server does not tell. The reply's own token counts go first.
    """
    reply = outputs[0].reply
    prompt = reply.prompt_tokens or prompt_tokens
    generated = sum(output.count for output in outputs)
    cached = cached_tokens if reply.cached_tokens is None else reply.cached_tokens
    details = {"cached_tokens": cached, "created_cache_tokens": 0, "multimodal_tokens": None}
    return {
        "id": f"chatcmpl-{request.request_id or request.arrival}",
        "object": "chat.completion",
        "created": int(time.time()),
        "choices": [_choice(index, output) for index, output in enumerate(outputs)],
        "usage": {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": None if cached is None else details,
            "completion_tokens_details": None,
        },
        **dict.fromkeys(("service_tier", "prompt_logprobs", "prompt_token_ids", "prompt_text")),
        **dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics")),
    }


def _choice(index: int, output: Output) -> Body:
    message = {
        "role": "assistant",
        "content": output.text,
        output.reply.reasoning_field: output.reasoning,
        **dict.fromkeys(("refusal", "annotations", "audio", "function_call")),
    }
    return {
        "index": index,
        "message": message,
        "finish_reason": output.finish_reason,
        **dict.fromkeys(("logprobs", "stop_reason", "token_ids", "routed_experts")),
    }


def model_list(models: Sequence[str], max_model_len: int) -> Body:
    """Build the body of /v1/models."""
    common = {"object": "model", "owned_by": "vllm", "parent": None, "max_model_len": max_model_len}
    entries = [{"id": name, "root": f"models/{name}", **common} for name in models]
    return {"object": "list", "data": entries}


def tokenization(request: Request, max_model_len: int) -> Body:
    """Build the body of /tokenize, of messages or a prompt; the tokens' numbers mean nothing."""
    count = tokens.count(tokens.encode(request.body.get("prompt", request.text)))
    numbers = list(range(count))
    return {"count": count, "max_model_len": max_model_len, "tokens": numbers, "token_strs": None}


def metrics(model: str, values: Mapping[str, Metric]) -> str:
    """Write Prometheus text of `values`, by vLLM's names without `vllm:`."""
    lines = []
    for name, value in values.items():
        if isinstance(value, tuple):
            kind, series = "histogram", {("_sum", ""): value[0], ("_count", ""): value[1]}
        elif isinstance(value, Mapping):
            kind = "counter"
            series = {("", f'finished_reason="{why}",'): x for why, x in value.items()}
        else:
            kind, series = "counter" if name.endswith("_total") else "gauge", {("", ""): value}
        lines.append(f"# TYPE vllm:{name} {kind}\n")
        for (suffix, label), number in series.items():
            labels = f'engine="0",{label}model_name="{model}"'
            lines.append(f"vllm:{name}{suffix}{{{labels}}} {float(number)}\n")
    return "".join(lines)
