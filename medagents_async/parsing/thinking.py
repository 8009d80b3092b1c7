"""What is meant for the reader, and what the model only thought."""

from __future__ import annotations

import re

_THINK = re.compile(r"(?i)<(/?)think(?:ing)?>")


def visible(text: str) -> tuple[str, str | None]:
    """Split a reply into what is meant for the reader and the thinking, None if there is none.

    A closing tag that nothing opened (the chat template did) makes all before it thinking; an
    opening tag that nothing closes (the reply was cut) makes all after it thinking.
    """
    if "<" not in text:
        return text.strip(), None
    said: list[str] = []
    thought: list[str] = []
    start, inside = 0, False
    for tag in _THINK.finditer(text):
        if tag[1] and not inside:
            thought += said
            said, inside = [], True
        (thought if inside else said).append(text[start : tag.start()].strip())
        start, inside = tag.end(), not tag[1]
    (thought if inside else said).append(text[start:].strip())
    return "\n".join(filter(None, said)), "\n\n".join(filter(None, thought)) or None
