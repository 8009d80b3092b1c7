"""What the simulator answers and what it remembers, whatever carries the requests."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Literal

import orjson

from medagents_async.simulator import profiles, tokens, vllm
from medagents_async.simulator.engine import BatchingEngine, Engine, EvenEngine
from medagents_async.simulator.life import never
from medagents_async.simulator.plausible import plausible
from medagents_async.simulator.profiles import Profile
from medagents_async.simulator.script import Reply, Request, Script, split_request_id

_CHAT = "POST /v1/chat/completions"
_GARBAGE = b"<html><body>502 Bad Gateway</body></html>"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `fault` is what becomes of it on its way, see `Reply`."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Literal["reset", "truncate"] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Service:
    """A stand-in for a vLLM server, without the connections.

    With a `profile` (one, or the name of one in `profiles.PROFILES`) requests take the time that
    they would on such a server, and `latency` is not used; its limits hold where none is given
    here. An exception in the script is answered with a 500 and kept in `failure`.
    """

    script: Script = field(default=plausible, kw_only=False)
    model: str | Sequence[str] = "simulator"  # one name or several
    max_model_len: int = 16_384  # a profile may allow less
    api_key: str | None = None  # guards /v1/* only, as in vLLM
    latency: float | tuple[float, float] = 0.0  # seconds; (low, high): by a hash of the request
    profile: Profile | str | None = None
    max_num_seqs: int | None = None  # how many run; None: any number, or what the profile says
    max_queued: int | None = None  # how many wait behind them; more get 503
    version: str = "0.32.0"
    fingerprint: str = "vllm-0.32.0-51a0c0de"
    prefix_cache: bool = False  # tell of cached_tokens; they depend on the order of requests
    keep: int | None = None  # how many requests are remembered; None: all
    ledger: bool = True  # know every request's name, to count repeated ones

    def __post_init__(self) -> None:
        self.state: Literal["up", "draining", "frozen", "stopped"] = "up"
        self.healthy = True
        self.failure: Exception | None = None
        self.models = [self.model] if isinstance(self.model, str) else list(self.model)
        self.engine = self._engine()
        self._capacity = math.inf  # requests in flight
        if self.max_queued is not None and (self.max_num_seqs or self.profile):
            self._capacity = self.engine.max_num_seqs + self.max_queued
        self.in_flight = 0  # received and not answered yet, whether running or waiting
        self.reset()
        self._routes: dict[str, Callable[[bytes], Answer]] = {  # beside the chat
            "GET /health": lambda _: Answer(200 if self.healthy else 503),
            "GET /version": lambda _: _json({"version": self.version}),
            "GET /metrics": lambda _: self._metrics(),
            "GET /v1/models": lambda _: _json(vllm.model_list(self.models, self.max_model_len)),
            "POST /tokenize": lambda raw: _json(
                vllm.tokenization(Request(orjson.loads(raw)), self.max_model_len)
            ),
            "GET /simulator/stats": lambda _: _json(self._stats()),
            "POST /simulator/reset": lambda _: _json(self.reset()),
        }

    def _engine(self) -> Engine:
        if self.profile is None:
            return EvenEngine(self.latency, self.max_num_seqs)
        profile = profiles.find(self.profile) if isinstance(self.profile, str) else self.profile
        self.max_model_len = min(self.max_model_len, profile.max_model_len)
        seats = self.max_num_seqs or profile.max_num_seqs
        return BatchingEngine(
            replace(profile, max_model_len=self.max_model_len, max_num_seqs=seats)
        )

    def reset(self) -> dict[str, int]:
        """Forget every request so far: counters, attempts, the prefix cache. Gives the stats."""
        self.arrivals = self.served = self.disconnected = 0
        self.repeated = 0  # asked for again after a whole answer
        self.max_in_flight = self.in_flight
        self._tokens: Counter[str] = Counter()  # the usage of all replies together
        self._kept: deque[Request] = deque(maxlen=self.keep)
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()
        self.engine.reset()
        return self._stats()

    @property
    def requests(self) -> list[Request]:
        """The chat requests in order of arrival, refused ones too; the last `keep` of them."""
        return list(self._kept)

    def set_health(self, ok: bool) -> None:
        """Let /health say 200 or 503."""
        self.healthy = ok

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], raw: bytes
    ) -> Answer:
        """Answer a request, when it is time; cancelled when its client leaves.

        The names of `headers` are in lower case, or looked up in any case.
        """
        route = f"{method} {path}"
        try:
            if self.api_key and path.startswith("/v1"):
                self._authorize(headers)
            if route == _CHAT:
                return await self._chat(headers, raw)
            if route in self._routes:
                return self._routes[route](raw)
        except vllm.Refused as refused:
            return _json(refused.body, refused.status)
        if any(known.endswith(f" {path}") for known in (_CHAT, *self._routes)):
            return _json({"detail": "Method Not Allowed"}, 405)
        return _json({"detail": "Not Found"}, 404)

    def _authorize(self, headers: Mapping[str, str]) -> None:
        if headers.get("authorization") != f"Bearer {self.api_key}":
            raise vllm.Refused(401)

    def _stats(self) -> dict[str, int]:
        counts = ("in_flight", "max_in_flight", "served", "disconnected", "repeated")
        return {"requests": self.arrivals, **{name: getattr(self, name) for name in counts}}

    def _metrics(self) -> Answer:
        values = {
            "num_requests_waiting": self.in_flight - self.engine.running,
            "prompt_tokens_total": self._tokens["prompt_tokens"],
            "generation_tokens_total": self._tokens["completion_tokens"],
            **self.engine.metrics(),
        }
        content = vllm.metrics(self.models[0], values).encode()
        return Answer(200, content, {"Content-Type": "text/plain; charset=utf-8"})

    async def _chat(self, headers: Mapping[str, str], raw: bytes) -> Answer:
        request = self._remember(headers, raw)
        prompt = vllm.check(request, self.models, self.max_model_len)
        if self.state == "draining" or self.in_flight >= self._capacity:
            raise vllm.Refused(503)
        length = tokens.count(prompt)

        async def produce() -> list[vllm.Output]:
            count, room = request.body.get("n") or 1, self.max_model_len - length
            requests = [request, *(replace(request, sample=n) for n in range(1, count))]
            return [vllm.write(r, await self._ask(r), room) for r in requests]

        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            outputs, cached = await self.engine.run(request, prompt, produce)
        finally:
            self.in_flight -= 1
        return self._respond(request, outputs, length, cached if self.prefix_cache else None)

    def _remember(self, headers: Mapping[str, str], raw: bytes) -> Request:
        name = headers.get("x-request-id", "")
        body, attempt = {}, self._attempts[name] if name else 0
        with suppress(orjson.JSONDecodeError):
            body = orjson.loads(raw)
        request = Request(body, *split_request_id(name), name, headers, raw, self.arrivals, attempt)
        self.arrivals += 1
        if self.ledger:
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
        self,
        request: Request,
        outputs: Sequence[vllm.Output],
        prompt_tokens: int,
        cached_tokens: int | None,
    ) -> Answer:
        reply = next((o.reply for o in outputs if o.reply.failed), outputs[0].reply)
        headers = {**_JSON, **reply.headers}
        if request.request_id:
            headers["X-Request-Id"] = request.request_id
        if reply.failed:
            body = vllm.Refused(reply.status, reply.error).body
        else:
            body = vllm.completion(request, outputs, prompt_tokens, cached_tokens)
            body["model"] = request.body.get("model", self.models[0])
            body["system_fingerprint"] = reply.fingerprint or self.fingerprint
        if reply.fault is None and "usage" in body:
            self.served += 1
            if self.ledger:
                self._answered.add(request.request_id)
            for kind in ("prompt_tokens", "completion_tokens"):
                self._tokens[kind] += body["usage"][kind]
        content = orjson.dumps(body) if reply.body is None else reply.body
        if reply.fault == "garbage":
            content = _GARBAGE
        fault = reply.fault if reply.fault in ("reset", "truncate") else None
        return Answer(reply.status, content, headers, fault)


def _json(body: Any, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(body), _JSON)
