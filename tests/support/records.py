"""Records and runs by hand, for tests of scoring."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from medagents_async.scoring.records import Record, record

LETTERS = "ABCDE"


def made(
    number: int,
    said: str | None = "A",
    key: str | None = "A",
    *,
    repeat: int = 0,
    status: str | None = None,
    **more: Any,
) -> Record:
    """A record by way of a row: without a prediction it is `unparsed`, unless told otherwise."""
    return record(
        {
            "id": f"q{number}",
            "index": number,
            "repeat": repeat,
            "status": status or ("ok" if said else "unparsed"),
            "prediction": said,
            "answer": key,
            **more,
        }
    )


def records(*, keyed: bool = False, repeats: int = 1) -> st.SearchStrategy[list[Record]]:
    """Any run: with unparsed replies and, unless `keyed`, without some answer keys."""
    key = st.sampled_from(LETTERS) if keyed else st.sampled_from([*LETTERS, None])
    said = st.lists(st.sampled_from([*LETTERS, None]), min_size=repeats, max_size=repeats)
    questions = st.lists(st.tuples(key, said), min_size=1, max_size=40)
    return questions.map(
        lambda drawn: [
            made(number, each, key, repeat=repeat)
            for number, (key, answers) in enumerate(drawn)
            for repeat, each in enumerate(answers)
        ]
    )
