"""MedAgentsBench: the questions of other sets that few models get right."""

from __future__ import annotations

import dataclasses
import re

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, plain
from medagents_async.datasets.medxpertqa import unlisted
from medagents_async.datasets.pubmedqa import OPTIONS
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Hub, Record

SETS = ("MedQA", "PubMedQA", "MedMCQA", "MMLU", "MMLU-Pro", "MedXpertQA-R", "MedXpertQA-U")


@dataset(
    "medagentsbench",
    files="<set>_test_hard.jsonl: realidx, question, options, answer_idx, answer, …",
    published="github.com/gersteinlab/medagents-benchmark",
    licence="MIT and Apache-2.0 (repositories); MIT (the sets medqa, pubmedqa, medmcqa, mmlu, "
    "mmlu-pro, medxpertqa); those of other sets have no clear or a non-commercial licence",
    hub=Hub("super-dainiu/medagents-benchmark", "test_hard", SETS),
    patterns=("*_test_hard.jsonl",),
)
def medagentsbench(record: Record) -> Draft:
    """MedAgentsBench's hard sets.

    `realidx` is unique inside a file only, so the id is set and realidx; the set is the subject.
    """
    found = re.fullmatch(r"(.+?)_(?:test|train|val).*", record.source)
    if found is None:
        raise BadRow("the file's name does not begin with <set>_test: which set is it?")
    name = found[1].casefold()
    draft = plain(record, subject=name, meta={"subject": record.fields.get("subject")})
    if draft.id is None:
        raise BadRow("realidx: missing")
    draft = dataclasses.replace(
        draft,
        id=f"{name}-{draft.id}",
        explanation=record.fields.get("answer_rationale"),
    )
    if draft.options == OPTIONS:
        return _with_context(draft)
    return unlisted(draft) if name.startswith("medxpertqa") else draft


def _with_context(draft: Draft) -> Draft:
    """PubMedQA's abstract and question apart, as its own files have them."""
    context, _, question = draft.question.rpartition("\n")
    if not context:
        return draft
    mended = ("context taken out of the question",)
    return dataclasses.replace(draft, context=context, question=question, mended=mended)
