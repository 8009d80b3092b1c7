"""What an agent of a group wants to tell which of the others."""

from __future__ import annotations

import re

from medagents_async.parsing.thinking import visible

_HEADING = re.compile(
    r"(?im)^[ \t*_#>-]*+(?:message[ \t]+)?to[ \t]+(?:(?:expert|agent|member)s?[ \t]+)?"
    r"(?:(?P<all>all|everyone|everybody)|(?P<numbers>\d{1,2}(?:[ \t]*(?:,|and|&)[ \t]*\d{1,2})*))"
    r"\b[^:\n]{0,60}:[*_ \t]*"
)
_NONE = re.compile(
    r"(?im)^[ \t*_`\"'\[(]*+no[ \t]+(?:further[ \t]+)?messages?\b[ \t*_`\"'\])]*+[.!]?[ \t*_]*$"
)


def messages(text: str, size: int, sender: int) -> list[tuple[int, str]] | None:
    """Return (recipient, text) pairs in order; [] for "No message", None where it is unclear.

    Each message begins with "Message to 2:", "To experts 1 and 3:" or "Message to all:" at the
    start of a line and runs to the next. Experts are numbered from 1 to `size`; other numbers and
    the `sender`'s own are left out.
    """
    said = visible(text)[0]
    headings = [*_HEADING.finditer(said)]
    ends = [heading.start() for heading in headings[1:]] + [len(said)]
    found: list[tuple[int, str]] = []
    for heading, end in zip(headings, ends, strict=False):
        content = said[heading.end() : end].strip()
        if heading["all"]:
            numbers = [*range(1, size + 1)]
        else:
            numbers = [int(number) for number in re.findall(r"\d+", heading["numbers"])]
        found += [
            (number, content)
            for number in dict.fromkeys(numbers)
            if content and 1 <= number <= size and number != sender
        ]
    if found or headings:
        return found or None
    return [] if _NONE.search(said) else None
