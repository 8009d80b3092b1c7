"""What vLLM 0.32 refuses and what it says, as recorded from a real server."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from medagents_async.simulator.script import Reply, Request

Body = dict[str, Any]

_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
# English clinical text takes about 1.4 tokens a word in the usual vocabularies; pieces of up to
# eight letters, with punctuation counted apart, come close to that.
_TOKEN = re.compile(r"\w{1,8}|[^\w\s]")


def cut(text: str, limit: int) -> tuple[str, int]:
    """(`text` up to its first `limit` tokens, how many tokens that are)."""
    count = len(_TOKEN.findall(text))
    if count <= limit:
        return text, count
    ends = [token.end() for token in _TOKEN.finditer(text)]
    return text[: ends[limit - 1]] if limit else "", limit


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


def check(request: Request, models: Sequence[str], max_model_len: int) -> list[str]:
    """Give the tokens of the prompt, or raise Refused."""
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
    prompt = _TOKEN.findall(request.text)
    if len(prompt) >= max_model_len:
        words = f"This model's maximum context length is {max_model_len} tokens. However, your"
        raise Refused(400, f"{words} prompt contains {len(prompt)} input tokens.", "input_tokens")
    return prompt


def completion(
    request: Request, reply: Reply, room: int, prompt_tokens: int, cached_tokens: int | None
) -> Body:
    """Build a chat completion, but for the server's `model` and `system_fingerprint`.

    A reply that does not fit into `room` tokens, or the request's max_tokens, is cut in silence.
    `cached_tokens` is None where the server does not tell. The reply's own token counts go first.
    """
    limit = min(request.body.get("max_tokens") or room, room)
    thought, thought_tokens = cut(reply.reasoning or "", limit)
    text, text_tokens = cut(reply.text or "", limit - thought_tokens)
    thought_out = thought == (reply.reasoning or "")
    whole = thought_out and text == (reply.text or "")
    message = {
        "role": "assistant",
        "content": text if thought_out and reply.text is not None else None,
        reply.reasoning_field: thought or None,
        **dict.fromkeys(("refusal", "annotations", "audio", "function_call")),
    }
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": reply.finish_reason if whole else "length",
        **dict.fromkeys(("logprobs", "stop_reason", "token_ids", "routed_experts")),
    }
    prompt = reply.prompt_tokens or prompt_tokens
    generated = reply.completion_tokens or thought_tokens + text_tokens
    cached = cached_tokens if reply.cached_tokens is None else reply.cached_tokens
    details = {"cached_tokens": cached, "created_cache_tokens": 0, "multimodal_tokens": None}
    return {
        "id": f"chatcmpl-{request.request_id or request.arrival}",
        "object": "chat.completion",
        "created": int(time.time()),
        "choices": [choice],
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


def model_list(models: Sequence[str], max_model_len: int) -> Body:
    """Build the body of /v1/models."""
    common = {"object": "model", "owned_by": "vllm", "parent": None, "max_model_len": max_model_len}
    entries = [{"id": name, "root": f"models/{name}", **common} for name in models]
    return {"object": "list", "data": entries}


def tokenization(request: Request, max_model_len: int) -> Body:
    """Build the body of /tokenize, of messages or a prompt; the tokens' numbers mean nothing."""
    count = len(_TOKEN.findall(request.body.get("prompt", request.text)))
    numbers = list(range(count))
    return {"count": count, "max_model_len": max_model_len, "tokens": numbers, "token_strs": None}


def metrics(model: str, values: Mapping[str, float]) -> str:
    """Write Prometheus text of `values`, by vLLM's names without `vllm:`."""
    lines = []
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# TYPE vllm:{name} {kind}\n")
        lines.append(f'vllm:{name}{{engine="0",model_name="{model}"}} {float(value)}\n')
    return "".join(lines)
