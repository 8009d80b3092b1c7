"""Several replies to one question, side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from medagents_async import parsing
from medagents_async.errors import CallError, UsageError
from medagents_async.fan_out import fan_out
from medagents_async.methods.experts import SILENT
from medagents_async.types import Ask, Completion

#: How many samples of a stage.
Samples = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reply; `option` is None where it names none. A reply without a word has no text."""

    text: str = ""
    option: str | None = None


async def poll(*calls: Awaitable[Completion]) -> list[Completion | None]:
    """Replies in the order of `calls`, None for one without a word.

    Raises CallError where a call failed, and where no reply has a word.
    """
    replies = await fan_out(*(_heard(call) for call in calls))
    completions = [reply if isinstance(reply, Completion) else None for reply in replies]
    for reply in replies:
        if isinstance(reply, CallError) and not any(completions):
            raise reply
    return completions


async def _heard(call: Awaitable[Completion]) -> Completion | CallError:
    try:
        return await call
    except SILENT as wordless:
        return wordless


def read(reply: Completion | None, options: Mapping[str, str]) -> Sample:
    """What a reply says, and which of `options` it names."""
    if reply is None:
        return Sample()
    return Sample(reply.text, parsing.option(reply.text, options, cut=reply.truncated))


async def draw(
    ask: Ask,
    stage: str,
    count: int,
    options: Mapping[str, str],
    *,
    one_request: bool = False,
    **fields: Any,
) -> list[Sample]:
    """`count` replies to one prompt: as many calls, or one that asks for as many samples.

    Raises CallError where a call failed, and where no reply has a word.
    """
    if not one_request:
        calls = (ask(stage, n=n, **fields) for n in range(count))
        return [read(reply, options) for reply in await poll(*calls)]
    reply = await ask(stage, samples=count, **fields)
    return [Sample(text, parsing.option(text, options, cut=cut)) for text, cut in reply.samples]


def refuse_copies(temperature: float, samples: int) -> None:
    """Raises UsageError where samples of one prompt would all be the same."""
    if temperature == 0 and samples > 1:
        raise UsageError(
            "at temperature 0 all samples say the same, so that a vote over them decides nothing: "
            "set a temperature above 0, as the papers do (0.7), or ask once (--method cot)"
        )
