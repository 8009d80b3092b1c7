"""Whether a reply agrees or objects."""

from __future__ import annotations

import re

from medagents_async.parsing.thinking import visible

_EITHER = re.compile(
    r"(?i)\b(yes|no)\W{0,5}(?:(?:or|and|[/|])\W{0,5}|,\s(?=\w+\W{0,9}\Z))(?!\1)(?:yes|no)\b"
)
_VOTE = re.compile(r"(?i)(?<![\w-])(?:(yes)|no)(?![\w-]|['’]\w|\.?[ \t]*\d)")
_NOT_ANY = re.compile(  # "no revisions", "NO is a vasodilator"; but "No the dose is wrong" votes
    r"(?i)[*_\"'”’`]{0,4}[ \t]+[*_]{0,2}"
    r"(?!(?:I|we|it|this|that|the|there|because|as|since|my)\b)\w"
)
_ASKED = re.compile(  # "my vote is", "I vote", "Final decision:"
    r"(?i)(?:\bI\s+(?:would\s+)?(?:vote|say)(?:\s+for)?|\b(?:vote|answer|verdict|decision|opinion"
    r"|response|agree)(?:\s+(?:is|would\s+be)|[^.,:\n]{0,40}:))[\s:*_\"'“(\[]*$"
)
_OPENS = re.compile(r"(?:[.!?:;\n–—]|[.,;]\s*(?:so|thus|hence|therefore),?)[\s*_\"'“(\[-]*$")
_CLOSES = re.compile(r"[*_\"'”)\]}]*(?:[.!,;:\n–—]|\s+[-–—]|\s*\Z)")
_MARKS = " \t\n*_`\"'“”‘’[](){}<>$\\#.:-–—•"


def _is_vote(text: str, word: re.Match[str]) -> bool:
    before = text[max(0, word.start() - 120) : word.start()]
    after = text[word.end() : word.end() + 120]
    if after.lstrip(_MARKS).startswith("?") or (not word[1] and _NOT_ANY.match(after)):
        return False
    line = before.rpartition("\n")[2] + after.partition("\n")[0]
    if not before.strip(_MARKS) or not line.strip(_MARKS) or _ASKED.search(before):
        return True
    framed = before.endswith(("[", "{", "**")) and after.startswith(("]", "}", "*", ",", "."))
    sentence = _OPENS.search(before) and _CLOSES.match(after)
    return word[0].isupper() and (framed or sentence is not None)


def vote(text: str) -> bool | None:
    """Return True for yes, False for no, None where the reply is unclear.

    A whole word "yes" or "no" is a vote, in any case, where it opens the reply, stands alone on a
    line, or follows "vote:", "my answer is", "I vote" and the like; in capitals also in bold or
    brackets, or as a sentence or its opening. "No" before a noun ("no revisions needed") is none,
    nor are "yes or no" and "YES?". Votes that contradict each other are unclear.
    """
    said = _EITHER.sub(" ", visible(text)[0])
    votes = {bool(word[1]) for word in _VOTE.finditer(said) if _is_vote(said, word)}
    return votes.pop() if len(votes) == 1 else None
