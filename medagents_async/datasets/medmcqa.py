"""MedMCQA: options in columns, the answer as a number whose base is not the same everywhere."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, Making, lettered, read
from medagents_async.datasets.rows import LETTERS, BadRow
from medagents_async.datasets.sources import Hub, Record, Sources
from medagents_async.errors import UsageError


class Published(BaseModel, strict=True):
    """A record. `exp` explains the answer; "multi" says where it comes from: one answer, too."""

    id: str | None = None
    question: str
    opa: str
    opb: str
    opc: str
    opd: str
    cop: int | None = None
    exp: str | None = None
    choice_type: Literal["single", "multi"] | None = None
    subject_name: str | None = None
    topic_name: str | None = None


def first_option(sources: Sources, _: Making) -> int:
    """What `cop` is for the first option: 1 as published, 0 in the hub's copy.

    The two agree on 1 to 3, so only a 0 or a 4 tells. Raises UsageError where neither is there.
    """
    found = (record.fields.get("cop") for record in sources.records())
    numbers = {number for number in found if isinstance(number, int)}
    if {0, 4} <= numbers:
        raise UsageError("cop is 0 and 4: these files do not count options alike")
    if 0 not in numbers and 4 not in numbers and numbers & {1, 2, 3}:
        raise UsageError(
            "cop is never 0 nor 4, so whether it counts from 0 or 1 cannot be told: "
            "convert the whole split"
        )
    return 0 if 0 in numbers else 1


@dataset(
    "medmcqa",
    files="dev.json (JSON lines; the public test split has no answers): "
    "id, question, opa … opd, cop, exp, choice_type, subject_name, topic_name",
    published="github.com/medmcqa/medmcqa",
    licence="MIT (its card on the hub says Apache-2.0)",
    hub=Hub("openlifescienceai/medmcqa", "validation"),
    study=first_option,
    marks=frozenset({"opa", "cop"}),
)
def medmcqa(record: Record, first: int) -> Draft:
    """MedMCQA (AIIMS and NEET PG), 4 options."""
    row = read(Published, record)
    if row.cop is None or row.cop == -1:
        raise LeftOut("no answer published")
    if not 0 <= row.cop - first < 4:
        raise BadRow(f"cop: {row.cop} is none of {first} to {first + 3}")
    return Draft(
        id=row.id,
        question=row.question,
        options=lettered([row.opa, row.opb, row.opc, row.opd]),
        answer=LETTERS[row.cop - first],
        subject=row.subject_name,
        explanation=row.exp,
        meta={"topic": row.topic_name, "choice_type": row.choice_type},
    )
