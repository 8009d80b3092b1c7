"""The bodies that vLLM 0.32 sends, key for key, as recorded from a real server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from .script import Reply, Request
from .tokens import chat_tokens, cut, text_tokens, token_ids

UNAUTHORIZED = b'{"error":"Unauthorized"}'  # the one error whose `error` is a string
BUSY = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)
_WORDS = {
    500: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    503: BUSY,
}
_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


def error(
    status: int, message: str | None = None, *, kind: str | None = None, param: str | None = None
) -> bytes:
    """Build the error body for `status`; without `message`, vLLM's usual words for it."""
    if status == HTTPStatus.UNAUTHORIZED and message is None:
        return UNAUTHORIZED
    phrase = HTTPStatus(status).phrase
    return orjson.dumps(
        {
            "error": {
                "message": message or _WORDS.get(status, phrase),
                "type": kind or _TYPES.get(status, phrase),
                "param": param,
                "code": status,
            }
        }
    )


def unknown_model(model: object, names: Sequence[str]) -> bytes:
    """Build the body of the 404 for `model`, which is none of `names`."""
    words = f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}."
    return error(404, words, param="model")


def models(names: Sequence[str], max_model_len: int, created: int) -> bytes:
    """Build the body of /v1/models; `created` in seconds since 1970."""
    permission = {
        "id": "modelperm-0000000000000000",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    data = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": f"models/{name}",
            "parent": None,
            "max_model_len": max_model_len,
            "permission": [permission],
        }
        for name in names
    ]
    return orjson.dumps({"object": "list", "data": data})


@dataclass
class Completion:
    """One chat completion: `body`, and what usage and metrics need.

    `limit` is the most tokens a choice may have; `cached` is None where the server does not
    tell. `prompt` and `generated` count tokens; what the first reply says of them goes.
    """

    request: Request
    replies: Sequence[Reply]
    model: str
    fingerprint: str
    limit: int
    prompt: int
    cached: int | None

    def __post_init__(self) -> None:
        first = self.replies[0]
        generated = 0
        choices = []
        for index, reply in enumerate(self.replies):
            choice, tokens = _choice(index, reply, self.limit)
            choices.append(choice)
            generated += tokens
        self.finish_reasons = [str(choice["finish_reason"]) for choice in choices]
        if first.prompt_tokens is not None:
            self.prompt = first.prompt_tokens
        self.generated = generated if first.completion_tokens is None else first.completion_tokens
        if first.cached_tokens is not None:
            self.cached = first.cached_tokens
        details = {
            "cached_tokens": self.cached,
            "created_cache_tokens": 0,
            "multimodal_tokens": None,
        }
        name = self.request.request_id or f"{self.request.arrival:016x}"
        self.body = orjson.dumps(
            {
                "id": f"chatcmpl-{name}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self.model,
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": first.fingerprint or self.fingerprint,
                "usage": {
                    "prompt_tokens": self.prompt,
                    "total_tokens": self.prompt + self.generated,
                    "completion_tokens": self.generated,
                    "prompt_tokens_details": None if self.cached is None else details,
                    "completion_tokens_details": None,
                },
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )


def _choice(index: int, reply: Reply, limit: int) -> tuple[dict[str, object], int]:
    """Build a choice, count its tokens: thought comes first and may leave nothing for the text."""
    text, reasoning = reply.text, reply.reasoning
    tokens, was_cut = 0, False
    if reasoning is not None:
        reasoning, tokens, was_cut = cut(reasoning, limit)
        if was_cut:
            text = None
    if text is not None:
        text, used, was_cut = cut(text, limit - tokens)
        tokens += used
    message: dict[str, object] = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        reply.reasoning_field: reasoning,
    }
    choice = {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": "length" if was_cut else reply.finish_reason,
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
    return choice, tokens


def tokenize(raw: bytes, names: Sequence[str], max_model_len: int) -> tuple[int, bytes]:
    """Answer /tokenize with (status, body): the tokens of `messages`, else of `prompt`."""
    try:
        wanted = orjson.loads(raw)
        request = Request(body=wanted)
        tokens = chat_tokens(request.contents) if "messages" in wanted else None
        tokens = text_tokens(wanted["prompt"]) if tokens is None else tokens
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return 400, error(400, "1 validation error:\n  messages or prompt", kind="Bad Request")
    if wanted.get("model", names[0]) not in names:
        return 404, unknown_model(wanted["model"], names)
    answer = {
        "count": len(tokens),
        "max_model_len": max_model_len,
        "tokens": token_ids(tokens),
        "token_strs": tokens if wanted.get("return_token_strs") else None,
    }
    return 200, orjson.dumps(answer)


_GAUGES = {
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_COUNTERS = {
    "num_preemptions_total": "Cumulative number of preemption from the engine.",
    "prompt_tokens_total": "Number of prefill tokens processed.",
    "prompt_tokens_cached_total": "Number of cached prompt tokens (local + external).",
    "generation_tokens_total": "Number of generation tokens processed.",
    "prefix_cache_queries_total": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits_total": "Prefix cache hits, in terms of number of cached tokens.",
}
_FINISHED = ("stop", "length", "abort", "error", "repetition")


def metrics(model: str, values: Mapping[str, float], finished: Mapping[str, int]) -> bytes:
    """Write Prometheus text: `values` by vLLM's names without `vllm:`, 0 where missing."""
    lines: list[str] = []
    engine = f'engine="0",model_name="{model}"'
    for kind, family in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, meaning in family.items():
            lines += (
                f"# HELP vllm:{name} {meaning}",
                f"# TYPE vllm:{name} {kind}",
                f"vllm:{name}{{{engine}}} {float(values.get(name, 0))}",
            )
    name = "vllm:request_success_total"
    lines += (
        f"# HELP {name} Count of successfully processed requests.",
        f"# TYPE {name} counter",
    )
    lines += (
        f'{name}{{engine="0",finished_reason="{reason}",model_name="{model}"}} '
        f"{float(finished.get(reason, 0))}"
        for reason in _FINISHED
    )
    return "\n".join([*lines, ""]).encode()
