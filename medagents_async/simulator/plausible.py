"""The default model: knows no medicine, answers in the right shape.

A reply is a function of the messages, the seed and the response constraints alone, never of
time, order or chance, so runs against it must agree however they are scheduled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import orjson

from .script import Reply, Request

T = TypeVar("T")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


SPECIALTIES = _words(
    "Cardiology|Pulmonology|Gastroenterology|Nephrology|Endocrinology|Hematology|Oncology|"
    "Neurology|Psychiatry|Infectious Disease|Rheumatology|Dermatology|Ophthalmology|"
    "Otolaryngology|Orthopedics|Urology|Obstetrics and Gynecology|Pediatrics|Geriatrics|"
    "Emergency Medicine|Critical Care|Anesthesiology|General Surgery|Vascular Surgery|Radiology|"
    "Pathology|Clinical Pharmacology|Immunology|Medical Genetics|Preventive Medicine"
)

_SIGNS = _words(
    "exertional dyspnea|a low-grade fever|progressive fatigue|pleuritic chest pain|"
    "bilateral ankle edema|a new systolic murmur|postural hypotension|a macular rash|"
    "right upper quadrant tenderness|unintended weight loss|nocturnal cough|proximal weakness"
)
_CONDITIONS = _words(
    "an inflammatory process|chronic volume overload|a primary endocrine disorder|"
    "an obstructive lesion|autoimmune injury|drug-induced toxicity|early sepsis|"
    "a demyelinating disease|thromboembolic disease|a paraneoplastic syndrome"
)
_TESTS = _words(
    "a complete blood count|serum electrolytes|an electrocardiogram|contrast-enhanced imaging|"
    "a tissue biopsy|urinalysis with microscopy|arterial blood gas analysis|thyroid studies|"
    "a peripheral smear|echocardiography"
)
_SENTENCES = (
    "The combination of {sign} and {other} points towards {condition}.",
    "In this setting, {test} would help to separate {condition} from its closest mimics.",
    "The time course is typical of {condition}, although {sign} is not specific for it.",
    "Careful attention should be paid to {sign}, which is often the earliest finding.",
    "Pathophysiologically, {condition} explains {sign} through impaired tissue perfusion.",
    "Since {other} is absent in most patients with {condition}, this feature deserves weight.",
    "Management starts with stabilization, followed by {test} and treatment of the cause.",
    "Guidelines recommend {test} whenever {sign} occurs together with {other}.",
    "A history of {sign} raises the probability of {condition} considerably.",
    "The choices that do not account for {sign} can be ranked lower on physiological grounds.",
    "If {test} is unremarkable, {condition} becomes much less likely.",
    "Age, medication and comorbidity modify the risk of {condition} in this patient.",
)
_NUMBERS = {
    word: n for n, word in enumerate(_words("two|three|four|five|six|seven|eight|nine"), start=2)
}
_COUNT = re.compile(
    rf"\b([2-9]|{'|'.join(_NUMBERS)})\s+(?:[\w-]+\s+){{0,4}}?"
    r"(?:sub)?(?:fields|domains|special[a-z]+|disciplines|areas|experts|agents|members)\b",
    re.IGNORECASE,
)
_OPTION_LINE = re.compile(r"^[ \t>*\-]*\(?([A-Z])[).:][ \t]+\S", re.MULTILINE)
_OPTION_KEY = re.compile(r"""['"]([A-Z])['"]:""")
_OPTION_INLINE = re.compile(r"(?:^|[\s(])\(?([A-Z])[).]\s")
_MARKERS = (  # what a prompt asks for; the last one in the text is the task, the rest material
    ("fields", re.compile(r"Medical Field:")),
    ("report", re.compile(r"Key Knowledge:|Total Analysis:")),
    ("vote", re.compile(r"\bYES\b\W+(?:\w+\W+){0,3}?NO\b", re.IGNORECASE)),
    ("option", re.compile(r"Option:")),
    ("ranking", re.compile(r"Ranking:")),
)
_STAGES = {
    "recruit_question": "fields",
    "recruit_option": "fields",
    "summarise": "report",
    "revise": "report",
    "vote": "vote",
    "decide": "option",
    "triage": "triage",
} | dict.fromkeys(("analyse_question", "analyse_option", "case", "advise"), "prose")
_ROOM_FOR_PROSE = 100  # tokens: below it, only the final line is asked for
_YES_PERCENT = 85


