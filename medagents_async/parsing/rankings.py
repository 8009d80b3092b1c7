"""The order in which a reply puts the options."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from medagents_async.parsing.thinking import visible

_MARKER = re.compile(r"(?i)\brank(?:ing|ed)?(?:[ \t]+(?:order|list|of[ \t]+\w+))?[*_ \t]*[:=]")
_ITEM = re.compile(
    r"[\s*_`\"'(\[{]*+(?i:option\s+)?(?P<key>[A-Za-z])[*_`\"')\]}]*(?P<remark>|\W.*)", re.DOTALL
)
_NUMBER = re.compile(r"[ \t>*_-]*+\(?(\d{1,2})[.):][ \t]*")
_REMARK = re.compile(r"\s*[.:(]|\s+[-–—]\s")
_OTHER = re.compile(r"\b[A-Z]\b")


def ranking(text: str, options: Mapping[str, str], *, cut: bool = False) -> list[str] | None:
    """Return the option keys in the order that a reply ranks them, the best first.

    They follow the last "Ranking:" that has any: on its line between ">" or commas, or one a line,
    with numbers that count from 1. The ranking may be partial. It is None where there is none, or
    one that names an option twice, what is no option, or two options as equals; and where a reply
    that was `cut` ranks some options only, since its limit may have taken the rest.
    """
    reply = unicodedata.normalize("NFKC", visible(text)[0])
    end = len(reply)
    for marker in reversed([*_MARKER.finditer(reply)]):
        value = reply[marker.end() : end].strip(" \t\n*_`")
        keys = _list(value, options) or _line(value.partition("\n")[0], options)
        if keys:
            sound = len({*keys}) == len(keys) and {*keys} <= {*options}
            return keys if sound and not (cut and len(keys) < len(options)) else None
        end = marker.start()
    return None


def _line(line: str, options: Mapping[str, str]) -> list[str]:
    """The letters of one line, or none where a part of it is none."""
    keys: list[str] = []
    for part in re.split(r"[>≻→]+", line) if re.search("[>≻→]", line) else re.split("[,;]", line):
        number = _NUMBER.match(part)
        if number and int(number[1]) != len(keys) + 1:
            return []
        key = _key(part[number.end() :] if number else part, options)
        if key is None:
            return []
        keys.append(key)
    return keys


def _list(value: str, options: Mapping[str, str]) -> list[str]:
    """The letters of a list whose numbers count from 1; what follows it explains."""
    keys: list[str] = []
    for line in value.splitlines():
        number = _NUMBER.match(line)
        if not number or int(number[1]) != len(keys) + 1:
            break
        key = _key(line[number.end() :], options)
        if key is None:
            return []
        keys.append(key)
    return keys


def _key(item: str, options: Mapping[str, str]) -> str | None:
    """The letter that `item` is, alone or with its option's text or a remark behind it.

    A remark that holds another letter is in doubt: "A. B".
    """
    found = _ITEM.fullmatch(item.strip())
    if not found:
        return None
    key, remark = found["key"], found["remark"]
    bare = remark.strip(" \t*_`\"'.:()[]{}-–—")
    if not bare:
        return key.upper()
    if bare.casefold() == options.get(key, "").strip(" .").casefold():
        return key
    lead = _REMARK.match(remark)
    return key if lead and key.isupper() and not _OTHER.search(bare) else None
