"""A server's health: what it is, whether it lives, and what to do when it does not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import httpx
import orjson

from medagents_async.engine import replies
from medagents_async.engine.client import Client
from medagents_async.engine.scheduler import Scheduler
from medagents_async.errors import (
    CallError,
    Refused,
    ServerChanged,
    ServerGone,
    TimedOut,
    Unavailable,
    UsageError,
)
from medagents_async.types import Call, Completion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself; `max_model_len` in tokens, None where it does not say."""

    model: str
    max_model_len: int | None
    version: str | None


class Server:
    """One server of a run, and a watch over it.

    A stopped vLLM may leave calls hanging without a byte, and one that drains refuses all new
    ones in good health for a minute. So a watch runs beside the calls. When `/health` is dead,
    waiting calls fail at once and are owed again; when every call has failed for a while, too,
    nothing new is sent; and the run waits up to `grace` seconds until the server gives a token.
    """

    WATCH_S = 1.0  # between looks while calls wait
    PROBE_S = 10.0  # for one look
    SILENT_LOOKS = 6  # looks without an answer in a row before a busy server counts as gone
    # So many failures in a row over so long: longer than three tries of a call can take, shorter
    # than most sequences of the default five, so that an outage costs hardly any call.
    REFUSING_S = 8.0
    REFUSALS = 8

    def __init__(
        self,
        client: Client,
        scheduler: Scheduler,
        *,
        timeout: float,
        grace: float,
        accept_change: bool = False,
    ) -> None:
        self.client = client
        self.name = client.base_url
        self.identity: Identity | None = None
        self.fingerprint: str | None = None  # may be set to what an earlier run saw
        self.answered = 0  # calls
        self.busy = 0  # calls refused for want of room
        self.tokens = 0  # prompt and completion tokens of these calls
        self._scheduler = scheduler
        self._timeout = timeout
        self._grace = grace
        self._accept_change = accept_change
        self._waiting: set[asyncio.Timeout] = set()
        self._down = False
        self._failures = 0  # in a row
        self._failing_since = 0.0  # on the loop's clock
        self._suspicion = asyncio.Event()
        self._next_look = asyncio.Event()  # set when the next look that begins is over
        self._verifying = asyncio.Lock()

    async def complete(self, call: Call) -> Completion:
        """The completion, from the server that the run began with.

        Raises CallError; TimedOut when there is no whole reply within the time for one call;
        ServerChanged when the reply shows another fingerprint than those before, or a refusal
        turns out to be one of all calls.
        """
        clock = asyncio.get_running_loop().time
        sent = clock()
        if self._down:  # its slot was granted just before that was known
            raise Unavailable(f"{self.name} went down", went_down=True)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._waiting.add(limit)
                try:
                    completion = await self.client.complete(call)
                finally:
                    self._waiting.discard(limit)
        except Unavailable as error:
            if self._failures == 0:
                self._failing_since = clock()
            self._failures += 1
            self.busy += error.busy
            error.went_down = await self._is_outage()
            raise
        except Refused as error:
            if error.status in (401, 403, 404):
                await self._verify(error)
            raise
        except TimeoutError:
            if self._down:
                raise Unavailable(f"{self.name} went down", went_down=True) from None
            raise TimedOut(f"no whole reply within {self._timeout:g} s (--timeout)") from None
        self._check_fingerprint(completion.fingerprint)
        if (
            sent >= self._failing_since
        ):  # one from before says nothing: a draining server ends those
            self._failures = 0
        self.answered += 1
        self.tokens += completion.usage.prompt_tokens + completion.usage.completion_tokens
        return completion

    # Health

    async def watch(self) -> None:
        """Look after the server for ever. Raises ServerGone when it stays away too long."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(self.WATCH_S):
                    await self._suspicion.wait()
            except TimeoutError:
                if not self._waiting:
                    continue
            self._suspicion.clear()
            look, self._next_look = self._next_look, asyncio.Event()
            self._down = not await self._alive()
            look.set()
            lasting = clock() - self._failing_since >= self.REFUSING_S
            if self._down or (self._failures >= self.REFUSALS and lasting):
                await self._outage()

    async def _is_outage(self) -> bool:
        """Whether a call that just failed did so because the server is gone: a look will tell."""
        if not self._scheduler.is_paused(self):
            look = self._next_look
            self._suspicion.set()
            await look.wait()
        return self._down

    async def _outage(self) -> None:
        clock = asyncio.get_running_loop().time
        self._scheduler.pause(self)
        state = "is down" if self._down else "refuses every call"
        log.warning("%s %s; waiting up to %g s for it", self.name, state, self._grace)
        for limit in self._waiting if self._down else ():
            if not limit.expired():
                limit.reschedule(clock())
        try:
            async with asyncio.timeout(self._grace):
                while not (await self._alive() and await self._answers()):
                    await asyncio.sleep(self.WATCH_S)
        except TimeoutError:
            raise ServerGone(
                f"{self.name} went away and did not come back within {self._grace:g} s; "
                "start it and run the same command again to resume"
            ) from None
        await self._verify()
        log.warning("%s is back", self.name)
        self._down, self._failures = False, 0
        self._scheduler.resume(self)

    async def _alive(self) -> bool:
        """Whether it listens and says that it is well.

        A refused connection is proof of death. Silence may be a busy event loop, and a single
        bad answer a passing one: they count only when they last.
        """
        bad = 0
        for _ in range(self.SILENT_LOOKS):
            try:
                async with asyncio.timeout(self.PROBE_S):
                    if (await self.client.get("/health")).status_code < 500:
                        return True
            except Unavailable:
                return False
            except TimeoutError:
                continue
            bad += 1
            if bad > 1:
                return False
            await asyncio.sleep(self.WATCH_S)
        return False

    async def _answers(self) -> bool:
        """Whether it gives a token."""
        body = {
            "model": self.identity.model if self.identity else "",
            "messages": [{"role": "user", "content": "ping"}],
            "temperature": 0,
            "top_p": 1,
            "max_tokens": 1,
        }
        call = Call("probe", 0, "probe", 0, orjson.dumps(body), 1)
        try:
            async with asyncio.timeout(self._timeout):
                await self.client.complete(call)
        except (Unavailable, TimeoutError):
            return False
        except CallError:
            pass  # a wordless reply is one, and a refusal is for the calls themselves to meet
        return True

    # Identity

    async def identify(self, model: str | None, wait: float) -> Identity:
        """Ask the server what it serves, for up to `wait` seconds while it does not answer.

        Raises UsageError, with what to do, where it cannot be reached, refuses the key, has no
        `/v1/models` there, does not serve `model`, or serves several and none was named.
        """
        response = await self._models(wait)
        if response.status_code in (401, 403):
            raise UsageError(
                f"{self.name} refuses the API key (HTTP {response.status_code}); "
                "give the right one in $MEDAGENTS_API_KEY"
            )
        try:
            if response.status_code != 200:
                raise ValueError(f"HTTP {response.status_code}")
            entries = replies.load(response.content)["data"]
            served = {str(entry["id"]): entry.get("max_model_len") for entry in entries}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            hint = "" if self.name.endswith("/v1") else f"; did you mean {self.name}/v1?"
            raise UsageError(f"{self.name}/models is no list of models ({error}){hint}") from error
        if model is None and len(served) == 1:
            model = next(iter(served))
        if model is None or model not in served:
            asked = f"does not serve {model!r}" if model else "does not serve just one model"
            names = ", ".join(served) or "it serves none"
            raise UsageError(f"{self.name} {asked}; choose one with --model: {names}")
        limit = served[model] if isinstance(served[model], int) else None
        self.identity = Identity(model, limit, await self._version())
        return self.identity

    async def _models(self, wait: float) -> httpx.Response:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait
        while True:
            try:
                async with asyncio.timeout(self.PROBE_S):
                    response = await self.client.get("models")
                if response.status_code < 500 or clock() >= deadline:
                    return response
            except (Unavailable, TimeoutError) as error:
                if clock() >= deadline:
                    raise UsageError(
                        f"no server at {self.name} ({str(error) or 'no answer'}); start one with "
                        "`make serve`, or name yours with --base-url; --wait-server S waits for it"
                    ) from error
            await asyncio.sleep(0.5)

    async def _version(self) -> str | None:
        try:
            async with asyncio.timeout(self.PROBE_S):
                response = await self.client.get("/version")
            version = replies.load(response.content)["version"]
        except (Unavailable, TimeoutError, ValueError, LookupError, TypeError):
            return None
        return version if isinstance(version, str) else None

    async def _verify(self, refusal: Refused | None = None) -> None:
        """Raises ServerChanged where the server no longer serves this run's model to this key."""
        if refusal is not None and self.answered == 0:
            raise ServerChanged(f"{self.name} refuses the very first calls: {refusal}")
        async with self._verifying:  # a burst of refusals asks one question at a time
            try:
                await self.identify(self.identity.model if self.identity else None, self._grace)
            except UsageError as error:
                raise ServerChanged(f"the server is not what it was: {error}") from error

    def _check_fingerprint(self, fingerprint: str | None) -> None:
        if fingerprint is None:
            return
        if self.fingerprint not in (None, fingerprint) and not self._accept_change:
            raise ServerChanged(
                f"{self.name} was {self.fingerprint} and is {fingerprint} now: another version or "
                "other settings. Restore it and run again, or go on with --accept-server-change"
            )
        self.fingerprint = fingerprint
