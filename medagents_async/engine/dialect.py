"""What a server understands of a request, found out once for a run."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from medagents_async.errors import CallError, Refused, Unavailable
from medagents_async.types import Call, Completion

log = logging.getLogger(__name__)

#: Words of a refusal that mean the constraint itself, not what it constrains.
NO_CHOICE = ("extra inputs", "unexpected", "unknown", "unrecognized", "not supported")
#: How a server is told that a reply must be one of some texts: vLLM's present name, its name up
#: to 0.11, and what other servers have. One that does not know a name may ignore it in silence.
FORMS: dict[str, Callable[[Sequence[str]], object]] = {
    "structured_outputs": lambda choice: {"choice": list(choice)},
    "guided_choice": list,
    "response_format": lambda choice: {
        "type": "json_schema",
        "json_schema": {
            "name": "choice",
            "strict": True,
            "schema": {"type": "string", "enum": list(choice)},
        },
    },
}
#: Nothing that a model would say by itself.
PROBE = ("amber-17", "cobalt-42")


def knows_structured_outputs(version: str | None) -> bool:
    """Whether a server of this vLLM version has the present name of constraints, and only that."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return found is not None and (int(found[1]), int(found[2])) >= (0, 12)


@dataclass
class Dialect:
    """Parts of a request that may have to be left out or written in another way.

    With `ask`, the form of a constrained choice is tried out before the first one.
    """

    ask: Callable[[Call], Awaitable[Completion]] | None = None
    system: bool = True  # a system message: some chat templates have no such role
    forms: list[str] = field(default_factory=lambda: list(FORMS))  # the first one is used
    _trying: asyncio.Lock = field(default_factory=asyncio.Lock)

    def constraint(self, choice: Sequence[str]) -> dict[str, object]:
        """The fields that allow only `choice`; none where the server knows no way."""
        return {form: FORMS[form](choice) for form in self.forms[:1]} if choice else {}

    async def settle(self, model: str) -> None:
        """Keep the first form that the server obeys. Raises Unavailable."""
        async with self._trying:
            if self.ask is None:
                return
            while self.forms and not await self._obeys(self.ask, model):
                self._drop(self.forms[0])
            self.ask = None

    async def _obeys(self, ask: Callable[[Call], Awaitable[Completion]], model: str) -> bool:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "temperature": 0,
            "top_p": 1,
            "max_tokens": 16,
            **self.constraint(PROBE),
        }
        call = Call("probe", 0, "probe", list(FORMS).index(self.forms[0]), orjson.dumps(body), 16)
        for _ in range(3):  # a garbled reply says nothing
            try:
                reply = await ask(call)
            except Refused:
                return False
            except Unavailable:
                raise
            except CallError:
                continue
            return reply.text.strip().strip('"') in PROBE
        return False

    def learn(self, call: Call, refusal: Refused) -> Literal["never", "not this"] | None:
        """What the server will not take: never, or not in this call, which may go without.

        A constraint that it cannot follow for one call says nothing of others: what they get must
        not depend on which call came first.
        """
        words = str(refusal).casefold()
        if refusal.status not in (400, 422):
            return None
        if b'"role":"system"' in call.body and ("system role" in words or "alternate" in words):
            if self.system:
                log.warning("the model has no system role; roles go into the user's message")
            self.system = False
            return "never"
        for form in FORMS:
            if f'"{form}":'.encode() not in call.body:
                continue
            if any(word in words for word in NO_CHOICE):
                if form in self.forms:
                    self._drop(form)
                return "never"
            if form in words:
                return "not this"
        return None

    def _drop(self, form: str) -> None:
        self.forms.remove(form)
        if not self.forms:
            log.warning("the server cannot constrain a choice; replies are only parsed")
