"""The default model: knows no medicine, answers in the right shape.

A reply is a function of the messages, the seed and the choice constraint alone, never of time,
order or chance, so runs against it must agree however they are scheduled.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import orjson

from medagents_async.simulator import tokens
from medagents_async.simulator.script import Reply, Request
from medagents_async.simulator.structured import instance

SPECIALTIES = (
    "Cardiology|Pulmonology|Gastroenterology|Nephrology|Endocrinology|Hematology|Oncology|"
    "Neurology|Psychiatry|Infectious Disease|Rheumatology|Dermatology|Ophthalmology|Urology|"
    "Obstetrics and Gynecology|Pediatrics|Geriatrics|Emergency Medicine|General Surgery|Radiology"
).split("|")
_SENTENCES = (
    "The combination of exertional dyspnea and ankle edema points towards volume overload.",
    "The time course is typical of an inflammatory process, although the fever is unspecific.",
    "Impaired tissue perfusion would explain both the fatigue and the postural hypotension.",
    "Since weight loss is absent in most patients with this disorder, it deserves weight here.",
    "Guidelines recommend contrast-enhanced imaging whenever pain and a new murmur coincide.",
    "The choices that do not account for the rash can be ranked lower on physiological grounds.",
    "Age, medication and comorbidity raise the risk of thromboembolic disease in this patient.",
    "Management starts with stabilization, then further tests and treatment of the cause.",
)
_SENTENCE_TOKENS = 16.75  # on average
#: What `realistic` writes at a stage, from … to, in tokens: a chat model of some 8B parameters,
#: left to itself, in MedAgents' stages. Others are as long as `plausible` makes them.
LENGTHS: Mapping[str, tuple[int, int]] = {
    "analyse_question": (220, 380),
    "analyse_option": (220, 380),
    "summarise": (380, 520),
    "revise": (380, 520),
    "advise": (90, 190),
    "decide": (10, 150),
}
_COUNT = re.compile(
    r"\b(\d\d?) (?:[\w-]+ ){0,4}?(?:sub)?(?:fields|domains|specialists|experts|agents)\b"
)
_ROOM_FOR_REASONS = 100  # tokens
_OPTION = re.compile(r"^\W{0,3}([A-Z])[).:] ", re.MULTILINE)


def plausible(request: Request) -> Reply:
    """Say what a model with no knowledge and good manners would.

    A choice or schema that constrains the reply decides, else the stage; in any other, it is
    prose, which ends in an option if the user's text asks for one.
    """
    dice = Random(_content(request))  # noqa: S311
    return Reply(_constrained(request, dice) or _text(request, dice))


def realistic(request: Request) -> Reply:
    """Say the same at a real model's length (`LENGTHS`), the end-of-text token included."""
    # `Random` takes five times as long to digest a long prompt itself.
    digest = hashlib.blake2b(_content(request), digest_size=8).digest()
    dice = Random(int.from_bytes(digest))  # noqa: S311
    text = _constrained(request, dice)
    if text is None:
        span = LENGTHS.get(request.stage)
        length = round(dice.uniform(*span) / _SENTENCE_TOKENS) if span else None
        text = _text(request, dice, length)
    return Reply(text, completion_tokens=tokens.count(tokens.encode(text)) + 1)


def _content(request: Request) -> bytes:
    """What a reply depends on."""
    content = [request.body.get("messages"), request.body.get("seed")]
    if request.sample:
        content.append(request.sample)
    return orjson.dumps(content)


def _constrained(request: Request, dice: Random) -> str | None:
    constraints: Mapping[str, Any] = request.body.get("structured_outputs") or {}
    wanted: Mapping[str, Any] = request.body.get("response_format") or {}
    if choice := constraints.get("choice"):
        return _choose(choice, dice)
    schema = constraints.get("json") or wanted.get("json_schema", {}).get("schema")
    if wanted.get("type") == "json_object":
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    if schema is None:
        return None
    schema = orjson.loads(schema) if isinstance(schema, str) else schema
    return orjson.dumps(instance(schema, dice)).decode()


def _text(request: Request, dice: Random, length: int | None = None) -> str:
    """What the stage wants; where it wants prose, of `length` sentences."""
    match request.stage:
        case "recruit_question" | "recruit_option":
            return f"Medical Field: {' | '.join(_specialties(request, dice))}"
        case "recruit":
            experts = enumerate(_specialties(request, dice), start=1)
            return "\n".join(f"{n}. {expert} - {_prose(1, dice)}" for n, expert in experts)
        case "summarise" | "revise":
            knowledge = _prose(length // 4 if length else 5, dice)
            analysis = _prose(length - length // 4 if length else 13, dice)
            return f"Key Knowledge: {knowledge}\nTotal Analysis: {analysis}"
        case "vote":
            return _choose(("YES", "NO"), dice)
        case "decide":
            reasons = f"{_prose(length, dice)}\n\n" if length else ""
            return f"{reasons}Option: {dice.choice(_letters(request))}"
        case "rank":
            letters = _letters(request)
            return f"Ranking: {' > '.join(dice.sample(letters, len(letters)))}"
        case "triage":
            return f"Complexity: {dice.choice(('low', 'moderate', 'high'))}"
    if "Option:" not in request.user:
        return _prose(length or dice.randint(10, 19), dice)
    roomy = (request.body.get("max_tokens") or _ROOM_FOR_REASONS) >= _ROOM_FOR_REASONS
    reasons = f"{_prose(5, dice)}\n\n" if roomy else ""
    return f"{reasons}Option: {dice.choice(_letters(request))}"


def _choose(choices: Sequence[str], dice: Random) -> str:
    """One of `choices`; a yes is likelier, so that consultations come to an end."""
    weights = [6 if str(choice).upper() == "YES" else 1 for choice in choices]
    return str(dice.choices(choices, weights)[0])


def _specialties(request: Request, dice: Random) -> list[str]:
    """As many as the prompt asks for."""
    asked = _COUNT.findall(request.user) or _COUNT.findall(request.system) or ["5"]
    return dice.sample(SPECIALTIES, min(int(asked[-1]), len(SPECIALTIES)))


def _letters(request: Request) -> list[str]:
    """The letters that begin lines and go on from A; A to D where there are none."""
    found = sorted(set(_OPTION.findall(request.text)))
    return [letter for n, letter in enumerate(found) if ord(letter) == ord("A") + n] or [*"ABCD"]


def _prose(sentences: int, dice: Random) -> str:
    """So many sentences, of some 13 words each."""
    return " ".join(dice.choices(_SENTENCES, k=sentences))
