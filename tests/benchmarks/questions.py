"""Generated multiple-choice questions of realistic length, the same for all that are measured."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

LETTERS = "ABCD"
_WHO = ("man", "woman", "teacher", "farmer", "nurse", "student", "pianist", "retired engineer")
_WHAT = (
    "fatigue on exertion",
    "a dull ache in the right flank",
    "numbness of both feet",
    "a dry cough at night",
    "recurrent nosebleeds",
    "swelling of the ankles",
    "blurred vision",
    "an itching rash on the forearms",
    "cramps after meals",
    "palpitations at rest",
)
_FINDINGS = (  # each with the range of its number
    ("Blood pressure is {} mm Hg systolic.", 85, 190),
    ("The pulse is {}/min and regular.", 48, 130),
    ("Serum sodium is {} mEq/L.", 122, 149),
    ("A murmur of grade {} is heard at the apex.", 1, 5),
    ("The liver edge is felt {} mm below the ribs.", 5, 60),
    ("Ferritin is {} ng/mL.", 4, 900),
    ("The reflexes are brisk in {} of four limbs.", 1, 4),
    ("There were {} similar episodes in the past year.", 2, 12),
)
_CHOICES = (
    "Observation and review after {} weeks",
    "Magnetic resonance imaging with contrast, repeated after {} weeks",
    "A trial of oral treatment for {} weeks",
    "Referral for biopsy within {} days",
    "Genetic testing of {} relatives",
    "Surgical exploration within {} hours",
)


def question(number: int, length: int) -> dict[str, Any]:
    """A canonical row whose text has about `length` characters. Every fourth answer is B."""
    chance = random.Random(number)
    text = f"A {chance.randint(18, 90)}-year-old {chance.choice(_WHO)} reports "
    text += f"{chance.choice(_WHAT)} and {chance.choice(_WHAT)} for {chance.randint(2, 40)} days."
    last = " Which of the following is the most appropriate next step?"
    while len(text) + len(last) < length:
        finding, low, high = chance.choice(_FINDINGS)
        text += " " + finding.format(chance.randint(low, high))
    choices = chance.sample(_CHOICES, len(LETTERS))
    options = {
        letter: choice.format(chance.randint(2, 12))
        for letter, choice in zip(LETTERS, choices, strict=True)
    }
    answer = LETTERS[number % len(LETTERS)]
    return {"id": f"q{number}", "question": text + last, "options": options, "answer": answer}


def questions(count: int, length: int) -> Iterator[dict[str, Any]]:
    return (question(number, length) for number in range(count))


def write(path: Path, count: int, length: int) -> Path:
    """An IN.jsonl of `count` questions."""
    with path.open("wb") as file:
        for row in questions(count, length):
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    return path
