"""Path-VQA's questions to be answered by yes or no."""

from __future__ import annotations

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import YES_NO, Draft, LeftOut, Making
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.sources import Hub, Record, Sources


def pictures(_: Sources, making: Making) -> Pictures:
    """Where the images are."""
    return making.pictures


@dataset(
    "path-vqa",
    files="Parquet files of the hub, with the images: image, question, answer; or JSON with the "
    "image's file name. The authors' pickles are not read: a pickle can run anything",
    published="github.com/UCSD-AI4H/PathVQA; flaviagiammarino/path-vqa on the Hugging Face hub",
    hub=Hub("flaviagiammarino/path-vqa", "test", images="image"),
    study=pictures,
    patterns=("test*.parquet",),
)
def path_vqa(record: Record, where: Pictures) -> Draft:
    """Path-VQA, its yes/no questions; open ones are left out."""
    answer = str(record.fields.get("answer", "")).strip().casefold()
    if answer not in YES_NO.values():
        raise LeftOut("an open question")
    image = record.fields.get("image")
    return Draft(
        question=record.fields.get("question", ""),
        options=YES_NO,
        answer="A" if answer == "yes" else "B",
        images=(where.named(record, image) if isinstance(image, str) else where.stored(image),),
    )
