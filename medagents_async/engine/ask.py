"""`ask` for one question: from a stage and its fields to a recorded completion."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from medagents_async.engine.dialect import Dialect
from medagents_async.engine.journal import Record
from medagents_async.engine.lanes import Priority, Seat
from medagents_async.engine.replies import wordless
from medagents_async.engine.retry import Attempts
from medagents_async.errors import BadImage, CallError, Refused, UsageError
from medagents_async.images import Album
from medagents_async.prompts import PromptPack
from medagents_async.types import (
    Call,
    Completion,
    Image,
    Layout,
    Prompt,
    Question,
    Sampling,
    Step,
)

Complete = Callable[[Call, Priority, Seat, Attempts], Awaitable[Completion]]


@dataclass(frozen=True)
class Pool:
    """Servers of one model, and what they understand."""

    model: str
    dialect: Dialect = field(default_factory=Dialect)


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What all questions of a run share.

    `max_tokens` caps every stage's own limit; `reasoning` are tokens on top, for a model that
    thinks before it writes. `pools` has the servers' models by name, "" for
    those that nobody named; `routes` says which stages go to which other pool.
    """

    prompts: PromptPack
    pools: Mapping[str, Pool]
    sampling: Sampling
    complete: Complete
    max_tokens: int | None = None
    reasoning: int = 0
    seed: int = 0
    extra_body: Mapping[str, Any] = field(default_factory=dict)  # goes into every request as it is
    routes: Mapping[str, str] = field(default_factory=dict)
    album: Album = field(default_factory=Album)

    def pool(self, stage: str, server: str) -> str:
        """The pool for a call; where a method names none, the stage's own. Raises UsageError."""
        name = server or self.routes.get(stage, "")
        if name not in self.pools:
            known = ", ".join(name for name in self.pools if name) or "none"
            raise UsageError(f"there is no server called {name!r}; with --server: {known}")
        return name


@dataclass
class Asker:
    """Implements `types.Ask` for one (question, repeat); `order` is its place in the queue."""

    desk: Desk
    question: Question
    repeat: int
    order: int
    record: Record
    started: Callable[[], None]
    steps: list[Step] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _names: set[tuple[str, int]] = field(default_factory=set)
    _seats: dict[str, Seat] = field(default_factory=dict)
    _depth: int = 0
    _images: tuple[Image, ...] | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    async def __call__(
        self,
        stage: str,
        *,
        prompt: Prompt | None = None,
        template: str | None = None,
        agent: str | None = None,
        round: int = 0,
        n: int | None = None,
        layout: Layout | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        choice: Sequence[str] = (),
        samples: int = 1,
        server: str = "",
        **fields: Any,
    ) -> Completion:
        """See `types.Ask`."""
        layout = layout or "paper"
        if prompt is None:
            prompt = self.desk.prompts.render(template or stage, self.question, fields, layout)
        base = self.desk.sampling
        limit = base.max_tokens if max_tokens is None else max_tokens
        sampling = Sampling(
            base.temperature if temperature is None else temperature,
            base.top_p if top_p is None else top_p,
            min(limit, self.desk.max_tokens or limit) + self.desk.reasoning,
        )
        number = self._number(stage, n)
        name = self.desk.pool(stage, server)
        pool = self.desk.pools[name]
        if choice:
            await pool.dialect.settle(pool.model)
        shown = await self._illustrated(prompt, stage)

        def make(bare: bool) -> Call:
            return self._call(
                pool,
                stage,
                number,
                shown,
                layout,
                sampling,
                () if bare else choice,
                samples,
            )

        depth = self._depth + 1
        seat = self._seats.setdefault(name, Seat(name))
        completion = await self._complete(make, pool.dialect, seat, agent, round, depth)
        self._depth = max(self._depth, depth)
        return completion

    def _number(self, stage: str, n: int | None) -> int:
        if n is None:
            n = self._counts[stage]
        self._counts[stage] += 1
        if (stage, n) in self._names:
            raise ValueError(f"the method asked for call {n} of stage {stage} twice")
        self._names.add((stage, n))
        return n

    async def _illustrated(self, prompt: Prompt, stage: str) -> Prompt:
        """The prompt, with the question's images where it shows the question. Raises BadImage."""
        words = self.question.text.strip()
        parts = (prompt.role, prompt.material, prompt.task)
        if not self.question.images or not any(words in part for part in parts):
            return prompt
        async with self._opening:  # sibling calls start together and share them
            if self._images is None:
                try:
                    self._images = await self.desk.album.ready(self.question.images)
                except BadImage as failure:
                    failure.stage = stage
                    raise
        return replace(prompt, images=self._images)

    def _call(
        self,
        pool: Pool,
        stage: str,
        n: int,
        prompt: Prompt,
        layout: Layout,
        sampling: Sampling,
        choice: Sequence[str],
        samples: int,
    ) -> Call:
        body: dict[str, object] = {
            "model": pool.model,
            "messages": prompt.messages(layout, system=pool.dialect.system),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.temperature > 0:
            body["seed"] = seed(self.desk.seed, self.question.id, self.repeat, stage, n)
        body |= pool.dialect.constraint(choice)
        if samples > 1:
            body["n"] = samples
        body |= self.desk.extra_body
        encoded, brief = orjson.dumps(body), None
        if prompt.images:
            body["messages"] = prompt.messages(layout, system=pool.dialect.system, named=True)
            brief = orjson.dumps(body)
        return Call(
            self.question.id, self.repeat, stage, n, encoded, sampling.max_tokens, samples, brief
        )

    async def _complete(
        self,
        make: Callable[[bool], Call],
        dialect: Dialect,
        seat: Seat,
        agent: str | None,
        round_: int,
        depth: int,
    ) -> Completion:
        completion, failure, bare = None, None, False
        while True:
            call = make(bare)
            recalled = self.record.recall(call)
            if recalled is not None:
                completion, attempts = recalled
                break
            self.started()
            attempts = Attempts(asyncio.get_running_loop().time() - self._begun)
            try:
                completion = await self.desk.complete(call, (self.order, depth), seat, attempts)
                self.record.add(call, completion, attempts)
            except CallError as error:
                if isinstance(error, Refused) and not bare:
                    lesson = dialect.learn(call, error)
                    bare = lesson == "not this"
                    if bare or (lesson == "never" and make(bare).body != call.body):
                        continue
                failure = error
            break
        if completion is not None:
            failure = wordless(completion)
        times = (attempts.asked_s, attempts.queued_s, attempts.seconds, attempts.attempts)
        self.steps.append(
            Step(call.kept, agent, round_, completion, failure, *times, attempts.server)
        )
        if failure is not None:
            failure.stage = call.stage
            raise failure
        assert completion is not None  # noqa: S101 - either way there is one or a failure
        return completion


def seed(base: int, question_id: str, repeat: int, stage: str, n: int) -> int:
    """A sampled call's own seed, 0 to 2**63 - 1.

    No two samples share one, and when or where a call is sent cannot change it.
    """
    name = f"{base}/{question_id}/{repeat}/{stage}/{n}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) >> 1
