"""Sets without options of their own: patients and videos become questions, by seed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medagents_async.datasets import find
from medagents_async.datasets.conversion import Account, convert
from medagents_async.datasets.drafts import Making
from medagents_async.datasets.medvidqa import Published, spans
from medagents_async.datasets.pictures import Pictures, frames, middles
from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import File, Record, Sources
from medagents_async.errors import UsageError

CONDITIONS = {name: {"condition_name": name, "cond-name-eng": name} for name in "UVWXYZ"}
EVIDENCES = {
    "E_1": {"question_en": "Do you cough?", "is_antecedent": False, "value_meaning": {}},
    "E_2": {
        "question_en": "Where does it hurt?",
        "is_antecedent": False,
        "value_meaning": {"V_1": {"en": "chest"}, "V_2": {"en": "back"}},
    },
    "E_3": {"question_en": "How bad is it, 0 to 10?", "is_antecedent": False},
    "E_4": {"question_en": "Do you smoke?", "is_antecedent": True, "value_meaning": {}},
}
PATIENTS = (
    "AGE,DIFFERENTIAL_DIAGNOSIS,SEX,PATHOLOGY,EVIDENCES,INITIAL_EVIDENCE\n"
    "40,\"[['W', 0.9]]\",F,U,"
    "\"['E_1', 'E_2_@_V_1', 'E_2_@_V_2', 'E_3_@_7', 'E_4']\",E_1\n"
)
SYNTHEA = (
    "PATIENT,GENDER,RACE,ETHNICITY,AGE_BEGIN,AGE_END,PATHOLOGY,NUM_SYMPTOMS,SYMPTOMS\n"
    "p1,M,white,nonhispanic,9,9,Croup,2,Cough:28;Fever_@_high:3\n"
    "p2,F,white,nonhispanic,30,31,Gout,0,\n"
    "p3,F,white,nonhispanic,30,31,Gout,1,Foot pain:1\n"
)


def rows(name: str, making: Making, files: list[Path], *aside: Path) -> list[dict[str, Any]]:
    account = Account()
    sources = Sources([File(path) for path in files], aside)
    found = list(convert(find(name), sources, making, account, explanations=False))
    assert account.problems == []
    return [orjson.loads(line) for line in found]


@pytest.fixture
def patients(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"release_{name}" for name in ("test_patients", "conditions.json")]
    paths.append(tmp_path / "release_evidences.json")
    paths[0].write_text(PATIENTS)
    paths[1].write_bytes(orjson.dumps(CONDITIONS))
    paths[2].write_bytes(orjson.dumps(EVIDENCES))
    return paths


def test_ddxplus(patients: list[Path]) -> None:
    (row,) = rows("ddxplus", Making(choices=4), patients[:1], *patients[1:])
    assert row["question"].splitlines() == [
        "Patient: 40 years old, female.",
        "Complaint:",
        "- Do you cough? yes",
        "Symptoms:",
        "- Where does it hurt? chest, back",
        "- How bad is it, 0 to 10? 7",
        "History:",
        "- Do you smoke? yes",
        "What is the most likely diagnosis?",
    ]
    assert len(set(row["options"].values())) == 4
    assert row["options"][row["answer"]] == "U"
    assert set(row["options"].values()) <= set(CONDITIONS)


def test_wrong_options_depend_on_the_seed_alone(patients: list[Path]) -> None:
    def options(seed: int) -> Any:
        (row,) = rows("ddxplus", Making(seed=seed, choices=3), patients[:1], *patients[1:])
        return row["options"]

    assert options(1) == options(1)
    assert len({str(options(seed)) for seed in range(12)}) > 1


def test_ddxplus_wants_its_codes(patients: list[Path]) -> None:
    with pytest.raises(UsageError, match=r"release_evidences\.json"):
        rows("ddxplus", Making(), patients[:1], patients[1])


def test_symcat(tmp_path: Path) -> None:
    path = tmp_path / "symptoms.csv"
    path.write_text(SYNTHEA)
    first, second = rows("symcat", Making(choices=2), [path])
    assert "9 years old, male" in first["question"]
    assert "- Cough\n- Fever (high)\n" in first["question"]
    assert set(first["options"].values()) == {"Croup", "Gout"}
    assert second["options"][second["answer"]] == "Gout"


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 100), st.integers(1, 500), st.integers(0, 99))
def test_spans_are_distinct_and_lie_inside(start: int, length: int, whole: int, seed: int) -> None:
    row = Published(
        sample_id=1,
        question="How?",
        answer_start_second=start,
        answer_end_second=start + length,
        video_length=whole,
        video_id="v",
    )
    try:
        texts, letter = spans(row, Making(seed=seed, choices=4))
    except BadRow:
        assert start + length > whole or whole < 3 * length + 3
        return
    assert len(set(texts)) == 4
    right = texts["ABCD".index(letter)]
    assert right.startswith(f"{start // 60}:{start % 60:02d} to ")


def test_frames_are_spread_evenly() -> None:
    assert middles(80, 4) == [10, 30, 50, 70]
    assert middles(1, 1) == [0.5]


@pytest.mark.skipif(importlib.util.find_spec("av") is not None, reason="PyAV is installed")
def test_frames_want_a_library(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match=r"medagents-async\[video\]"):
        Pictures(tmp_path / "in.jsonl").frames(Record("x", 1, 0, {}, None, tmp_path), "v", 3)


def test_frames_of_a_video(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="wants PyAV: pip install 'medagents-async[video]'")
    pytest.importorskip("PIL.Image")
    path = tmp_path / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width = stream.height = 32
        for shade in range(80):  # 20 seconds, ever brighter
            plane = bytes([shade * 3]) * 32
            frame = av.VideoFrame(32, 32, "gray")
            frame.planes[0].update(plane.ljust(frame.planes[0].line_size, b"\0") * 32)
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
        container.mux(stream.encode())
    found = list(frames(path, 4))
    assert [second for second, _ in found] == pytest.approx([2.5, 7.5, 12.5, 17.5], abs=0.3)
    assert all(content.startswith(b"\xff\xd8") for _, content in found)
    assert len({content for _, content in found}) == 4
    (tmp_path / "test.json").write_bytes(
        orjson.dumps(
            [
                {
                    "sample_id": 5,
                    "question": "How is it done?",
                    "answer_start": "0:05",
                    "answer_end": "0:07",
                    "answer_start_second": 5,
                    "answer_end_second": 7,
                    "video_length": 20,
                    "video_id": "v",
                    "video_url": "https://example.org/v",
                }
            ]
        )
    )
    making = Making(choices=4, frames=4, pictures=Pictures(tmp_path / "in.jsonl"))
    (row,) = rows("medvidqa", making, [tmp_path / "test.json"])
    assert row["options"][row["answer"]] == "0:05 to 0:07"
    assert [(tmp_path / image).is_file() for image in row["images"]] == [True] * 4
    (tmp_path / "v.mp4").write_bytes(b"no video")
    with pytest.raises(BadRow, match=r"v\.mp4"):
        making.pictures.frames(Record("x", 1, 0, {}, None, tmp_path), "v", 3)
