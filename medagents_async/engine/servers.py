"""A server's health: what it is, whether it lives, and what to do when it does not."""

from __future__ import annotations

import asyncio
import logging

import orjson

from medagents_async.engine.client import Client
from medagents_async.engine.identity import PROBE_S, Identity, identify
from medagents_async.engine.lanes import Lane
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


class Server:
    """One server of a run, and a watch over it.

    A stopped vLLM may leave calls hanging without a byte, and one that drains refuses all new
    ones in good health for a minute. So a watch runs beside the calls. When `/health` is dead,
    waiting calls fail at once and are owed again; when every call has failed for a while, too,
    nothing new is sent to it until it gives a token. Other servers of its pool go on meanwhile;
    where there is none, the run waits up to `grace` seconds.
    """

    WATCH_S = 1.0  # between looks while calls wait
    SILENT_LOOKS = 6  # looks without an answer in a row before a busy server counts as gone
    # So many failures in a row over so long: longer than three tries of a call can take, shorter
    # than most sequences of the default five, so that an outage costs hardly any call.
    REFUSING_S = 8.0
    REFUSALS = 8
    BROKEN = 3  # where other servers can take the calls; each time longer, where it comes back sick
    LONGEST_REST_S = 60.0

    def __init__(
        self,
        client: Client,
        scheduler: Scheduler,
        lane: Lane,
        *,
        timeout: float,
        grace: float,
        accept_change: bool = False,
    ) -> None:
        self.client = client
        self.name = client.base_url
        self.identity: Identity | None = None
        self.fingerprint: str | None = None
        self.known: set[str] = set()  # what an earlier run saw, of any of its servers
        self.answered = 0  # calls
        self.busy = 0  # calls refused for want of room
        self.tokens = 0  # prompt and completion tokens of these calls
        self.lane = lane
        self._scheduler = scheduler
        self._timeout = timeout
        self._grace = grace
        self._accept_change = accept_change
        self._waiting: set[asyncio.Timeout] = set()
        self._down = False
        self._failures = 0  # in a row
        self._broken = 0  # of these, since the last that was for want of room
        self._relapses = 0  # outages in a row, between which no call was answered
        self._returned_with = -1  # calls answered when the last one was over
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
            self._broken = 0 if error.busy else self._broken + 1
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
            self._failures = self._broken = 0
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
            try:
                self._down = not await self._alive()
            finally:  # a call that waits for the look must not wait for ever: see `retire`
                look.set()
            lasting = clock() - self._failing_since >= self.REFUSING_S
            # Where others can take its calls, a server needs far less to be left out.
            spared = self._broken >= self.BROKEN and not self._scheduler.alone(self.lane)
            if self._down or spared or (self._failures >= self.REFUSALS and lasting):
                await self._outage()

    def retire(self) -> None:
        """Nobody watches any more: what fails here is owed by the other servers."""
        self._down = True
        self.lane.pause(self)
        self._next_look.set()

    async def _is_outage(self) -> bool:
        """Whether a call that just failed did so because the server is gone: a look will tell."""
        if not self.lane.is_paused(self):
            look = self._next_look
            self._suspicion.set()
            await look.wait()
        return self._down

    async def _outage(self) -> None:
        clock = asyncio.get_running_loop().time
        self.lane.pause(self)
        # Calls that failed during the look wait for the next one, which may be long in coming.
        self._next_look.set()
        self._next_look = asyncio.Event()
        state = "is down" if self._down else "refuses every call"
        log.warning("%s %s; waiting up to %g s for it", self.name, state, self._grace)
        begun = clock()
        for limit in self._waiting if self._down else ():
            if not limit.expired():
                limit.reschedule(clock())
        self._relapses = self._relapses + 1 if self.answered == self._returned_with else 0
        if self._relapses and not self._scheduler.alone(self.lane):
            await asyncio.sleep(min(self.WATCH_S * 2**self._relapses, self.LONGEST_REST_S))
        while not await self._is_back(max(self.WATCH_S, begun + self._grace - clock())):
            if clock() >= begun + self._grace and self._scheduler.alone(self.lane):
                raise ServerGone(
                    f"{self.name} went away and did not come back within {self._grace:g} s; "
                    "start it and run the same command again to resume"
                )
            await asyncio.sleep(self.WATCH_S)
        await self._verify()
        log.warning("%s is back", self.name)
        self._down, self._returned_with = False, self.answered
        self._failures = self._broken = 0
        self.lane.resume(self)

    async def _is_back(self, patience: float) -> bool:
        try:
            async with asyncio.timeout(patience):
                return await self._alive() and await self._answers()
        except TimeoutError:
            return False

    async def _alive(self) -> bool:
        """Whether it listens and says that it is well.

        A refused connection is proof of death. Silence may be a busy event loop, and a single
        bad answer a passing one: they count only when they last.
        """
        bad = 0
        for _ in range(self.SILENT_LOOKS):
            try:
                async with asyncio.timeout(PROBE_S):
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

    async def _verify(self, refusal: Refused | None = None) -> None:
        """Raises ServerChanged where the server no longer serves this run's model to this key."""
        if refusal is not None and self.answered == 0:
            raise ServerChanged(f"{self.name} refuses the very first calls: {refusal}")
        async with self._verifying:  # a burst of refusals asks one question at a time
            try:
                model = self.identity.model if self.identity else None
                self.identity = await identify(self.client, model, self._grace)
            except UsageError as error:
                raise ServerChanged(f"the server is not what it was: {error}") from error

    def _check_fingerprint(self, fingerprint: str | None) -> None:
        if fingerprint is None:
            return
        known = {self.fingerprint} if self.fingerprint else self.known
        if known and fingerprint not in known and not self._accept_change:
            before = ", ".join(sorted(known))
            raise ServerChanged(
                f"{self.name} was {before} and is {fingerprint} now: another version or "
                "other settings. Restore it and run again, or go on with --accept-server-change"
            )
        self.fingerprint = fingerprint
