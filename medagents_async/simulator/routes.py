"""The routes beside the chat: what a client asks a server about itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from . import bodies
from .tokens import PrefixCache
from .wire import response

if TYPE_CHECKING:
    from .service import Service


def plain(service: Service, method: str, path: str, raw: bytes) -> web.Response:
    """Answer anything but a chat request; 404 and 405 in the words of vLLM's router."""
    allowed, answer = _ROUTES.get(path, ("", None))
    if not allowed:
        return response(404, b'{"detail":"Not Found"}')
    if method != allowed or answer is None:
        return response(405, b'{"detail":"Method Not Allowed"}', {"Allow": allowed})
    return answer(service, raw)


def _health(service: Service, _raw: bytes) -> web.Response:
    return response(200 if service.healthy else 503, b"")


def _version(service: Service, _raw: bytes) -> web.Response:
    return response(200, orjson.dumps({"version": service.version}))


def _models(service: Service, _raw: bytes) -> web.Response:
    body = bodies.models(service.models, service.max_model_len, service.created)
    return response(200, body)


def _tokenize(service: Service, raw: bytes) -> web.Response:
    return response(*bodies.tokenize(raw, service.models, service.max_model_len))


def _metrics(service: Service, _raw: bytes) -> web.Response:
    cache = service.cache or PrefixCache()
    values = {
        "num_requests_running": service.slots.running,
        "num_requests_waiting": service.slots.waiting,
        "kv_cache_usage_perc": cache.usage,
        "prefix_cache_queries_total": cache.queries,
        "prefix_cache_hits_total": cache.hits,
        "prompt_tokens_total": service.tokens["prompt"],
        "prompt_tokens_cached_total": service.tokens["cached"],
        "generation_tokens_total": service.tokens["generated"],
    }
    text = bodies.metrics(service.models[0], values, service.finished)
    return response(200, text, {"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})


def _stats(service: Service, _raw: bytes) -> web.Response:
    stats = {
        "requests": service.arrivals,
        "in_flight": service.in_flight,
        "max_in_flight": service.max_in_flight,
        "served": service.served,
        "disconnected": service.disconnected,
        "repeated": service.repeated,
        "by_stage": dict(service.by_stage),
    }
    return response(200, orjson.dumps(stats, option=orjson.OPT_SORT_KEYS))


def _reset(service: Service, _raw: bytes) -> web.Response:
    service.reset()
    return response(200, b"{}")


_ROUTES: dict[str, tuple[str, Callable[[Service, bytes], web.Response] | None]] = {
    "/health": ("GET", _health),
    "/version": ("GET", _version),
    "/metrics": ("GET", _metrics),
    "/tokenize": ("POST", _tokenize),
    "/v1/models": ("GET", _models),
    "/v1/chat/completions": ("POST", None),  # POST never comes here
    "/simulator/stats": ("GET", _stats),
    "/simulator/reset": ("POST", _reset),
}