class _Dice:
    """A small generator whose numbers are the same on every Python, unlike `random`'s."""

    def __init__(self, request: Request) -> None:
        body = request.body
        content = orjson.dumps([body.get("messages"), body.get("seed"), request.choice])
        self._state = int.from_bytes(blake2b(content, digest_size=8).digest(), "big")

    def roll(self, sides: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % sides

    def pick(self, items: Sequence[T]) -> T:
        return items[self.roll(len(items))]

    def draw(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different ones (all, if there are fewer), in the order drawn."""
        left = list(items)
        return [left.pop(self.roll(len(left))) for _ in range(min(count, len(left)))]


def plausible(request: Request) -> Reply:
    """Say what a model with no knowledge and good manners would.

    The stage name decides on the shape, else the last format marker in the user's text, else it
    is prose of 120 to 250 words. Where the body constrains the reply (`structured_outputs` with
    choice or json, `response_format` with json_schema), the constraint decides.
    """
    dice = _Dice(request)
    constrained = _constrained(request, dice)
    if constrained is not None:
        return Reply(constrained)
    kind = _STAGES.get(request.stage) or _asked_for(request.user, request.stage)
    match kind:
        case "fields":
            text = "Medical Field: " + " | ".join(_fields(request, dice))
        case "report":
            knowledge = _prose(dice, 40, 80)
            text = f"Key Knowledge: {knowledge}\nTotal Analysis: {_prose(dice, 120, 220)}"
        case "vote":
            text = _vote(dice)
        case "option":
            text = f"Option: {dice.pick(_letters(request.text))}"
        case "ranking":
            letters = _letters(request.text)
            text = "Ranking: " + " > ".join(dice.draw(letters, len(letters)))
        case "triage":
            text = _triage(request.user, dice)
        case "experts":
            fields = enumerate(_fields(request, dice), start=1)
            text = "\n".join(f"{n}. {field} - {_prose(dice, 8, 12)}" for n, field in fields)
        case _:
            text = _prose(dice, 120, 250)
    reasoned = kind in ("option", "ranking") and request.stage != "decide"
    if reasoned and _room(request) >= _ROOM_FOR_PROSE:
        text = f"{_prose(dice, 40, 120)}\n\n{text}"
    return Reply(text)


def _asked_for(text: str, stage: str) -> str:
    """Find the kind of the marker that comes last in `text`."""
    last = {
        kind: max((m.start() for m in marker.finditer(text)), default=-1)
        for kind, marker in _MARKERS
    }
    kind = max(last, key=last.__getitem__)
    if last[kind] >= 0:
        return kind
    return {"recruit": "experts", "answer": "option", "rank": "ranking"}.get(stage, "prose")


def _fields(request: Request, dice: _Dice) -> list[str]:
    asked = _COUNT.findall(request.user) or _COUNT.findall(request.system)
    if asked:
        count = _NUMBERS.get(asked[-1].lower()) or int(asked[-1])
    else:
        count = 2 if request.stage == "recruit_option" else 5
    return dice.draw(SPECIALTIES, count)


def _letters(text: str) -> list[str]:
    """Find the letters of the options in `text`, in order; A to D where there are none."""
    for pattern in (_OPTION_LINE, _OPTION_KEY, _OPTION_INLINE):
        letters = sorted(set(pattern.findall(text)))
        if len(letters) > 1:
            # Other lists may have letters too: the options are those that go on from A.
            run = [x for i, x in enumerate(letters) if ord(x) == ord("A") + i]
            return run if len(run) > 1 else letters
    return list("ABCD")


def _vote(dice: _Dice) -> str:
    return "YES" if dice.roll(100) < _YES_PERCENT else "NO"


def _triage(text: str, dice: _Dice) -> str:
    for levels in (("low", "moderate", "high"), ("basic", "intermediate", "advanced")):
        if all(re.search(rf"\b{level}\b", text, re.IGNORECASE) for level in levels):
            return f"Complexity: {dice.pick(levels)}"
    return f"Complexity: {dice.pick(('low', 'moderate', 'high'))}"


def _prose(dice: _Dice, low: int, high: int) -> str:
    """Sentences of `low` to `high` words in all, give or take the last sentence."""
    wanted = low + dice.roll(high - low)
    sentences: list[str] = []
    words = 0
    while words < wanted:
        sign, other = dice.draw(_SIGNS, 2)
        sentence = dice.pick(_SENTENCES).format(
            sign=sign, other=other, condition=dice.pick(_CONDITIONS), test=dice.pick(_TESTS)
        )
        sentences.append(sentence)
        words += sentence.count(" ") + 1
    return " ".join(sentences)


def _room(request: Request) -> int:
    limit = request.body.get("max_completion_tokens") or request.body.get("max_tokens")
    return limit if isinstance(limit, int) else _ROOM_FOR_PROSE


def _constrained(request: Request, dice: _Dice) -> str | None:
    """Reply as the body's constraint demands; None without one that is understood."""
    outputs = request.body.get("structured_outputs") or {}
    form = request.body.get("response_format") or {}
    choices = outputs.get("choice")
    if choices:
        by_case = {str(choice).upper(): str(choice) for choice in choices}
        return by_case[_vote(dice) if by_case.keys() == {"YES", "NO"} else dice.pick([*by_case])]
    schema = outputs.get("json")
    if form.get("type") == "json_schema":
        schema = (form.get("json_schema") or {}).get("schema")
    if isinstance(schema, str):
        schema = orjson.loads(schema)
    if form.get("type") == "json_object" and schema is None:
        schema = {"properties": {"analysis": {}, "option": {"enum": _letters(request.text)}}}
    return None if schema is None else orjson.dumps(_instance(schema, dice)).decode()


def _instance(schema: dict[str, Any], dice: _Dice) -> object:
    """Make a value for a plain JSON schema: enum, object, array, numbers, boolean, string."""
    if schema.get("enum"):
        return dice.pick(schema["enum"])
    match schema.get("type", "object" if "properties" in schema else "string"):
        case "object":
            properties = schema.get("properties", {})
            return {name: _instance(value, dice) for name, value in properties.items()}
        case "array":
            count = max(schema.get("minItems", 1), min(2, schema.get("maxItems", 2)))
            return [_instance(schema.get("items", {}), dice) for _ in range(count)]
        case "integer" | "number":
            low = schema.get("minimum", 0)
            return low + dice.roll(int(schema.get("maximum", low + 9) - low) + 1)
        case "boolean":
            return dice.roll(2) == 1
        case _:
            return _prose(dice, 8, 12)[: schema.get("maxLength")]
