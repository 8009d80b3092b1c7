"""MIMIC-CXR-VQA: questions made from templates about chest radiographs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import YES_NO, Draft, LeftOut, Making, lettered, read
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Record, Sources


class Published(BaseModel):
    """A record. `answer` lists all that is right, maybe nothing."""

    idx: int
    image_path: str
    question: str
    semantic_type: Literal["verify", "choose", "query"]
    content_type: str
    template_arguments: dict[str, dict[str, str]] = {}
    answer: list[str]


@dataclass(frozen=True)
class Known:
    """The answers to questions of each content type, and how to make options."""

    answers: Mapping[str, set[str]]
    making: Making


def answers(sources: Sources, making: Making) -> Known:
    """Which answers there are to be wrong."""
    found: dict[str, set[str]] = {}
    for record in sources.records():
        try:
            row = read(Published, record)
        except BadRow:
            continue  # which is told when its turn comes
        if row.semantic_type == "query":
            found.setdefault(row.content_type, set()).update(row.answer)
    return Known(found, making)


@dataset(
    "mimic-cxr-vqa",
    files="test.json (which the authors' script completes for those with access): idx, "
    "image_path, question, semantic_type, content_type, template_arguments, answer; the folder "
    "of MIMIC-CXR-JPG's images as --images",
    published="github.com/baeseongsu/mimic-cxr-vqa; physionet.org",
    study=answers,
    patterns=("test.json",),
)
def mimic_cxr_vqa(record: Record, known: Known) -> Draft:
    """MIMIC-CXR-VQA: yes or no; which of two; one answer among others of its kind."""
    row = read(Published, record)
    if row.semantic_type == "verify":
        options, answer = YES_NO, {"yes": "A", "no": "B"}.get("".join(row.answer), "")
    elif row.semantic_type == "choose":
        options, answer = _of_two(row)
    elif len(row.answer) == 1:
        others = known.answers[row.content_type]
        options, answer = known.making.options(row.answer[0], others, str(row.idx))
    else:
        raise LeftOut(f"a query with {'several answers' if row.answer else 'no answer'}")
    if answer not in options:
        raise BadRow(f"answer: {row.answer} answers no {row.semantic_type} question")
    return Draft(
        id=f"{record.source}-{row.idx}",
        question=row.question,
        options=options,
        answer=answer,
        subject=row.content_type,
        images=(known.making.pictures.named(record, row.image_path),),
        meta={"semantic_type": row.semantic_type},
    )


def _of_two(row: Published) -> tuple[dict[str, str], str]:
    """One, the other, both, neither: the template's two arguments."""
    pairs = [list(one.values()) for one in row.template_arguments.values() if len(one) == 2]
    if len(pairs) != 1 or not set(row.answer) <= set(pairs[0]):
        raise LeftOut("a choice that is not between two")
    right = [text in row.answer for text in pairs[0]]
    place = {(True, False): "A", (False, True): "B", (True, True): "C"}.get((right[0], right[1]))
    return lettered([*pairs[0], "both", "neither"]), place or "D"
