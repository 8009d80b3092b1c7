"""MedXpertQA's text part: ten options, listed once more in the question."""

from __future__ import annotations

import dataclasses

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, plain
from medagents_async.datasets.rows import without_choices
from medagents_async.datasets.sources import Hub, Record


@dataset(
    "medxpertqa",
    files="Text/test.jsonl: id, question, options (a list of letter and content, or by letter), "
    "label, medical_task, body_system, question_type; or realidx, question, options, answer_idx",
    published="github.com/TsinghuaC3I/MedXpertQA",
    licence="MIT",
    hub=Hub("TsinghuaC3I/MedXpertQA", "test", ("Text",)),
    patterns=("*.jsonl",),
)
def medxpertqa(record: Record) -> Draft:
    """MedXpertQA Text: 10 options, reasoning and understanding.

    The choices at the end of a question are taken out: prompts list the options themselves.
    """
    fields = record.fields
    if fields.get("images"):
        raise LeftOut("of the multimodal part")
    kind = fields.get("question_type") or record.source.partition("_")[0].capitalize()
    return unlisted(
        plain(
            record,
            subject=kind if kind in ("Reasoning", "Understanding") else None,
            meta={name: fields.get(name) for name in ("medical_task", "body_system")},
        )
    )


def unlisted(draft: Draft) -> Draft:
    """The draft without the choices at the end of its question."""
    question, choices = without_choices(draft.question, draft.options)
    if choices is None:
        return draft
    mended = ["choices taken out of the question"]
    if choices != " ".join(f"({letter}) {text}" for letter, text in draft.options.items()):
        mended.append("these choices were not the options; the options hold")
    return dataclasses.replace(draft, question=question, mended=(*draft.mended, *mended))
