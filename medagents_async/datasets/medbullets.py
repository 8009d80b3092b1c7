"""MedBullets: options in columns, the answer as a letter."""

from __future__ import annotations

from pydantic import BaseModel

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, read, spread
from medagents_async.datasets.sources import Hub, Record


class Published(BaseModel):
    """What is not an option. The hub's copy has the letter in `answer`."""

    question: str
    answer: str
    answer_idx: str | None = None
    explanation: str | None = None
    link: str | None = None
    field: str | None = None
    options: dict[str, str | None] | None = None


@dataset(
    "medbullets",
    files="medbullets/medbullets_op4.csv or _op5.csv (also as .json): "
    "question, opa … ope, answer_idx, answer, explanation, link",
    published="github.com/HanjieChen/ChallengeClinicalQA",
    licence="not clear",
    hub=Hub("mkieffer/Medbullets", "op5_test"),
    patterns=("medbullets_op*.csv",),
    marks=frozenset({"opa", "answer_idx"}),
)
def medbullets(record: Record) -> Draft:
    """MedBullets (USMLE step 2 and 3), 4 or 5 options.

    As in MedQA, the letters of the two files differ: a row's id names its file.
    """
    row = read(Published, record)
    given = (row.options or spread(record.fields)).items()
    return Draft(
        question=row.question,
        options={letter: text for letter, text in given if text},
        answer=row.answer_idx or row.answer,
        subject=row.field,
        explanation=row.explanation,
        meta={"link": row.link},
    )
