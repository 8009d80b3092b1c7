"""How complex a triage finds a question."""

from __future__ import annotations

import re
from typing import Literal

from medagents_async.parsing.thinking import visible

Complexity = Literal["low", "moderate", "high"]

#: The paper's levels, and the words that its public code has for them.
_LEVELS: dict[str, Complexity] = {
    "low": "low",
    "basic": "low",
    "moderate": "moderate",
    "intermediate": "moderate",
    "high": "high",
    "advanced": "high",
}
_MARKER = re.compile(
    r"(?i)\b(?:complexity|difficulty|triage)(?:[ \t]+(?:level|class|category))?"
    r"[*_\"' \t]*(?::|=|\bis\b)"
)
_LEVEL = re.compile(rf"(?i)\b(?:{'|'.join(_LEVELS)})\b")
_DENIED = re.compile(r"(?i)\b(?:not|neither|nor|or|to|between|rather)\b|n['’]t\b|[/|]")


def complexity(text: str) -> Complexity | None:
    """Return the level that a triage names; None in doubt.

    It is the only one on the line after the last "Complexity:", or the only one of a reply of one
    line that says little else. Two levels, "not high" and "moderate to high" are doubts.
    """
    reply = visible(text)[0].strip()
    markers = [*_MARKER.finditer(reply)]
    if markers:
        line = reply[markers[-1].end() :].lstrip(" \t\n*_`").partition("\n")[0]
        line = re.split(r"[.;(]|\s[-–—]\s", line, maxsplit=1)[0]
    else:
        line = reply if "\n" not in reply and len(reply.split()) <= 3 else ""
    levels = {_LEVELS[word.lower()] for word in _LEVEL.findall(line)}
    return levels.pop() if len(levels) == 1 and not _DENIED.search(line) else None
