"""Which option a reply chooses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from medagents_async.parsing.thinking import visible

_MARKER = re.compile(
    r"""(?imx) \\boxed\b
    # "Option C is the correct answer"
    | (?:(?<![^\W_])(?:option|choice|answer)\s+|^[*_ \t]{0,6}|(?<=[.,:!?]\s))
      [*_(\["'“]{0,4}(?P<said>(?-i:[A-Z]))[*_)\]"'”]{0,4}(?:\s?[(,][^(),.;:\n]{1,80}[),])?
      \s+(?:is|would\s+be)\s+(?:(?:therefore|thus|clearly|indeed|likely)\s+)?the\s+
      (?:correct|right|best|most\s+(?:likely|appropriate|accurate|suitable)(?:\s+correct)?)\s+
      (?:answer|option|choice)\b
    # "Answer: …", "the best option for this child is …", "I would choose …"
    | (?<![^\W_])(?<!wrong[ ])(?<!incorrect[ ])(?<!other[ ])(?<!each[ ])(?<!answer[ ])
      (?:(?:answer|option|choice)(?:\s+(?:option|choice|letter))?|答案)
      (?:,?\s+(?:to|for|in|of|here|given|based|among|from|that\s+best|I\s+(?:think|believe|choose))
        \b(?:(?!\bnot\b|n['’]t\b|\bif\b)[^.:;\n]){0,80}?)?
      (?: [*_`"'’\s]{0,6}(?P<colon>[-=]{0,2}[:=>→]|[-–—]{1,3}\s)
        | ,?\s+(?:is|was|(?:would|should|must|will)\s+be|(?:seems|appears)\s+to\s+be)
          (?:\b|(?=n['’]t)))
    | \bI(?:\s+would|\s+will|['’]d|['’]ll)?\s+(?:choose|select|pick|go\s+with|opt\s+for)\b
    # "## Answer" above the letter, "Final answer C"
    | ^[#*_> \t]{0,9}(?:the\s)?(?:final\s|correct\s)?answer[*_ \t]{0,6}$
    | \bfinal\s+answer\s+(?=(?-i:[*(\[]{0,3}[A-Z][*)\].]{0,3}[ \t]*$))"""
)
_HEDGE = re.compile(  # "if the answer is …", "I don't think the answer is …", "a good option is …"
    r"(?i)(?:\b(?:if|whether|unless)\b|(?:n['’]t|\bnot)\s(?:think|believe|agree|say)\b)[^.,;:\n]*$"
    r"|\b(?:an?|one|another)\s(?:(?!the\b|my\b|is\b)\w+\s)?$"
)
# What may stand between a marker and its letter: decoration, LaTeX, words that change nothing.
_LEAD = r"""(?:[\s*_`"'“”‘’$#<>(\[{:.,\-–—]|\\[a-z]+|\\[(\[]|(?:the|my|final|correct|right|best
    |most\s+likely|option|choice|letter|answer|therefore|thus|hence|then|clearly|probably|likely
    |definitely|indeed|still|simply)\b)*+"""
_ALONE = r"(?![^\W_]|['’\-–]\w)"  # not the start of a word, of "I'm" or of "B-cell"
_LETTER = re.compile(
    rf"(?x) (?i:{_LEAD}(?P<denied>(?:n['’]t|not)\s+{_LEAD})?) (?P<letter>[A-Za-z]){_ALONE}"
)
# A letter before a word is a word itself ("A patient", "C difficile"), except before these words.
_LOWER_STANDS = r"""(?x) [)\]}<>*_`"'”’$\\:;,!?] | \s*\Z | [ \t]*\n | [ \t]+[)\]}]
    | \.(?![^\W_]|[ \t]+[a-z])
    | \.?\s+(?:because|since|as|which|due|given|based|for|considering|according|rather|over|not
        |and\s+not|is\s+(?:the\s+)?(?:correct|right|best|most))\b"""
_STANDS = {
    False: re.compile(_LOWER_STANDS),
    True: re.compile(rf"""{_LOWER_STANDS} | \s+[^\w\s"'“‘*_`]"""),
}
_SECOND = re.compile(  # "A, B", "A/B", "**A** or (B)"; an article or "I" before a word is none
    rf"""(?x) [ \t)\]}}*_`"'”’$]*+(?:[,/&+|;]|(?i:and|or)\b)[ \t,/]*+(?i:(?:and|or)\b)?
    [ \t*_`"'“‘$(\[{{]*+(?i:option\s+)?([A-HJ-Z]|[Ia-z](?!\s+(?!and\b|or\b)[a-z])){_ALONE}"""
)
_LISTED = re.compile(r"[ \t,;.|*_]*+[-(\[]*([A-Z])[*_]*[).:\]]")
_BELOW = re.compile(r"[*_ \t]{0,9}\n")
_KEY_LINE = re.compile(r"(?m)^[*_>(\[ \t-]{0,9}([A-Z])[*_]{0,3}[).:\]]")
_NAMED_AFTER = re.compile(r"(.+)[(\[]([a-z])")
_REFUSAL = re.compile(
    r"(?i)[\s*_\"'(\[]*(?:none|neither|unknown|unclear|undetermined|cannot|n/a"
    r"|not\s+(?:enough|possible|applicable|sure))\b"
)
_WORD = re.compile(r"\w")
_AFTER_KEY = " \t*_)].:/-–—"


def _plain(text: str) -> str:
    words = " ".join(text.split())
    return words.lstrip(" *_`\"'“”‘’([{$#\\").rstrip(" *_`\"'“”‘’.,;:!?)]}$\\").casefold()


