"""Which experts and teams of experts a recruiter names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from medagents_async.parsing.fields import fields
from medagents_async.parsing.thinking import visible

_MEMBER = re.compile(
    r"(?i)^[\s*_#>-]*+(?:(?:(?P<lead>lead|leader)|members?|experts?)\b[*_ \t]*+"
    r"\d{0,2}[*_ \t]*+(?:\(?(?P<also>lead)\)?)?|\d{1,2})[*_ \t]*+[.):][*_ \t]*+(?P<rest>\S.*)$"
)
_TEAM = re.compile(
    r"(?i)^[\s*_#>-]*+(?:team|group)\b[*_ \t]*+\d{0,2}[*_ \t]*+[-–—:.)][*_ \t]*+(?P<rest>\S.*)$"
)
_SPLIT = re.compile(r"\s[-–—]\s|:\s|\s\|\s|\s\(")
_HIERARCHY = re.compile(r"(?i)\W{0,5}\bhierarchy\b.*$")
_DECORATION = " \t*_`\"'[]<>().,;"
_ROLE_LETTERS = 80


@dataclass(frozen=True, slots=True)
class Member:
    """An expert's role, and the expertise that goes with it, perhaps empty."""

    role: str
    expertise: str = ""
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Team:
    """A team's name or goal, and its members."""

    name: str
    members: tuple[Member, ...]


def members(text: str) -> list[Member]:
    """Return the experts that a reply lists, one a line, in order, repeats included.

    A line is "1. Cardiologist - diseases of the heart", with "Member 1:" or "Lead:" for the
    number as may be. A remark on the hierarchy is left out. Where there is no such line, the
    fields that `fields` finds are the roles.
    """
    said = visible(text)[0]
    found = [member for line in said.splitlines() if (member := _member(line)) is not None]
    return found or [Member(name) for name in fields(said)]


def teams(text: str) -> list[Team]:
    """Return the teams that a reply lists, in order: "Team 1: Initial Assessment Team", and its
    members below as `members` reads them. What stands before the first team is no part of one.
    """
    found: list[tuple[str, list[Member]]] = []
    for line in visible(text)[0].splitlines():
        heading = _TEAM.match(line)
        if heading:
            found.append((heading["rest"].strip(" \t*_`\"'[]"), []))
        elif found and (member := _member(line)) is not None:
            found[-1][1].append(member)
    return [Team(name, tuple(those)) for name, those in found if name]


def _member(line: str) -> Member | None:
    item = _MEMBER.match(line)
    if not item:
        return None
    role, *about = _SPLIT.split(_HIERARCHY.sub("", item["rest"]), maxsplit=1)
    role = role.strip(_DECORATION)
    if not re.search(r"[^\W\d_]", role) or len(role) > _ROLE_LETTERS:
        return None
    expertise = about[0].strip(_DECORATION) if about else ""
    return Member(role, expertise, bool(item["lead"] or item["also"]))
