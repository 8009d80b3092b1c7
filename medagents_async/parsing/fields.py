"""Which medical fields a reply names."""

from __future__ import annotations

import re

_FIELD_MARKER = re.compile(
    r"(?i)\b(?:sub)?(?:fields?|specialt(?:y|ies))[*_ \t]*+(?:(?:are|is|include)\b[*_ \t]*+)?:"
)
_ITEM = re.compile(r"(?i)[-*•+][ \t]+|(?:field[ \t]*)?[(\[]?(\d{1,2})[ \t]?[.):\]][ \t]*")
_INLINE_NUMBER = re.compile(r"(?<=\S)[ \t]+(?=\(?\d{1,2}[.)][ \t])")
_EXPLANATION = re.compile(r"\s[-–—]\s|:|\s\(|\.\s")
_PLACEHOLDER = re.compile(r"(?i)(?:medical\s+)?(?:sub)?fields?\s*(?:\d*|name)|none|n/?a|etc")
_PROSE = re.compile(
    r"(?i)[?!]|\b(?:is|are|was|were|be|has|have|this|these|those|that|which|because|since|patient"
    r"|he|she|question|scenario|following|(?-i:I)|we|you|my|should|would|can|could|will|based|here"
    r"|sure|classify|read|output|step|fields?|subfields?)\b"
)
_NAME_LETTERS, _NAME_WORDS = 60, 8


def _name(item: str) -> str | None:
    """Return a field's name without explanation, "" for a placeholder, None for prose."""
    bare = _ITEM.sub("", item.strip(" \t*_`\"'[]<>.,;"), count=1)
    bare = _EXPLANATION.split(bare, maxsplit=1)[0].strip(" \t*_`\"'[]<>.,;")
    bare = re.sub(r"^(?:and|&)\s+", "", bare)
    if _PLACEHOLDER.fullmatch(bare) or not re.search(r"[^\W\d_]", bare):
        return ""
    prose = _PROSE.search(bare) or len(bare) > _NAME_LETTERS or len(bare.split()) > _NAME_WORDS
    return None if prose else bare


def _line_names(kind: str, line: str) -> list[str]:
    if kind == "plain":
        line = line.partition(". ")[0]
        names = [_name(part) for part in line.split(";" if ";" in line else ",")]
        # Commas are in any prose, so one piece of prose spoils the line.
        return [] if None in names else [name for name in names if name]
    return [name for part in line.split("|" if kind == "bars" else "\n") if (name := _name(part))]


def _list_names(value: str) -> list[str]:
    """Return the names in the first list of `value`, which may change its form between lines."""
    found: list[str] = []
    last, bar, gap = "", False, False
    for raw in _INLINE_NUMBER.sub("\n", value.replace("**", "")).splitlines():
        line = raw.strip()
        item = _ITEM.match(line)
        kind = "bars" if "|" in line or bar else "plain"
        if item and kind == "plain":
            kind = "number" if item[1] else "bullet"
        if not line:
            gap = bool(found)
            continue
        if gap and (kind != last or kind not in ("number", "bullet")):
            break  # what a later paragraph lists explains the names
        gap, bar = False, line.endswith("|")
        if kind != last and (last in ("number", "bullet") or (last == "bars" and kind == "plain")):
            continue  # explains the line above
        if kind == last == "plain" and ":" in line:
            break
        names = _line_names(kind, line)
        found += names
        last = kind if names else last
    return found


def fields(text: str) -> list[str]:
    """Return the medical fields that a recruiting reply names, in order, repeats included.

    They follow the last "Medical Field:" that names any, between bars, or else numbered, bulleted,
    or between commas, semicolons or newlines. Without that marker only bars, numbers or bullets
    count, and two names at least. Explanations, placeholders ("Field0") and prose are left out.
    """
    end = len(text)
    for marker in reversed([*_FIELD_MARKER.finditer(text)]):
        if names := _list_names(text[marker.end() : end]):
            return names
        end = marker.start()
    lines = (line if "|" in line or _ITEM.match(line.strip()) else "" for line in text.splitlines())
    names = _list_names("\n".join(lines))
    return names if len(names) > 1 else []