def _next(key: str, texts: Mapping[str, str]) -> str | None:
    keys = [*texts, None]
    return keys[keys.index(key) + 1] if key in texts else None


def _by_text(value: str, texts: Mapping[str, str]) -> str | None:
    """Return the only option whose full text `value` is, perhaps with its letter after it."""
    plain = _plain(value)
    keys = [key for key, text in texts.items() if text == plain and len(text) > 1]
    named = _NAMED_AFTER.fullmatch(plain)
    if not keys and named and texts.get(named[2].upper()) == _plain(named[1]) != "":
        keys = [named[2].upper()]
    return keys[0] if len(keys) == 1 else None


def _by_line(line: str, texts: Mapping[str, str]) -> str | None:
    """Return the key, if `line` is an upper-case key alone or with its option's text."""
    found = _LETTER.match(line)
    if not found or found["denied"] or found["letter"] not in texts:
        return None
    rest = _plain(line[found.end() :].lstrip(_AFTER_KEY))
    return found["letter"] if rest in ("", texts[found["letter"]]) else None


def _by_letter(value: str, texts: Mapping[str, str]) -> str | None:
    """Return the letter that `value` begins with, "" for several letters, None for other prose."""
    found = _LETTER.match(value)
    if not found or found["denied"]:
        return None
    key, rest = found["letter"].upper(), value[found.end() :]
    second = _SECOND.match(rest)
    if second and second[1].upper() in texts:
        return ""
    tail, text = rest.lstrip(_AFTER_KEY), texts.get(key, "")
    lowered = tail.casefold()
    own = bool(text) and lowered.startswith(text) and not _WORD.match(lowered, len(text))
    if not own and not _STANDS[found["letter"].isupper()].match(rest):
        return None
    # The list of options, copied after the marker, goes on with the next key.
    beside = _LISTED.match(tail[len(text) :]) if own else None
    below = _by_line(tail.partition("\n")[2].lstrip().partition("\n")[0], texts)
    return "" if _next(key, texts) in {beside and beside[1], below} - {None} else key


#: The end of most replies: the last marker, on a line of its own, with nothing but a letter.
_USUAL = re.compile(r"\n[ \t]*Option:[ \t]*([A-Z])\.?\s*\Z")
_ENDS = re.compile(r"[.!?][*_\"'”’)\]]*(?=\s)")
_MARKED = re.compile(r"(?i)[\s*_#>]*(?:final\s+)?(?:option|answer)[*_]*\s*:")


def _finished(reply: str) -> str:
    """What stands of a cut reply: no half sentence, unless it is a marker or a lone letter."""
    head, newline, last = reply.rpartition("\n")
    if _MARKED.match(last) or len(_plain(reply)) == 1:
        return reply
    ends = [end.end() for end in _ENDS.finditer(last)]
    return head + newline + (last[: ends[-1]] if ends else "")


def option(text: str, options: Mapping[str, str], *, cut: bool = False) -> str | None:
    r"""Return the letter of the option that a reply chooses.

    Evidence, strongest first:

    1. the last marker ("Answer: …", "the best option is …", `\boxed{…}`, "C is the correct
       answer"). Its value is an option's full text, or a letter that stands alone. Several
       letters, a letter that is no key, and "none" void the reply; other prose names nothing, and
       the marker before decides. "Not A" takes A from the markers before.
    2. no marker that names anything: the first line is a key, alone or with its option's text,
       and no other line is so for another key.
    3. the whole reply is the full text of exactly one option.

    Lower-case letters count right after a marker only. Thinking counts for nothing, nor does the
    unfinished end of a reply that was `cut` by its limit.
    """
    usual = _USUAL.search(text[-40:])
    if usual and usual[1] in options and not cut and "<" not in text and text.isascii():
        return usual[1]  # what follows would find the same, a hundred times slower
    reply = unicodedata.normalize("NFKC", visible(text)[0])
    if cut:
        reply = _finished(reply)
    texts = {key: _plain(unicodedata.normalize("NFKC", words)) for key, words in options.items()}
    span = 200 + 2 * max(map(len, texts.values()), default=0)
    denied: set[str] = set()
    for marker in reversed([*_MARKER.finditer(reply)]):
        before = reply[max(0, marker.start() - 80) : marker.start()]
        if not marker["colon"] and _HEDGE.search(before):
            continue
        # A cut in the middle of "Aspirin" must not leave the letter "A" behind: hence the "x".
        value = reply[marker.end() : marker.end() + span]
        value += "x" if marker.end() + span < len(reply) else ""
        line = value.lstrip(" \t\n*_`\"':").partition("\n")[0]
        key = marker["said"] or _by_text(line, texts) or _by_text(line.partition(". ")[0], texts)
        if key is None:
            key = _by_letter(value, texts)
            # "each of the options:", and below it a comment on every option
            if key and key == next(iter(texts), None) and _BELOW.match(reply, marker.end()):
                key = "" if _next(key, texts) in _KEY_LINE.findall(reply, marker.end()) else key
        if key is not None or (marker["colon"] and _REFUSAL.match(value)):
            return key if key in texts and key not in denied else None
        found = _LETTER.match(value)
        if found and found["denied"] and found["letter"].isupper():
            denied.add(found["letter"])
    keys = [_by_line(line, texts) for line in reply.splitlines() if line.strip()]
    if keys and keys[0] and {*keys} <= {keys[0], None}:
        return keys[0]
    return _by_text(reply, texts)
