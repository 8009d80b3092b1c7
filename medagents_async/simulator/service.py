"""What the server says: the routes, the checks, the seats and the script's replies."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import NoReturn

import orjson
from aiohttp import web

from . import bodies
from .checks import refusal, token_limit, too_long
from .plausible import plausible
from .routes import plain
from .script import Reply, Request, Script, split_request_id
from .slots import Slots, Watchers
from .tokens import PrefixCache, chat_tokens, count_chat
from .wire import abort, response, truncated

CHAT = "/v1/chat/completions"
_GARBAGE = b"<html><body>502 Bad Gateway</body></html>"
_FIRST_ERROR = 400


@dataclass(kw_only=True, eq=False, repr=False)
class Service:
    """Answers HTTP requests as vLLM does; `Simulator` gives it a port.

    `script` answers; `model` is one name or several. `api_key` guards /v1/* only, as in vLLM.
    `latency`, in seconds, is added to every scripted reply: a number, or (low, high), spread
    evenly by a hash of the request. `max_num_seqs` bounds the requests that run, `max_queued`
    those that wait behind them (more get 503). `prefix_cache` makes `cached_tokens` depend on
    what came before, hence on the order of the requests: off, unless that is looked at. `keep`
    bounds how many requests are remembered; None keeps all.
    """

    script: Script = field(default=plausible, kw_only=False)
    model: str | Sequence[str] = "simulator"
    max_model_len: int = 16_384
    api_key: str | None = None
    latency: float | tuple[float, float] = 0.0
    max_num_seqs: int | None = None
    max_queued: int | None = None
    version: str = "0.32.0"
    fingerprint: str = "vllm-0.32.0-51a0c0de"
    prefix_cache: bool = False
    multimodal: bool = False
    keep: int | None = None

    def __post_init__(self) -> None:
        self.models = [self.model] if isinstance(self.model, str) else list(self.model)
        self._watchers = Watchers()
        self.slots = Slots(self.max_num_seqs, self._watchers.changed)
        self.created = int(time.time())
        self.in_flight = 0  # received and not answered yet, whether running or waiting
        self.failure: Exception | None = None  # the first exception of the script
        self.healthy, self.draining, self.frozen, self.stopping = True, False, False, False
        self.tasks: set[asyncio.Task[object] | None] = set()
        self.reset()

    def reset(self) -> None:
        """Forget every request so far: counters, attempts, the prefix cache."""
        self.arrivals = self.served = self.disconnected = 0
        self.max_in_flight = self.in_flight
        self.by_stage: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._kept: deque[Request] = deque(maxlen=self.keep)
        self._attempts: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._repeated: set[str] = set()
        self.cache = PrefixCache() if self.prefix_cache else None

    @property
    def requests(self) -> list[Request]:
        """The chat requests in order of arrival, refused ones too; the last `keep` of them."""
        return list(self._kept)

    @property
    def repeated(self) -> int:
        """How many request ids came again after they had been answered with a whole 200."""
        return len(self._repeated)

    async def until(self, condition: Callable[[], bool], timeout: float | None = 30.0) -> None:
        """Wait until `condition` holds; it is tried whenever a chat request starts or ends.

        Raises TimeoutError after `timeout` seconds.
        """
        await self._watchers.until(condition, timeout)

    # -- one HTTP request ----------------------------------------------------------------------

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer, or break the connection, or hang."""
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            response = await self._respond(http, await http.content.read())
            if response is None:
                abort(http.transport, reset=True)
            if response is None or self.frozen:
                await _never()
            return response
        finally:
            self.tasks.discard(task)

    async def _respond(self, http: web.BaseRequest, raw: bytes) -> web.StreamResponse | None:
        path, method = http.path, http.method
        # Counted first, whatever comes of it: a test wants to see a refused request, too.
        request = self._arrive(http, raw) if (method, path) == ("POST", CHAT) else None
        if self.api_key is not None and path.startswith("/v1"):
            given = http.headers.get("Authorization")
            if given != f"Bearer {self.api_key}":
                return response(401, bodies.UNAUTHORIZED)
        if request is not None:
            return await self._chat(http, request)
        return plain(self, method, path, raw)

    def _arrive(self, http: web.BaseRequest, raw: bytes) -> Request:
        headers = {name.lower(): value for name, value in http.headers.items()}
        name = headers.get("x-request-id", "")
        question, repeat, stage, n = split_request_id(name)
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            body = {}
        request = Request(
            body=body if isinstance(body, dict) else {},
            stage=stage,
            question_id=question,
            repeat=repeat,
            n=n,
            session_id=headers.get("x-session-id", ""),
            request_id=name,
            headers=headers,
            raw=raw,
            arrival=self.arrivals,
            attempt=self._attempts[name] if name else 0,
        )
        self.arrivals += 1
        self.by_stage[stage] += 1
        self._kept.append(request)
        if name:
            self._attempts[name] += 1
            if name in self._answered:
                self._repeated.add(name)
        return request

    async def _chat(self, http: web.BaseRequest, request: Request) -> web.StreamResponse | None:
        content_type = http.headers.get("Content-Type", "")
        refused = refusal(request, content_type, self.models, multimodal=self.multimodal)
        prompt = 0 if refused else count_chat(request.contents)
        refused = refused or too_long(prompt, self.max_model_len)
        if refused is not None:
            return response(*refused)
        if self.draining or (
            self.max_queued is not None
            and self.slots.full
            and self.slots.waiting >= self.max_queued
        ):
            return response(503, bodies.error(503))
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            async with self.slots:
                cached = self.cache.admit(chat_tokens(request.contents)) if self.cache else None
                replies = await self._replies(request)
            return await self._send(http, request, replies, prompt, cached)
        except asyncio.CancelledError:
            if not self.stopping:
                self.disconnected += 1
                self.finished["abort"] += 1
            raise
        finally:
            self.in_flight -= 1
            self._watchers.changed()

    async def _replies(self, request: Request) -> list[Reply]:
        """Ask the script for each choice, then wait the latency; a hanging reply never comes."""
        replies: list[Reply] = []
        for choice in range(request.body.get("n") or 1):
            try:
                reply = self.script(replace(request, choice=choice) if choice else request)
                replies.append(await reply if isawaitable(reply) else reply)
            except Exception as error:  # reported by `Simulator` when its block is left
                self.failure = self.failure or error
                return [Reply(status=500, error=f"the script failed: {error!r}")]
        delay = replies[0].delay
        if isinstance(self.latency, tuple):
            low, high = self.latency
            delay += low + (high - low) * zlib.crc32(request.raw) / 2**32
        else:
            delay += self.latency
        if delay > 0:
            await asyncio.sleep(delay)
        if replies[0].fault == "hang":
            await _never()
        return replies

    async def _send(
        self,
        http: web.BaseRequest,
        request: Request,
        replies: Sequence[Reply],
        prompt: int,
        cached: int | None,
    ) -> web.StreamResponse | None:
        """Turn replies into the response; None for a connection that is to break."""
        reply = replies[0]
        headers = dict(reply.headers)
        if request.request_id:
            headers.setdefault("X-Request-Id", request.request_id)
        if reply.fault == "reset":
            return None
        if reply.fault == "garbage":
            return response(reply.status, reply.body or _GARBAGE, headers)
        if reply.status >= _FIRST_ERROR:
            body = reply.body or bodies.error(reply.status, reply.error)
            return response(reply.status, body, headers)
        completion = bodies.Completion(
            request,
            replies,
            model=request.body.get("model") or self.models[0],
            fingerprint=self.fingerprint,
            limit=token_limit(request.body, self.max_model_len - prompt),
            prompt=prompt,
            cached=cached,
        )
        body = completion.body if reply.body is None else reply.body
        if reply.fault == "truncate":
            return await truncated(http, body, headers)
        self.served += 1
        self._answered.add(request.request_id)
        self.finished.update(completion.finish_reasons)
        self.tokens["prompt"] += completion.prompt
        self.tokens["cached"] += completion.cached or 0
        self.tokens["generated"] += completion.generated
        return response(reply.status, body, headers)


async def _never() -> NoReturn:
    """Wait for the client, or the server, to give the connection up."""
    while True:
        await asyncio.get_running_loop().create_future()
