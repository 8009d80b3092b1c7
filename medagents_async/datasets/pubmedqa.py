"""PubMedQA's labelled part, with the abstract or without it, which is another task."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field, model_validator

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, Making, read
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Hub, Record, Sources
from medagents_async.errors import UsageError

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
LETTERS = {text: letter for letter, text in OPTIONS.items()}


class Published(BaseModel):
    """A record of ori_pqal.json, or of the hub. `long_answer` concludes: it tells the answer."""

    pubid: int | None = None
    question: str = Field(validation_alias=AliasChoices("QUESTION", "question"))
    contexts: list[str] = Field(validation_alias=AliasChoices("CONTEXTS", "contexts"))
    final_decision: Literal["yes", "no", "maybe"]
    long_answer: str = Field(validation_alias=AliasChoices("LONG_ANSWER", "long_answer"))
    year: str | None = Field(None, validation_alias=AliasChoices("YEAR", "year"))

    @model_validator(mode="before")
    @classmethod
    def _hub(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The hub's copy has the sections one level down."""
        context = fields.get("context")
        return {**context, **fields} if isinstance(context, dict) else fields


def labels_of_test(sources: Sources, _: Making) -> dict[str, str] | None:
    """PMID → label of the test half, where its file is among the sources."""
    labels: dict[str, str] | None = sources.document("*ground_truth*")
    missing = set(labels or ()) - {record.key for record in sources.records()}
    if missing:
        raise UsageError(
            f"test_ground_truth.json has {len(missing)} PMIDs that no source holds, such as "
            f"{min(missing)}: name ori_pqal.json, too"
        )
    return labels


FACTS: dict[str, Any] = {
    "files": "ori_pqal.json (PMID → QUESTION, CONTEXTS, final_decision, LONG_ANSWER, …); with "
    "test_ground_truth.json just its 500, the others are for examples",
    "published": "github.com/pubmedqa/pubmedqa",
    "licence": "MIT",
    "hub": Hub("qiaojin/PubMedQA", "train", ("pqa_labeled",)),
    "study": labels_of_test,
    "patterns": ("ori_pqal.json",),
    "aside": ("*ground_truth*.json",),
}


@dataset("pubmedqa", marks=frozenset({"pubid", "final_decision"}), **FACTS)
def pubmedqa(record: Record, test: dict[str, str] | None) -> Draft:
    """PubMedQA PQA-L with its abstract: yes, no, maybe."""
    row = read(Published, record)
    if test is not None and record.key not in test:
        raise LeftOut("not in the test half")
    if test is not None and test[record.key or ""] != row.final_decision:
        raise BadRow(f"the label is {row.final_decision!r}, and another one in the test's file")
    name = record.key or (None if row.pubid is None else str(row.pubid))
    return Draft(
        id=name,
        question=row.question,
        context="\n".join(row.contexts),
        options=OPTIONS,
        answer=LETTERS[row.final_decision],
        explanation=row.long_answer,
        meta={"year": row.year},
    )


@dataset("pubmedqa-question-only", **FACTS)
def question_only(record: Record, test: dict[str, str] | None) -> Draft:
    """PubMedQA PQA-L without the abstract (as MIRAGE's "PubMedQA*"): another, harder task."""
    draft = pubmedqa(record, test)
    return dataclasses.replace(draft, context=None, id=f"{draft.id}-question-only")
