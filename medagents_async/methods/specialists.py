"""Specialists with a role and an expertise: exactly as many as wanted, each with its own name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from medagents_async.methods.experts import FALLBACK_FIELD, SILENT, Expert, named
from medagents_async.parsing import Member
from medagents_async.types import Ask


@dataclass(frozen=True, slots=True)
class Specialist:
    """`number` counts the members of a team from 1, as they address each other.

    `role` and `expertise`, which may be empty, go into prompts; `name` into records.
    """

    number: int
    role: str
    expertise: str
    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a specialist has said."""

    speaker: Specialist
    text: str


async def list_from(ask: Ask, template: str, *, max_tokens: int, **shown: Any) -> str:
    """The recruiter's list; empty where the recruiter says nothing.

    Raises CallError when the call failed.
    """
    try:
        return (await ask("recruit", template=template, max_tokens=max_tokens, **shown)).text
    except SILENT:
        return ""


def specialists(
    members: Sequence[Member], count: int, beside: Sequence[Specialist] = ()
) -> tuple[list[Specialist], dict[str, int]]:
    """Exactly `count` of them, and how many were named, padded and cut.

    Names are told apart from each other and from those `beside`.
    """
    padding = [Member(FALLBACK_FIELD)] * (count - len(members))
    chosen = [*members[:count], *padding]
    taken = [Expert(other.role, other.name) for other in beside]
    names = named([member.role for member in chosen], beside=taken)
    record = {
        "named": len(members),
        "padded": len(padding),
        "cut": max(0, len(members) - count),
    }
    people = [
        Specialist(number, member.role, member.expertise, expert.name)
        for number, (member, expert) in enumerate(zip(chosen, names, strict=True), 1)
    ]
    return people, record
