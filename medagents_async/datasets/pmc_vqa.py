"""PMC-VQA: figures out of articles, four options."""

from __future__ import annotations

import re

from pydantic import BaseModel, Field

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, lettered, read
from medagents_async.datasets.path_vqa import pictures
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Hub, Record


class Published(BaseModel):
    """A record. The letter is in `Answer_label` or, in version 2, in `Answer`.

    The caption, which version 2 has, may tell the answer and is left out.
    """

    figure: str = Field(alias="Figure_path")
    question: str = Field(alias="Question")
    a: str = Field(alias="Choice A")
    b: str = Field(alias="Choice B")
    c: str = Field(alias="Choice C")
    d: str = Field(alias="Choice D")
    answer: str = Field(alias="Answer")
    label: str | None = Field(None, alias="Answer_label")


@dataset(
    "pmc-vqa",
    files="test_clean.csv, test.csv or test_2.csv: Figure_path, Question, Choice A … Choice D, "
    "Answer, Answer_label; the figures' folder as --images",
    published="github.com/xiaoman-zhang/PMC-VQA; RadGenome/PMC-VQA on the Hugging Face hub",
    hub=Hub("RadGenome/PMC-VQA", "test"),
    study=pictures,
    patterns=("test_clean.csv",),
)
def pmc_vqa(record: Record, where: Pictures) -> Draft:
    """PMC-VQA, 4 options; the letters inside the options' texts are dropped."""
    row = read(Published, record)
    published = [row.a, row.b, row.c, row.d]
    texts = [
        re.sub(rf"^\s*{letter}\s*[:.)]\s*", "", text).strip()
        for letter, text in zip("ABCD", published, strict=True)
    ]
    options = lettered(texts)
    said = (row.label or row.answer).strip()
    if said not in options:
        meant = [letter for letter, text in options.items() if text == row.answer.strip()]
        if len(meant) != 1:
            raise BadRow(f"Answer: {row.answer!r} is the text of {len(meant)} options")
        said = meant[0]
    return Draft(
        question=row.question.strip(),
        options=options,
        answer=said,
        images=(where.named(record, row.figure),),
        mended=("letters dropped from options",) if texts != published else (),
    )
