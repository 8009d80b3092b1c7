"""The sections of a report, and analyses without their ragged ends."""

from __future__ import annotations

import re

_HEADING = re.compile(
    r"(?im)(?:^[ \t]*(?:\d{1,2}[.)][ \t]*)?[#>*_\-\[ \t]{0,9}|(?<![^\W_])[*_\[]{0,3})"
    r"(?:(key\s+knowledge)|total\s+analysis)(?:[*_\]]{0,3}[ \t]*:[*_]{0,3}|[*_\]: \t]{0,5}$)"
)


def _content(text: str) -> str:
    """Return `text` out of its brackets, "" if it holds no word, as in an echoed "[…]"."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1].strip()
    return bare if re.search(r"[^\W\d_]", bare) else ""


def sections(text: str) -> tuple[str | None, str]:
    """Return the key knowledge, None if there is none, and the total analysis of a report.

    Each runs from its marker to the next one; of several the last that holds a word counts. With
    no total analysis the whole text stands for it, since a report must not be lost for its form.
    """
    found: dict[bool, str] = {}
    end = len(text)
    for mark in reversed([*_HEADING.finditer(text)]):
        if content := _content(text[mark.end() : end]):
            found.setdefault(mark[1] is not None, content)
        end = mark.start()
    return found.get(True), found.get(False, text.strip())


_AS_A_MODEL = re.compile(r"(?i)as\s+an\s+ai\s+language\s+model")
_SENTENCE_END = re.compile(r"(?<!\n\d)[.!?][\"'”’)\]*_]*(?=\s|\Z)|[。！？]")


def trim_analysis(text: str) -> str:
    """Return an analysis without what MedAgents' cleaning drops.

    That is all up to the first "as an AI language model", and a last sentence that the token limit
    cut. Where no sentence is finished the text stays: it is all there is.
    """
    parts = _AS_A_MODEL.split(text, maxsplit=1)
    kept = parts[-1].lstrip(" \t\n,.;:") if len(parts) > 1 else text
    ends = [end.end() for end in _SENTENCE_END.finditer(kept)]
    return (kept[: ends[-1]] if ends else kept).strip()
