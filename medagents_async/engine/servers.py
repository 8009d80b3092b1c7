"""A server's health: what it is, whether it lives, and what to do when it does not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from medagents_async.engine import replies
from medagents_async.engine.client import Client
from medagents_async.engine.scheduler import Scheduler
from medagents_async.errors import ServerGone, TimedOut, Unavailable, UsageError
from medagents_async.types import Call, Completion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself; `max_model_len` in tokens, None where it does not say."""

    model: str
    max_model_len: int | None
    version: str | None


class Server:
    """One server of a run.

    A stopped vLLM may leave calls hanging without a byte, so a watch on `/health` runs beside
    them: when the server is gone, waiting calls fail at once and are owed again, nothing new is
    sent, and the run waits up to `grace` seconds for it to come back.
    """

    WATCH_S = 1.0  # between looks while calls wait
    PROBE_S = 10.0  # for one look
    SLOW_PROBES = 6  # looks without an answer in a row before a busy server counts as gone

    def __init__(
        self, client: Client, scheduler: Scheduler, *, timeout: float, grace: float
    ) -> None:
        self.client = client
        self.name = client.base_url
        self._scheduler = scheduler
        self._timeout = timeout
        self._grace = grace
        self._waiting: set[asyncio.Timeout] = set()
        self._suspicion = asyncio.Event()
        self.down = False
        self.fingerprint: str | None = None
        self.answered = 0
        self.tokens = 0

    async def identify(self, model: str | None, wait: float) -> Identity:
        """Ask the server what it serves, for up to `wait` seconds while it does not answer.

        Raises UsageError, with what to do, where it cannot be reached, refuses the key, has no
        `/v1/models` there, does not serve `model`, or serves several and none was named.
        """
        response = await self._first_answer("models", wait)
        if response.status_code in (401, 403):
            raise UsageError(
                f"{self.name} refuses the API key (HTTP {response.status_code}); "
                "give the right one in $MEDAGENTS_API_KEY"
            )
        try:
            if response.status_code != 200:
                raise ValueError(f"HTTP {response.status_code}")
            served: dict[str, dict[str, Any]] = {
                entry["id"]: entry for entry in replies.load(response.content)["data"]
            }
        except (ValueError, LookupError, TypeError) as error:
            hint = "" if self.name.endswith("/v1") else f"; did you mean {self.name}/v1?"
            raise UsageError(f"{self.name}/models is no list of models ({error}){hint}") from error
        if model is None and len(served) == 1:
            model = next(iter(served))
        if model is None or model not in served:
            asked = f"does not serve {model!r}" if model else "serves several models"
            raise UsageError(f"{self.name} {asked}; choose one with --model: {', '.join(served)}")
        return Identity(model, served[model].get("max_model_len"), await self._version())

    async def complete(self, call: Call) -> Completion:
        """Raises CallError; TimedOut when there is no whole reply within the time for one call."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                self._waiting.add(limit)
                try:
                    completion = await self.client.complete(call)
                finally:
                    self._waiting.discard(limit)
        except Unavailable as error:
            error.went_down = self.down
            self._suspicion.set()
            raise
        except TimeoutError:
            if self.down:
                raise Unavailable(f"{self.name} went down", went_down=True) from None
            raise TimedOut(f"no whole reply within {self._timeout:g} s (--timeout)") from None
        self.fingerprint = completion.fingerprint or self.fingerprint
        self.answered += 1
        self.tokens += completion.usage.prompt_tokens + completion.usage.completion_tokens
        return completion

    async def watch(self) -> None:
        """Look after the server for ever. Raises ServerGone when it stays away too long."""
        while True:
            try:
                async with asyncio.timeout(self.WATCH_S):
                    await self._suspicion.wait()
            except TimeoutError:
                if not self._waiting:
                    continue
            self._suspicion.clear()
            if not await self._alive():
                await self._outage()

    async def _outage(self) -> None:
        self.down = True
        self._scheduler.pause()
        log.warning("%s is down; waiting up to %g s for it", self.name, self._grace)
        now = asyncio.get_running_loop().time()
        for limit in self._waiting:
            limit.reschedule(now)
        try:
            async with asyncio.timeout(self._grace):
                while not await self._alive():
                    await asyncio.sleep(self.WATCH_S)
        except TimeoutError:
            raise ServerGone(
                f"{self.name} went away and did not come back within {self._grace:g} s; "
                "start it and run the same command again to resume"
            ) from None
        log.warning("%s is back", self.name)
        self.down = False
        self._suspicion.clear()
        self._scheduler.resume()

    async def _alive(self) -> bool:
        """Whether it answers. A refusal is proof of death; silence may be a busy event loop."""
        for _ in range(self.SLOW_PROBES):
            try:
                async with asyncio.timeout(self.PROBE_S):
                    return (await self.client.get("/health")).status_code < 500
            except Unavailable:
                return False
            except TimeoutError:
                continue
        return False

    async def _first_answer(self, path: str, wait: float) -> Any:
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            try:
                async with asyncio.timeout(self.PROBE_S):
                    return await self.client.get(path)
            except (Unavailable, TimeoutError) as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise UsageError(
                        f"no server at {self.name} ({str(error) or 'no answer'}); start one with "
                        "`make serve`, or name yours with --base-url; --wait-server S waits for it"
                    ) from error
            await asyncio.sleep(0.5)

    async def _version(self) -> str | None:
        try:
            response = await self.client.get("/version")
            version = replies.load(response.content)["version"]
        except (Unavailable, ValueError, LookupError, TypeError):
            return None
        return version if isinstance(version, str) else None
