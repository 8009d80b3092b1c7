"""Any line is a row or a reason; any text in a row comes out as it went in."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medagents_async.datasets import reader
from medagents_async.datasets.rows import BadRow, parse
from medagents_async.errors import InputError

#: Every code point that JSON can carry: all but lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))
integers = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
KEYS = [
    "id",
    "question",
    "context",
    "options",
    "answer",
    "answer_idx",
    "subject",
    "images",
    "label",
]
letters = st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@given(st.binary())
def test_any_bytes(line: bytes) -> None:
    _row_or_reason(line)


@given(st.dictionaries(st.sampled_from(KEYS) | texts, values))
def test_any_object(document: dict[str, object]) -> None:
    _row_or_reason(orjson.dumps(document))


@given(
    st.fixed_dictionaries(
        {"question": texts, "options": st.dictionaries(letters, texts | integers, max_size=5)},
        optional={
            "answer": letters | st.none() | integers,
            "id": texts | integers,
            "context": texts | st.none() | values,
        },
    )
)
def test_nearly_a_row(document: dict[str, object]) -> None:
    _row_or_reason(orjson.dumps(document))


@given(texts.filter(str.strip), st.dictionaries(letters, texts, min_size=2), texts, texts)
def test_text_comes_out_as_it_went_in(
    question: str, options: dict[str, str], context: str, identity: str
) -> None:
    answer = next(iter(options))
    row = {"id": identity, "question": question, "options": options, "context": context}
    item = parse(orjson.dumps({**row, "answer": answer}), 1, 0)
    assert (item.question.text, item.question.context) == (question, context)
    assert list(item.question.options.items()) == list(options.items())
    assert (item.question.id, item.answer) == (identity, answer)


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=8))
def test_every_bad_line_is_named(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "in.jsonl"
    good = {"question": "fine?", "options": {"A": "a", "B": "b"}}
    path.write_bytes(b"\n".join([*lines, orjson.dumps(good)]))
    try:
        source = reader.check(path, reader.Selection())
    except InputError as error:
        bad = [number for number, line in enumerate(lines, 1) if _is_bad(line, number)]
        assert [number for number, _ in error.problems] == bad  # noqa: PT017
    else:
        assert len(source) == len(list(source.items())) >= 1


def test_duplicate_ids_keep_the_first(tmp_path: Path) -> None:
    rows = [
        {"id": name, "question": f"{name}{n}?", "options": {"A": "a", "B": "b"}}
        for n, name in enumerate(["x", "y", "x"])
    ]
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    with pytest.raises(InputError) as caught:
        reader.check(path, reader.Selection())
    assert caught.value.problems == [(3, "id 'x' is taken by line 1")]
    source = reader.check(path, reader.Selection(), skip_bad_rows=True)
    assert [item.question.text for item in source.items()] == ["x0?", "y1?"]


def _row_or_reason(line: bytes) -> None:
    try:
        item = parse(line, 7, 3)
    except BadRow as reason:
        assert str(reason)  # noqa: PT017
    else:
        assert 2 <= len(item.question.options) <= 26
        assert item.answer is None or item.answer in item.question.options


def _is_bad(line: bytes, number: int) -> bool:
    line = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
    if not line:
        return False
    try:
        parse(line, number, 0)
    except BadRow:
        return True
    return False
