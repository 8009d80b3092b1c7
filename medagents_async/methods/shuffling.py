"""Options in another order, under the same letters in the same places."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from medagents_async.types import Question

_OTHERS = re.compile(  # "all of the above", "both these", "option B", "both AB"
    r"""(?ix) \b(?:all|any|both|each|either|neither|none|one|some|two|three)\s
        (?:of\s)?(?:the\s)?(?:above|below|others|following|foregoing|preceding|previous
        |mentioned|these|those|them|options|choices|answers)\b
    | \b(?:options?|choices?|answers?)\s\(?(?-i:[A-Z\d])\b | \bboth\s(?-i:[A-Z]{2})\b"""
)
#: An option of these words and letters alone, at least one of them a letter, is about options.
_BETWEEN_LETTERS = set(
    "all and answer answers are both but choice choices correct either false incorrect is neither "
    "nor not only option options or right statement statements true wrong".split()
)
_ALONE = {"all", "any", "both", "either", "neither", "none"}


def shuffled(question: Question, number: int) -> dict[str, str]:
    """Shown letter to the question's own: order `number` of its options, always the same."""
    letters = list(question.options)
    dice = random.Random(f"{question.id}/{number}")  # noqa: S311
    return dict(zip(letters, dice.sample(letters, len(letters)), strict=True))


def unshuffled(question: Question) -> dict[str, str]:
    """The order that the question has, in the same shape."""
    return {letter: letter for letter in question.options}


def presented(question: Question, order: Mapping[str, str]) -> dict[str, str]:
    """Shown letter to the text that it has in this order."""
    return {shown: question.options[own] for shown, own in order.items()}


def fixed_by(question: Question) -> str | None:
    """Why the options must keep their order, None where they need not.

    They must where one of them speaks of others or of letters, and where the question's own text
    lists them.
    """
    letters = {letter.casefold() for letter in question.options}
    for letter, text in question.options.items():
        words = set(re.findall(r"\w+", text.casefold()))
        about_letters = words & letters and words <= letters | _BETWEEN_LETTERS
        if (
            about_letters
            or words & _ALONE == words != set()
            or _OTHERS.search(" ".join(text.split()))
        ):
            return f"option {letter} speaks of others: {text}"
        listed = rf"(?<!\w){letter}[).:\]]\s*{re.escape(text)}"
        if text.strip() and re.search(listed, question.text):
            return "the question lists its options"
    return None
