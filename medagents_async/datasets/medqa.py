"""MedQA: four or five options, published as JSON lines."""

from __future__ import annotations

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, plain
from medagents_async.datasets.sources import Hub, Record


@dataset(
    "medqa",
    files="questions/US/test.jsonl (5 options) or US/4_options/phrases_no_exclude_test.jsonl: "
    "question, answer, options, meta_info, answer_idx",
    published="github.com/jind11/MedQA",
    licence="MIT",
    hub=Hub("GBaker/MedQA-USMLE-4-options", "test"),
    patterns=("*.jsonl",),
)
def medqa(record: Record) -> Draft:
    """MedQA (USMLE, English), 4 or 5 options.

    The two files have the same questions in the same order, and the letters of the answers
    differ: a row's id names its file. Texts stay as they are, with their outer white space.
    """
    return plain(record, subject=record.fields.get("meta_info"))
