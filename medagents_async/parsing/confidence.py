"""How sure a reply says it is."""

from __future__ import annotations

import re
import unicodedata

from medagents_async.parsing.thinking import visible

_MARKER = re.compile(
    r"(?i)\bconfiden(?:ce|t)(?:[ \t]+(?:level|score|rating))?(?:[ \t]*\([^)\n]{0,40}\))?"
    r"[*_\"' \t]*(?::|=|\bis\b)"
)
_VALUE = re.compile(
    r"[\s*_`\"'(\[{$]*(?P<value>\d{1,3}(?:\.\d{1,6})?)"
    r"(?:\s*(?P<percent>%|percent\b)|\s*(?:/|out\s+of)\s*(?P<scale>\d{1,3})\b)?"
    r"(?![\d%/]|\.\d|\s*(?:-|–|to\b|%))"
)


def confidence(text: str) -> float | None:
    """Return the confidence that a reply states last, from 0 to 1; None where it is unclear.

    After "Confidence:" come a percentage ("85%"), a share ("0.85"), or a number out of another
    ("8/10"). A number alone is a percentage from 2 on, a share where it has a decimal point and is
    no more than 1. What could be either ("1", "1.5"), ranges and what is out of range is unclear.
    """
    reply = unicodedata.normalize("NFKC", visible(text)[0])
    markers = [*_MARKER.finditer(reply)]
    found = _VALUE.match(reply, markers[-1].end()) if markers else None
    if not found:
        return None
    value = float(found["value"])
    if found["percent"]:
        share = value / 100
    elif found["scale"]:
        share = value / int(found["scale"]) if int(found["scale"]) else -1.0
    elif value == 0 or ("." in found["value"] and value <= 1):
        share = value
    else:
        share = value / 100 if value >= 2 else -1.0
    return share if 0 <= share <= 1 else None
