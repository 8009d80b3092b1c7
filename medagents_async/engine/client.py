"""One HTTP exchange: a call out, a completion or a typed error back.

The seam is httpx's transport. The `AsyncClient` above it is left out: redirects, cookies and
authentication flows cost more CPU per call than all the rest and do nothing here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from multidict import CIMultiDict
from yarl import URL

from medagents_async.engine import replies
from medagents_async.errors import Unavailable, UsageError
from medagents_async.types import Call, Completion

#: uvicorn closes idle connections after 5 s; ours must be given up before that.
KEEP_ALIVE_S = 4.0
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # a call's time is the server's business: see there


class Answer(NamedTuple):
    """An HTTP answer as it is read."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# The transport reports a drop after the request was read as a connect timeout: no kind of
# transport error proves that the server did not see the request, so all are one.
UNANSWERED = (httpx.HTTPError, aiohttp.ClientError, OSError)

#: POSTs (URL, headers, body). Raises httpx.HTTPError, aiohttp.ClientError or OSError.
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[Answer]]


class DirectTransport(AiohttpTransport):
    """A connection pool without a limit of its own: slots are the only limit.

    Without `reuse`, each request has a new connection. Must be made on the event loop that will
    use it. `post` is the same as a request through httpx's seam, at half its CPU time: no object
    of httpx is made for it.
    """

    def __init__(self, *, reuse: bool = True) -> None:
        connector = (
            aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
            if reuse
            else aiohttp.TCPConnector(limit=0, force_close=True)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=NO_TIMEOUT,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )
        self._urls: dict[str, URL] = {}
        # `verify` concerns only a session that the transport would open; ours verifies TLS.
        super().__init__(client=self._session, verify=False)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """See `Post`."""
        parsed = self._urls.get(url)
        if parsed is None:
            parsed = self._urls[url] = URL(url, encoded=True)
        async with self._session.post(
            parsed, headers=CIMultiDict(headers), data=body, allow_redirects=False
        ) as response:
            return Answer(response.status, response.headers, await response.read())


def open_pair(url: str) -> tuple[httpx.AsyncBaseTransport, httpx.AsyncBaseTransport]:
    """The transports that a `Client` of the server at `url` wants: for calls, and for probes."""
    del url  # a fake may want it
    return DirectTransport(), DirectTransport(reuse=False)


def _post_through(transport: httpx.AsyncBaseTransport) -> Post:
    async def post(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        request = httpx.Request("POST", url, headers=headers, content=body)
        response = await _exchange(transport, request)
        return Answer(response.status_code, response.headers, response.content)

    return transport.post if isinstance(transport, DirectTransport) else post


async def _exchange(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    response = await transport.handle_async_request(request)
    try:
        await response.aread()
    finally:  # a reply that was cut, or given up, would else keep its connection
        await response.aclose()
    return response


def check_address(base_url: str, api_key: str | None) -> httpx.URL:
    """Where calls are sent. Raises UsageError where URL or key cannot be used."""
    try:
        chat = httpx.URL(f"{base_url.rstrip('/')}/chat/completions")
    except httpx.InvalidURL as error:
        raise UsageError(f"--base-url {base_url}: {error}") from error
    if chat.scheme not in ("http", "https") or not chat.host:
        raise UsageError(f"--base-url {base_url}: want http://HOST:PORT/v1")
    if chat.userinfo:  # it would show in the manifest and in every trace
        raise UsageError("--base-url holds a password; give a key in $MEDAGENTS_API_KEY")
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("the API key has characters that no header can carry")
    return chat


class Client:
    """Talks to one OpenAI-compatible server at `base_url` (which ends in /v1).

    Calls go over `transport`, everything else over `probes`: only a new connection shows
    whether a server still listens, since a stopping one may hold old connections open in silence.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        probes: httpx.AsyncBaseTransport,
        base_url: str,
        api_key: str | None = None,
    ) -> None:
        self._post = _post_through(transport)
        self._transports = (transport, probes)
        self._probes = probes
        self._api_key = api_key
        self.base_url = base_url.rstrip("/")
        self._chat = check_address(base_url, api_key)
        self._chat_url = str(self._chat)
        self._headers = {"content-type": "application/json", "host": self._chat.netloc.decode()}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    async def complete(self, call: Call) -> Completion:
        """Raises CallError. Has no time limit of its own."""
        headers = {
            **self._headers,
            "x-session-id": call.session_id,
            "x-request-id": call.request_id,
        }
        try:
            answer = await self._post(self._chat_url, headers, call.body)
        except UNANSWERED as error:
            raise self._unanswered(error) from error
        body = answer.body
        if self._api_key and answer.status != 200:  # some servers repeat a key that they refuse
            body = body.replace(self._api_key.encode(), b"***")
        return replies.read(answer.status, answer.headers, body, call.samples)

    async def get(self, path: str) -> httpx.Response:
        """The whole answer to GET `path`, whatever its status.

        `path` is relative to the base URL; one that begins with "/" is relative to the server's
        root, where vLLM has `/health` and `/version`. Raises Unavailable where no answer came.
        """
        root = self.base_url.removesuffix("/v1") if path.startswith("/") else f"{self.base_url}/"
        request = httpx.Request("GET", root + path, headers=self._headers)
        try:
            return await _exchange(self._probes, request)
        except UNANSWERED as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: Exception) -> Unavailable:
        cause = str(error) or type(error).__name__
        return Unavailable(f"no answer from {self.base_url}: {cause}")

    async def close(self) -> None:
        """Give up all connections."""
        for transport in self._transports:
            await transport.aclose()
