"""Files as people have them: every kind, every line named, nothing that breaks down."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medagents_async.datasets import Dataset, every_dataset
from medagents_async.datasets.conversion import Account, convert
from medagents_async.datasets.drafts import Making
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.sources import Broken, File, Record, Sources, local
from medagents_async.errors import UsageError
from tests.support.published import PUBMED, SHAPES

PATIENT = {
    "AGE": 3,
    "SEX": "M",
    "PATHOLOGY": "x",
    "EVIDENCES": "['E']",
    "INITIAL_EVIDENCE": "E",
    "GENDER": "F",
    "AGE_BEGIN": 3,
    "SYMPTOMS": "x:1",
    "sample_id": 1,
    "question": "How?",
    "answer_start_second": 1,
    "answer_end_second": 2,
    "video_length": 90,
    "video_id": "v",
}
simple = st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.lists(st.integers(0, 9))
values = st.one_of(simple, st.dictionaries(st.text(max_size=2), simple, max_size=2))


def read(path: Path, content: bytes, *columns: str) -> list[Record | Broken]:
    path.write_bytes(content)
    return list(File(path, columns).records())


def fields(found: list[Record | Broken]) -> list[dict[str, Any] | str]:
    return [one.fields if isinstance(one, Record) else one.reason for one in found]


def test_lines(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a":1}\r\n\r\n{"a":2},\n[]\n{"a":3}'
    found = read(tmp_path / "x.jsonl", content)
    assert [one.line for one in found] == [1, 3, 4, 5]
    assert [one.row for one in found if isinstance(one, Record)] == [0, 3]
    assert fields(found)[2] == "not a JSON object"


@pytest.mark.parametrize(
    "content",
    [
        b'[{"question":"x"},{"question":"y"}]',
        b'{"question":"x"}\n{"question":"y"}\n',
        b'{"question":{"0":"x","1":"y"}}',
        b'{"question":["x","y"]}',
        b'{"1":{"question":"x"},\n"2":{"question":"y"}}',
        b'{"1":{"question":"x"},"2":{"question":"y"}}',
    ],
)
def test_json_of_every_make(tmp_path: Path, content: bytes) -> None:
    found = read(tmp_path / "x.json", content)
    assert fields(found) == [{"question": "x"}, {"question": "y"}]
    assert [one.line for one in found] == [1, 2]


@pytest.mark.parametrize("content", [b"", b"{", b"5", b'"x"', b'{"question": "x"'])
def test_no_json(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=r"x\.json"):
        read(tmp_path / "x.json", content)


def test_csv_without_a_header(tmp_path: Path) -> None:
    content = b'"two\nlines",None\r\nQ,\r\n\r\nlast,x,y\r\nQ,"Na"'
    found = read(tmp_path / "x.csv", content, "q", "a")
    assert fields(found) == [
        {"q": "two\nlines", "a": "None"},
        {"q": "Q", "a": ""},
        "3 cells, and 2 columns",
        {"q": "Q", "a": "Na"},
    ]
    assert [one.line for one in found] == [1, 3, 5, 6]


def test_csv_with_a_header(tmp_path: Path) -> None:
    assert fields(read(tmp_path / "x.csv", b"\xef\xbb\xbfquestion, a\nQ,x\n", "q", "b")) == [
        {"question": "Q", "a": "x"}
    ]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="wants PyArrow")
    table = importlib.import_module("pyarrow").table({"question": ["x", "y"], "a": [None, [1]]})
    parquet.write_table(table, tmp_path / "x.parquet")
    found = list(File(tmp_path / "x.parquet").records())
    assert fields(found) == [{"question": "x", "a": None}, {"question": "y", "a": [1]}]
    (tmp_path / "x.parquet").write_bytes(b"none")
    with pytest.raises(UsageError, match="Parquet"):
        list(File(tmp_path / "x.parquet").records())


@pytest.mark.parametrize("content", [b'a,b\nx,"y', b'a,b\nx,"y"z\n'])
def test_torn_csv_is_named(tmp_path: Path, content: bytes) -> None:
    (one,) = read(tmp_path / "x.csv", content)
    assert isinstance(one, Broken)
    assert "CSV" in one.reason


def test_csv_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no text"):
        read(tmp_path / "x.csv", b"a,b\n\xff\xfe,x\n")


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    for name in ("b_test.csv", "a_test.csv", "NOTICE.md", "a_dev.csv"):
        (tmp_path / name).write_bytes(b"")
    names = [path.name for path in local([tmp_path], ["*_test.csv"], [])]
    assert names == ["a_test.csv", "b_test.csv"]
    for paths, word in ([tmp_path / "gone"], "no such"), ([tmp_path], "holds no"):
        with pytest.raises(UsageError, match=word):
            local(paths, ["*.parquet"], [])


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(list(every_dataset().values())), st.data())
def test_any_record_makes_a_row_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, dataset: Dataset, data: st.DataObject
) -> None:
    """Whatever takes the place of a published value, no set breaks down."""
    folder = tmp_path_factory.mktemp("any")
    aside = [folder / "release_conditions.json", folder / "release_evidences.json"]
    aside[0].write_bytes(orjson.dumps({"x": {"condition_name": "x"}}))
    aside[1].write_bytes(orjson.dumps({"E": {"question_en": "E?"}}))
    shapes = [record for name, _, record, _ in SHAPES if name == dataset.name] or [PATIENT]
    record = dict(data.draw(st.sampled_from(shapes)))
    if "123" in record:
        record = dict(PUBMED)
    for key in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=3)):
        record[key] = data.draw(values)
    path = folder / "mmlu_test.jsonl"
    path.write_bytes(orjson.dumps(record))
    account = Account()
    making = Making(pictures=Pictures(folder / "in.jsonl"))
    sources = Sources([File(path)], aside)
    try:
        rows = list(convert(dataset, sources, making, account, explanations=True))
    except UsageError:  # of the files as a whole
        return
    assert len(rows) + len(account.problems) + account.left_out.total() == 1
