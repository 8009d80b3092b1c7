"""MMLU-Pro's health category: three to ten options."""

from __future__ import annotations

import dataclasses

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, LeftOut, plain
from medagents_async.datasets.sources import Hub, Record

BLANK = "N/A"


@dataset(
    "mmlu-pro",
    files="test.jsonl: realidx or question_id, question, options (by letter or as a list), "
    "answer_idx or answer and answer_index, category, src",
    published="TIGER-Lab/MMLU-Pro on the Hugging Face hub",
    licence="MIT (per its card on the hub)",
    hub=Hub("TIGER-Lab/MMLU-Pro", "test"),
)
def mmlu_pro(record: Record) -> Draft:
    """MMLU-Pro, category health: 3 to 10 options.

    Options "N/A" at the end fill a list up to ten and are dropped, as in the set's own code.
    """
    fields = record.fields
    category = fields.get("category", "health")
    if category != "health":
        raise LeftOut(f"category {category}")
    draft = plain(record, subject=category, meta={"src": fields.get("src")})
    options = dict(draft.options)
    while options and options[last := max(options)] == BLANK and last != draft.answer:
        del options[last]
    return dataclasses.replace(
        draft,
        options=options,
        mended=(f"options {BLANK!r} dropped",) if len(options) < len(draft.options) else (),
    )
