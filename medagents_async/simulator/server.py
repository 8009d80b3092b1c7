"""The simulator itself: what it answers, what it remembers, and how tests run it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from inspect import isawaitable
from typing import Any

import orjson
from aiohttp import web

from medagents_async.simulator import vllm
from medagents_async.simulator.engine import Engine, PrefixCache
from medagents_async.simulator.life import Life, abort, never
from medagents_async.simulator.plausible import plausible
from medagents_async.simulator.script import Reply, Request, Script, split_request_id

_CHAT = "POST /v1/chat/completions"
_GARBAGE = b"<html><body>502 Bad Gateway</body></html>"
_FIRST_ERROR = 400
_new_event_loop = asyncio.new_event_loop
with suppress(ImportError):  # saves a quarter of the CPU
    _new_event_loop = import_module("uvloop").new_event_loop


@dataclass(kw_only=True, eq=False, repr=False)
class Simulator(Life):
    """A stand-in for a vLLM server, listening while its `async with` block lasts.

    An exception in the script is answered with a 500 and raised again when the block is left.
    """

    script: Script = field(default=plausible, kw_only=False)
    model: str | Sequence[str] = "simulator"  # one name or several
    max_model_len: int = 16_384
    api_key: str | None = None  # guards /v1/* only, as in vLLM
    latency: float | tuple[float, float] = 0.0  # seconds; (low, high): by a hash of the request
    max_num_seqs: int | None = None  # how many requests run; None: any number
    max_queued: int | None = None  # how many wait behind them; more get 503
    version: str = "0.32.0"
    fingerprint: str = "vllm-0.32.0-51a0c0de"
    prefix_cache: bool = False  # tell of cached_tokens; they depend on the order of requests
    keep: int | None = None  # how many requests are remembered; None: all

    def __post_init__(self) -> None:
        super().__post_init__()
        self.models = [self.model] if isinstance(self.model, str) else list(self.model)
        self.engine = Engine(self.latency, self.max_num_seqs)
        self._capacity = math.inf  # requests in flight
        if self.max_num_seqs is not None and self.max_queued is not None:
            self._capacity = self.max_num_seqs + self.max_queued
        self.in_flight = 0  # received and not answered yet, whether running or waiting
        self.reset()
        self._routes: dict[str, Callable[[bytes], web.Response]] = {  # beside the chat
            "GET /health": lambda _: web.Response(status=200 if self.healthy else 503),
            "GET /version": lambda _: web.json_response({"version": self.version}),
            "GET /metrics": lambda _: web.Response(text=vllm.metrics(self.models[0], self._load())),
            "GET /v1/models": lambda _: web.json_response(
                vllm.model_list(self.models, self.max_model_len)
            ),
            "POST /tokenize": lambda raw: web.json_response(
                vllm.tokenization(Request(orjson.loads(raw)), self.max_model_len)
            ),
            "GET /simulator/stats": lambda _: web.json_response(self._stats()),
            "POST /simulator/reset": lambda _: web.json_response(self.reset()),
        }

    def reset(self) -> dict[str, int]:
        """Forget every request so far: counters, attempts, the prefix cache. Gives the stats."""
        self.arrivals = self.served = self.disconnected = 0
        self.repeated = 0  # asked for again after a whole answer
        self.max_in_flight = self.in_flight
        self._tokens: Counter[str] = Counter()  # the usage of all replies together
        self._kept: deque[Request] = deque(maxlen=self.keep)
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()
        self.engine.cache = PrefixCache()
        return self._stats()

    @property
    def requests(self) -> list[Request]:
        """The chat requests in order of arrival, refused ones too; the last `keep` of them."""
        return list(self._kept)

    async def drain(self) -> None:
        """Answer new requests with 503, stay healthy, return when nothing is in flight."""
        self.state = "draining"
        await self.until(lambda: self.in_flight == 0, timeout=None)

    async def answer(self, http: web.BaseRequest) -> web.Response:
        """Answer a request, or break its connection, or hang."""
        raw = await http.content.read()
        route, key = f"{http.method} {http.path}", http.headers.get("Authorization")
        try:
            if self.api_key and http.path.startswith("/v1") and key != f"Bearer {self.api_key}":
                raise vllm.Refused(401)
            if route == _CHAT:
                return await self._chat(http, raw)
            if route in self._routes:
                return self._routes[route](raw)
        except vllm.Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        if any(known.endswith(f" {http.path}") for known in (_CHAT, *self._routes)):
            return web.json_response({"detail": "Method Not Allowed"}, status=405)
        return web.json_response({"detail": "Not Found"}, status=404)

    def _stats(self) -> dict[str, int]:
        counts = ("in_flight", "max_in_flight", "served", "disconnected", "repeated")
        return {"requests": self.arrivals, **{name: getattr(self, name) for name in counts}}

    def _load(self) -> dict[str, int]:
        cache = self.engine.cache
        return {
            "num_requests_running": self.engine.running,
            "num_requests_waiting": self.in_flight - self.engine.running,
            "prompt_tokens_total": self._tokens["prompt_tokens"],
            "prompt_tokens_cached_total": cache.hits,
            "generation_tokens_total": self._tokens["completion_tokens"],
            "prefix_cache_queries_total": cache.queries,
            "prefix_cache_hits_total": cache.hits,
        }

    async def _chat(self, http: web.BaseRequest, raw: bytes) -> web.Response:
        request = self._remember(http.headers, raw)
        prompt = vllm.check(request, self.models, self.max_model_len)
        if self.state == "draining" or self.in_flight >= self._capacity:
            raise vllm.Refused(503)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            reply, cached = await self.engine.run(request, prompt, self._ask)
        except asyncio.CancelledError:
            self.disconnected += self.state != "stopped"
            raise
        finally:
            self.in_flight -= 1
        if reply.fault == "reset":
            abort(http.transport, reset=True)
            await never()
        return self._respond(request, reply, len(prompt), cached if self.prefix_cache else None)

    def _remember(self, headers: Mapping[str, str], raw: bytes) -> Request:
        name = headers.get("X-Request-Id", "")
        body, attempt = {}, self._attempts[name] if name else 0
        with suppress(orjson.JSONDecodeError):
            body = orjson.loads(raw)
        request = Request(body, *split_request_id(name), name, headers, raw, self.arrivals, attempt)
        self.arrivals += 1
        self._attempts[name] += 1
        self.repeated += bool(name) and name in self._answered
        self._kept.append(request)
        return request

    async def _ask(self, request: Request) -> Reply:
        """Ask the script; a reply that hangs never comes."""
        try:
            reply = self.script(request)
            reply = await reply if isawaitable(reply) else reply
        except Exception as error:  # raised again when the server's block is left
            self.failure = self.failure or error
            return Reply(status=500, error=f"the script failed: {error!r}")
        if reply.fault == "hang":
            await never()
        return reply

    def _respond(
        self, request: Request, reply: Reply, prompt_tokens: int, cached_tokens: int | None
    ) -> web.Response:
        if reply.status >= _FIRST_ERROR:
            body = vllm.Refused(reply.status, reply.error).body
        else:
            room = self.max_model_len - prompt_tokens
            body = vllm.completion(request, reply, room, prompt_tokens, cached_tokens)
            body["model"] = request.body.get("model", self.models[0])
            body["system_fingerprint"] = reply.fingerprint or self.fingerprint
        if reply.fault is None and "usage" in body:
            self.served += 1
            self._answered.add(request.request_id)
            for kind in ("prompt_tokens", "completion_tokens"):
                self._tokens[kind] += body["usage"][kind]
        content = orjson.dumps(body) if reply.body is None else reply.body
        if reply.fault == "garbage":
            content = _GARBAGE
        headers = {"Content-Type": "application/json", **reply.headers}
        if request.request_id:
            headers["X-Request-Id"] = request.request_id
        if reply.fault != "truncate":
            return web.Response(status=reply.status, body=content, headers=headers)
        headers["Content-Length"] = str(len(content))  # all is promised, half is sent
        half = web.Response(body=content[: len(content) // 2], headers=headers)
        half.force_close()
        return half


@contextmanager
def running(script: Script = plausible, **options: Any) -> Iterator[Simulator]:
    """Run `Simulator(script, **options)` on an event loop in a thread of its own.

    Scripts run in that thread. Counters can be read from this one; coroutines of the simulator
    go through `simulator.call(simulator.kill())`. Leaving the block stops the server, waits for
    the thread and raises what the script raised.
    """
    simulator = Simulator(script, **options)
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        simulator.loop = runner.get_loop()
        thread = threading.Thread(target=simulator.loop.run_forever, name="simulator")
        thread.start()
        try:
            simulator.call(simulator.start())
            yield simulator
        finally:
            simulator.call(simulator.stop())
            simulator.loop.call_soon_threadsafe(simulator.loop.stop)
            thread.join()
    if simulator.failure is not None:
        raise simulator.failure
