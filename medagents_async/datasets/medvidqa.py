"""MedVidQA: the part of an instructional video that answers a question."""

from __future__ import annotations

import random

from pydantic import BaseModel, Field

from medagents_async.datasets import dataset
from medagents_async.datasets.drafts import Draft, Making, lettered, read
from medagents_async.datasets.rows import LETTERS, BadRow
from medagents_async.datasets.sources import Record, Sources


class Published(BaseModel):
    """A record; seconds from the start of the video."""

    sample_id: int
    question: str
    answer_start_second: int
    answer_end_second: int
    video_length: int = Field(le=86_400)
    video_id: str


def options_of(_: Sources, making: Making) -> Making:
    """How to make options and frames."""
    return making


@dataset(
    "medvidqa",
    files="test.json: sample_id, question, answer_start_second, answer_end_second, video_length, "
    "video_id; <video_id>.mp4 in the folder --images",
    published="github.com/deepaknlp/MedVidQACL",
    study=options_of,
    patterns=("test.json",),
)
def medvidqa(record: Record, making: Making) -> Draft:
    """MedVidQA: which span of the video answers? Frames of it, and spans of equal length.

    The set itself asks for the span; the wrong ones are ours, by seed, and none covers half of
    the right one.
    """
    row = read(Published, record)
    texts, answer = spans(row, making)
    frames = making.pictures.frames(record, row.video_id, making.frames)
    times = ", ".join(clock(second) for second, _ in frames)
    return Draft(
        id=f"{record.source}-{row.sample_id}",
        question=f"The images are frames of a video of {clock(row.video_length)} minutes, taken at "
        f"{times}. Which part of the video answers this question?\n{row.question}",
        options=lettered(texts),
        answer=answer,
        images=tuple(image for _, image in frames),
        meta={"video": row.video_id},
    )


def spans(row: Published, making: Making) -> tuple[list[str], str]:
    """The right span among others of its length, in the order of time, and its letter.

    Raises BadRow where the video has no room for them.
    """
    start, length = row.answer_start_second, row.answer_end_second - row.answer_start_second
    if not 0 <= start < row.answer_end_second <= row.video_length:
        raise BadRow("answer_end_second: the answer's span does not lie inside the video")
    others = [
        other
        for other in range(row.video_length - length + 1)
        if abs(other - start) > length / 2 and other != start
    ]
    if len(others) < making.choices - 1:
        raise BadRow("the answer fills the video: there is no other span of its length")
    chance = random.Random(f"{making.seed}/{row.sample_id}")  # noqa: S311
    starts = sorted([start, *chance.sample(others, making.choices - 1)])
    texts = [f"{clock(second)} to {clock(second + length)}" for second in starts]
    return texts, LETTERS[starts.index(start)]


def clock(second: float) -> str:
    """Minutes and seconds, as in 2:05."""
    return f"{int(second) // 60}:{int(second) % 60:02d}"
