"""`convert` as a user runs it: real sets where they are at hand, exit statuses, whole files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, running
from tests.support.command import PATIENCE_S, Result, Run

GOOD = {"question": "Q?", "options": {"A": "x", "B": "y"}, "answer_idx": "A", "answer": "x"}


def convert(output: Path, *words: str | Path, path: Path | None = None) -> Result:
    """`path` is a folder of modules that the command finds first."""
    environment = dict(os.environ) | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "medagents_async.convert"]
        + [str(word) for word in (*words, "-o", output)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


#: Set, files, rows, and what the account must say.
SETS = {
    "medqa-4": ("medqa", ["medqa_us/test_4opt.jsonl"], 1273, []),
    "medqa-5": ("medqa", ["medqa_us/test_5opt.jsonl"], 1273, []),
    "medmcqa": ("medmcqa", ["medmcqa"], 4183, ["21 × two options are", "4 × two options are"]),
    "pubmedqa-all": ("pubmedqa", ["pubmedqa/ori_pqal.json"], 1000, []),
    "pubmedqa-test": ("pubmedqa", ["pubmedqa"], 500, ["500 × not in the test half"]),
    "pubmedqa-q": ("pubmedqa-question-only", ["pubmedqa"], 500, ["500 × not in the test half"]),
    "mmlu": ("mmlu", ["mmlu_medical/test"], 1089, ["77 questions stand in 156 rows"]),
    "mmlu-dev": ("mmlu", [f"mmlu_medical/dev/{name}_dev.csv" for name in ("anatomy",)], 5, []),
    "mmlu-lines": ("mmlu", ["mmlu_medical/test.jsonl"], 1089, ["77 questions stand in 156 rows"]),
    "mmlu-pro": (
        "mmlu-pro",
        ["mmlu_pro_health/test.jsonl"],
        818,
        ["131 questions stand in 265 rows; 2 with unlike answers"],
    ),
    "mmlu-pro-train": ("mmlu-pro", ["mmlu_pro_health/train_5shot.jsonl"], 5, ["1 × options 'N/A'"]),
    "medxpertqa": (
        "medxpertqa",
        ["medxpertqa/reasoning_test.jsonl", "medxpertqa/understanding_test.jsonl"],
        2450,
        ["2450 × choices taken", "2 × these choices", "2 × two options differ in letter case"],
    ),
    "medxpertqa-sample": (
        "medxpertqa",
        ["medxpertqa/sampled_text_input.jsonl"],
        244,
        ["244 × choices taken"],
    ),
    "medagentsbench": (
        "medagentsbench",
        ["medagentsbench_hard"],
        673,
        ["200 × choices taken", "100 × context taken", "mmlu 73, mmlu-pro 100, pubmedqa 100"],
    ),
}


@pytest.mark.parametrize("case", SETS)
def test_real_set(data: Path, tmp_path: Path, case: str) -> None:
    """Every record becomes a row, as often as its publishers say, and batch can read it."""
    name, files, count, said = SETS[case]
    output = tmp_path / "in.jsonl"
    result = convert(output, name, *(data / file for file in files))
    assert (result.code, result.out) == (0, "")
    assert [word for word in said if word not in result.err] == []
    found = lines(output)
    assert len(found) == len({row["id"] for row in found}) == count
    assert all(row["answer"] in row["options"] for row in found)
    assert {"explanation", "exp", "answer_rationale"}.isdisjoint(set().union(*found))


FIVE = {"A": 273, "B": 277, "C": 252, "D": 269, "E": 202}
FOUR = {"A": 353, "B": 309, "C": 346, "D": 265}


def test_real_letters(data: Path, tmp_path: Path) -> None:
    """Letters of answers, counted; the two files of MedQA ask the same in other letters."""
    output = tmp_path / "in.jsonl"

    def letters(name: str, file: str) -> Counter[str]:
        assert convert(output, name, data / file).code == 0
        return Counter(row["answer"] for row in lines(output))

    assert letters("medqa", "medqa_us/test_5opt.jsonl") == FIVE
    five = lines(output)
    assert letters("medqa", "medqa_us/test_4opt.jsonl") == FOUR
    pairs = list(zip(lines(output), five, strict=True))
    assert sum(one["answer"] != other["answer"] for one, other in pairs) == 600
    assert {one["id"] for one, _ in pairs}.isdisjoint(other["id"] for _, other in pairs)
    assert letters("pubmedqa", "pubmedqa") == {"A": 276, "B": 169, "C": 55}
    pro = letters("mmlu-pro", "mmlu_pro_health/test.jsonl")
    assert sum(count for letter, count in pro.items() if letter > "E") == 352
    sizes = Counter(len(row["options"]) for row in lines(output))
    assert sizes == {10: 597, 9: 67, 8: 42, 7: 21, 6: 8, 5: 8, 4: 72, 3: 3}


def test_real_words_stay(data: Path, tmp_path: Path) -> None:
    """Options that say None or Na are these words; the hard sets are rows of the full ones."""
    output = tmp_path / "in.jsonl"
    assert convert(output, "medmcqa", data / "medmcqa/dev.jsonl").code == 0
    texts = Counter(text for row in lines(output) for text in row["options"].values())
    assert (texts["None"], texts["Na"]) == (41, 1)
    full, hard = tmp_path / "full.jsonl", tmp_path / "hard.jsonl"
    assert convert(full, "pubmedqa", data / "pubmedqa").code == 0
    assert (
        convert(hard, "medagentsbench", data / "medagentsbench_hard/pubmedqa_test_hard.jsonl").code
        == 0
    )
    known = {(row["context"], row["question"], row["answer"]) for row in lines(full)}
    assert {(row["context"], row["question"], row["answer"]) for row in lines(hard)} <= known


def test_no_gold_explanation_comes_through(data: Path, tmp_path: Path) -> None:
    """What explains the answer, searched for in all that is written."""
    output = tmp_path / "in.jsonl"
    records = orjson.loads((data / "pubmedqa/ori_pqal.json").read_bytes())
    assert convert(output, "pubmedqa", data / "pubmedqa/ori_pqal.json").code == 0
    rows = {row["id"]: orjson.dumps(row).decode() for row in lines(output)}
    leaks = [
        pmid
        for pmid, record in records.items()
        if record["LONG_ANSWER"] in rows[pmid]
        and record["LONG_ANSWER"] not in "\n".join(record["CONTEXTS"])
    ]
    assert leaks == []


def test_converted_rows_run_through_batch(tmp_path: Path) -> None:
    source, output = tmp_path / "test.jsonl", tmp_path / "in.jsonl"
    source.write_bytes(orjson.dumps(GOOD))
    assert convert(output, "medqa", source).code == 0
    with running(lambda _: Reply("Option: A")) as simulator:
        result = Run(tmp_path, simulator.url, output.read_bytes())("--dry-run")
        assert simulator.requests == []
    assert result.code == 0
    assert "(A) x" in result.out


def test_real_rows_run_through_batch(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "in.jsonl"
    places = {"medmcqa": "medmcqa", "pubmedqa": "pubmedqa", "mmlu": "mmlu_medical/test"}
    for name, file in places.items():
        assert convert(output, name, data / file).code == 0
        result = Run(tmp_path, "http://127.0.0.1:9/v1", output.read_bytes())("--dry-run")
        assert result.code == 0, result.err


def test_same_bytes_again(tmp_path: Path) -> None:
    source = tmp_path / "symptoms.csv"
    names = "Croup Gout Mumps Acne Asthma Anemia".split()
    source.write_text(
        "PATIENT,GENDER,AGE_BEGIN,PATHOLOGY,SYMPTOMS\n"
        + "".join(f"p{n},F,{n},{names[n % 6]},Cough:{n}\n" for n in range(30))
    )

    def digest(seed: int) -> str:
        output = tmp_path / "in.jsonl"
        assert convert(output, "symcat", source, "--seed", str(seed)).code == 0
        return hashlib.sha256(output.read_bytes()).hexdigest()

    assert digest(1) == digest(1) != digest(2)


def test_bad_rows_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    source, output = tmp_path / "test.jsonl", tmp_path / "in.jsonl"
    bad = [{**GOOD, "answer_idx": "C"} for _ in range(25)]
    source.write_bytes(b"\n".join([orjson.dumps(GOOD), *map(orjson.dumps, bad), b"{torn"]))
    output.write_bytes(b"as it was")
    result = convert(output, "medqa", source)
    assert result.code == 2
    assert result.err.startswith("26 records cannot be converted; nothing was written.")
    named = [line for line in result.err.splitlines() if " line " in line]
    assert [f"test.jsonl line {number}:" in line for number, line in enumerate(named, 2)] == [
        True
    ] * 20
    assert "and 6 more" in result.err
    assert output.read_bytes() == b"as it was"
    assert list(tmp_path.glob("*.tmp")) == []
    skipped = convert(output, "medqa", source, "--skip-bad-rows")
    assert (skipped.code, len(lines(output))) == (0, 1)
    assert "left out: 26 bad rows" in skipped.err


USAGE = {
    "no-set": (["medqua", "SRC"], "medmcqa"),
    "no-source": (["medqa"], "SRC"),
    "no-such-file": (["medqa", "gone.jsonl"], "no such file"),
    "hub-and-source": (["medqa", "SRC", "--hub"], "not both"),
    "no-hub": (["ddxplus", "--hub"], "release_conditions.json"),
    "split-of-a-file": (["medqa", "SRC", "--split", "dev"], "--hub"),
    "into-a-source": (["medqa", "OUT"], "one of the sources"),
    "only-aside": (["pubmedqa", "test_ground_truth.json"], "ori_pqal"),
    "no-row": (["mmlu", "SRC"], "not a medical subject"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_error(tmp_path: Path, case: str) -> None:
    words, said = USAGE[case]
    source, output = tmp_path / "test.jsonl", tmp_path / "in.jsonl"
    source.write_bytes(orjson.dumps(GOOD))
    output.write_bytes(orjson.dumps(GOOD))
    (tmp_path / "test_ground_truth.json").write_bytes(b'{"1": "yes"}')
    places = {"SRC": source, "OUT": output}
    given = [
        places.get(word, tmp_path / word if word.endswith(("jsonl", "json")) else word)
        for word in words
    ]
    result = convert(output, *given)
    assert (result.code, said in result.err) == (2, True), result.err
    assert output.read_bytes() == orjson.dumps(GOOD)


def test_sets_are_listed(tmp_path: Path) -> None:
    result = convert(tmp_path / "in.jsonl", "--list")
    assert result.code == 0
    names = [line.split()[0] for line in result.out.splitlines() if not line.startswith(" ")]
    assert {"medqa", "medmcqa", "pubmedqa", "mmlu", "mmlu-pro", "medxpertqa"} <= set(names)
    assert names == sorted(names)
    assert result.out.count("licence:") == result.out.count("published:") == len(names)


def test_hub_without_its_library(tmp_path: Path) -> None:
    """In a place where the library cannot be imported, whether or not it is installed here."""
    (tmp_path / "datasets.py").write_text("raise ImportError('not here')")
    result = convert(tmp_path / "in.jsonl", "medqa", "--hub", path=tmp_path)
    assert (result.code, "pip install 'medagents-async[hub]'" in result.err) == (2, True)


def test_hub_through_its_library(tmp_path: Path) -> None:
    """A library of the same interface stands in: the real one wants a network."""
    (tmp_path / "datasets.py").write_text(
        "def load_dataset(repository, configuration, *, split):\n"
        "    assert repository == 'cais/mmlu' and split == 'validation'\n"
        "    return [dict(question=configuration, choices=list('wxyz'), answer=2,"
        " subject=configuration)]\n"
    )
    output = tmp_path / "in.jsonl"
    result = convert(output, "mmlu", "--hub", "--split", "validation", path=tmp_path)
    assert result.code == 0, result.err
    assert [row["answer"] for row in lines(output)] == ["C"] * 6
    assert lines(output)[0]["id"] == "anatomy_validation-0"


def test_hub_that_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text(
        "def load_dataset(*words, **options):\n    raise ConnectionError('no network')\n"
    )
    result = convert(tmp_path / "in.jsonl", "medqa", "--hub", path=tmp_path)
    assert (result.code, "GBaker/MedQA-USMLE-4-options test" in result.err) == (2, True)
    assert "no network" in result.err


def test_the_installed_program_has_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "medagents_async", "convert", "--list"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, "medqa" in done.stdout) == (0, True)
