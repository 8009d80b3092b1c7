"""Experts: recruited by the model or named by the user, and what each of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from medagents_async import parsing
from medagents_async.errors import Empty, ReasoningOnly, Truncated
from medagents_async.fan_out import fan_out
from medagents_async.types import Ask

#: The model answered without a word: for a vote or a list of fields that is an unclear reply.
SILENT = (Empty, ReasoningOnly, Truncated)
#: Who is consulted where the model names too few fields.
FALLBACK_FIELD = "General Medicine"


@dataclass(frozen=True, slots=True)
class Expert:
    """`field` goes into prompts; `name` is unique in the panel and goes into records."""

    field: str
    name: str


@dataclass(frozen=True, slots=True)
class Contribution:
    """What an expert of one field wrote."""

    field: str
    text: str


def named(fields: Sequence[str], beside: Sequence[Expert] = ()) -> list[Expert]:
    """Experts of these fields; one whose name is taken, in whatever case, gets a number."""
    taken = [expert.field.casefold() for expert in beside]
    experts = []
    for name in fields:
        taken.append(name.casefold())
        count = taken.count(name.casefold())
        experts.append(Expert(name, name if count == 1 else f"{name} ({count})"))
    return experts


async def recruit(
    ask: Ask, stage: str, count: int, *, max_tokens: int, **shown: Any
) -> tuple[list[str], dict[str, int]]:
    """Exactly `count` fields, and how many the model named, were padded and were cut.

    `shown` is what the prompt shows beside the count; an `n` in it numbers the call.
    """
    try:
        reply = await ask(stage, max_tokens=max_tokens, count=count, **shown)
        fields = parsing.fields(reply.text)
    except SILENT:
        fields = []
    padding = [FALLBACK_FIELD] * (count - len(fields))
    record = {
        "named": len(fields),
        "padded": len(padding),
        "cut": max(0, len(fields) - count),
    }
    return fields[:count] + padding, record


async def analyse(
    ask: Ask,
    stage: str,
    experts: Sequence[Expert],
    *,
    max_tokens: int,
    trim: bool,
    **shared: Any,
) -> Sequence[Contribution]:
    """One analysis by each expert, side by side; `shared` is what all their prompts show."""

    async def analysis(n: int, expert: Expert) -> Contribution:
        reply = await ask(
            stage,
            agent=expert.name,
            n=n,
            max_tokens=max_tokens,
            field=expert.field,
            **shared,
        )
        text = parsing.trim_analysis(reply.text) if trim else reply.text
        return Contribution(expert.field, text)

    return await fan_out(*(analysis(n, expert) for n, expert in enumerate(experts)))
