"""MMLU's six medical subjects, in the shapes of four publishers."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, model_validator

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, lettered, plain, read
from medagents_async.datasets.rows import LETTERS
from medagents_async.datasets.sources import Hub, Record

SUBJECTS = (
    "anatomy",
    "clinical_knowledge",
    "college_biology",
    "college_medicine",
    "medical_genetics",
    "professional_medicine",
)


class Published(BaseModel):
    """A record without options by letter: four columns, or `choices`; a letter or 0 to 3."""

    question: str
    choices: list[str]
    answer: str | int

    @model_validator(mode="before")
    @classmethod
    def _columns(cls, fields: dict[str, Any]) -> dict[str, Any]:
        names = LETTERS[:4] if "A" in fields else [f"choice{place}" for place in range(4)]
        columns = [fields[name] for name in names if name in fields]
        return {"choices": columns, **fields} if len(columns) == len(names) else fields

    @property
    def letter(self) -> str:
        """The answer's letter; what is none is refused with the row."""
        numbers = {str(place): LETTERS[place] for place in range(4)}
        return numbers.get(str(self.answer), str(self.answer))


@dataset(
    "mmlu",
    files="<subject>_test.csv without a header (question, four options, letter), also with one "
    "and answers 0 to 3; JSON lines with options and answer_idx",
    published="github.com/hendrycks/test",
    licence="MIT",
    hub=Hub("cais/mmlu", "test", SUBJECTS),
    patterns=("*_test.csv",),
    columns=("question", "A", "B", "C", "D", "answer"),
    marks=frozenset({"choices", "subject"}),
)
def mmlu(record: Record) -> Draft:
    """MMLU: anatomy, clinical knowledge, college biology and medicine, genetics, professional.

    Questions that stand in two subjects stay, as in published results: ids are file and row.
    """
    fields = record.fields
    subject = fields.get("subject") or re.sub(r"_(test|dev|val|validation)$", "", record.source)
    if subject not in SUBJECTS:
        raise LeftOut(f"not a medical subject: {subject}")
    if "options" in fields:
        return plain(record, subject=subject)
    row = read(Published, record)
    return Draft(
        question=row.question, options=lettered(row.choices), answer=row.letter, subject=subject
    )
