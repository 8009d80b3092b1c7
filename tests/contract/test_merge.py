"""`merge`: outputs of --shard runs become one, or a message says why they cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.errors import UsageError
from medagents_async.process import shard_of_array
from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import PATIENCE_S, Result, Run, finish

OPTIONS = ("--method", "cot", "--concurrency", "8")


def merge(output: Path, *paths: Path, options: tuple[str, ...] = ()) -> Result:
    command = [sys.executable, "-W", "error", "-m", "medagents_async.merge"]
    done = subprocess.run(
        [*command, *map(str, paths), "-o", str(output), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def manifest(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(output.with_suffix(".run.json").read_bytes())
    return document


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of 24 questions, twice each, as a whole and in three shards."""
    from tests.conftest import question_row

    made = {}
    with running(plausible) as simulator:
        for name in ("all", "0/3", "1/3", "2/3"):
            folder = tmp_path_factory.mktemp(name.replace("/", "-of-"))
            job = made[name] = Run(folder, simulator.url, [question_row(n) for n in range(24)])
            cut = () if name == "all" else ("--shard", name)
            assert job(*OPTIONS, "--repeats", "2", *cut).code == 0
    return made


@pytest.fixture
def parts(whole: dict[str, Run], tmp_path: Path) -> list[Path]:
    """Copies of the three shards, to be spoilt."""
    copies = []
    for place in range(3):
        folder = tmp_path / str(place)
        folder.mkdir()
        for name in ("out.jsonl", "out.run.json"):
            (folder / name).write_bytes((whole[f"{place}/3"].folder / name).read_bytes())
        copies.append(folder / "out.jsonl")
    return copies


def test_shards_become_what_one_run_writes(
    whole: dict[str, Run], parts: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    result = merge(output, *reversed(parts), options=("--json",))
    assert result.code == 0, result.err
    merged = Run(tmp_path, whole["all"].url, [])
    assert merged.canonical() == whole["all"].canonical()
    rows = merged.rows()
    assert [(row["index"], row["repeat"]) for row in rows] == [(n // 2, n % 2) for n in range(48)]
    one, other = manifest(output), manifest(whole["all"].output)
    for name in ("configuration", "configuration_digest", "version", "rows", "server_version"):
        assert one[name] == other[name]
    assert one["arguments"]["selection"] == other["arguments"]["selection"]
    apart = {"output", "seconds", "questions_per_hour", "most_in_flight"}
    kept = {name: value for name, value in other["totals"].items() if name not in apart}
    assert {name: value for name, value in one["totals"].items() if name not in apart} == kept
    assert orjson.loads(result.out)["done"] == 48
    assert [part["shard"] for part in one["merged_from"]] == [[2, 3], [1, 3], [0, 3]]


def test_a_run_goes_on_from_a_merged_output(
    whole: dict[str, Run], parts: list[Path], tmp_path: Path
) -> None:
    assert merge(tmp_path / "out.jsonl", *parts).code == 0
    with running(plausible) as simulator:
        job = Run(tmp_path, simulator.url, whole["all"].source.read_bytes())
        assert job(*OPTIONS, "--repeats", "2").code == 0
        asked = [r for r in simulator.requests if not r.request_id.startswith("probe/")]
    assert asked == []


def test_one_output_is_sorted(whole: dict[str, Run], tmp_path: Path) -> None:
    job = whole["all"]
    lines = job.output.read_bytes().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_bytes(b"".join(lines[1::2] + lines[::2]))
    (tmp_path / "shuffled.run.json").write_bytes((job.folder / "out.run.json").read_bytes())
    assert merge(tmp_path / "sorted.jsonl", shuffled).code == 0
    by_place = sorted(lines, key=lambda line: [orjson.loads(line)[k] for k in ("index", "repeat")])
    assert (tmp_path / "sorted.jsonl").read_bytes() == b"".join(by_place)


def test_part_of_a_run_is_sorted_with_a_note(parts: list[Path], tmp_path: Path) -> None:
    result = merge(tmp_path / "sorted.jsonl", parts[1])
    assert result.code == 0
    assert "no output of shard 0/3, 2/3" in result.err
    assert manifest(tmp_path / "sorted.jsonl")["arguments"]["selection"]["shard"] == [1, 3]


def test_a_missing_shard_is_named(parts: list[Path], tmp_path: Path) -> None:
    result = merge(tmp_path / "out.jsonl", parts[0], parts[2])
    assert result.code == 2
    assert "no output of shard 1/3" in result.err
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "out.run.json").exists()


def test_what_there_is_can_be_joined(parts: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    result = merge(output, parts[0], parts[2], options=("--partial",))
    assert result.code == 0
    assert "no output of shard 1/3" in result.err
    totals = manifest(output)["totals"]
    assert totals["done"] < totals["questions"] == 48
    assert merge(output, *parts).code == 0, "a merge may write over what a merge wrote"
    assert manifest(output)["totals"]["done"] == 48


@pytest.mark.parametrize("torn", [b"", b'{"id": "q1", "ind'])
def test_a_lost_row_is_found(parts: list[Path], tmp_path: Path, torn: bytes) -> None:
    lines = parts[0].read_bytes().splitlines(keepends=True)
    parts[0].write_bytes(b"".join(lines[:-1]) + torn)
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert f"{len(lines) - 1} of {len(lines)} rows" in result.err
    assert ("torn" in result.err) == bool(torn)


def test_a_killed_run_is_named(parts: list[Path], tmp_path: Path) -> None:
    document = manifest(parts[0])
    document["totals"] = document["ended"] = None
    parts[0].with_suffix(".run.json").write_bytes(orjson.dumps(document))
    parts[0].write_bytes(b"".join(parts[0].read_bytes().splitlines(keepends=True)[:3]))
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert "its run did not end, 3 rows so far" in result.err


def test_a_row_in_two_shards_is_named(parts: list[Path], tmp_path: Path) -> None:
    stray = parts[0].read_bytes().splitlines(keepends=True)[0]
    parts[1].write_bytes(parts[1].read_bytes() + stray)
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert f"id '{orjson.loads(stray)['id']}'" in result.err
    assert str(parts[0]) in result.err
    assert str(parts[1]) in result.err


def test_two_orders_of_the_input_are_no_whole(parts: list[Path], tmp_path: Path) -> None:
    rows = [orjson.loads(line) for line in parts[0].read_bytes().splitlines()]
    for row in rows:
        row["index"] = 23 - row["index"]
    parts[0].write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert "index " in result.err


def test_the_same_shard_twice(parts: list[Path], tmp_path: Path) -> None:
    document = manifest(parts[1])
    document["arguments"]["selection"]["shard"] = [0, 3]
    parts[1].with_suffix(".run.json").write_bytes(orjson.dumps(document))
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert "both shard 0/3" in result.err


def test_other_configurations_are_refused_by_field(parts: list[Path], tmp_path: Path) -> None:
    document = manifest(parts[2])
    document["configuration"]["parameters"]["answer_tokens"] = 7
    document["configuration"]["seed"] = 9
    parts[2].with_suffix(".run.json").write_bytes(orjson.dumps(document))
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert "parameters.answer_tokens: 1024 and 7" in result.err
    assert "seed: 0 and 9" in result.err
    assert "model" not in result.err


@pytest.mark.parametrize(("field", "value"), [("repeats", 1), ("shard", [1, 4]), ("limit", 5)])
def test_other_cuts_are_refused(
    parts: list[Path], tmp_path: Path, field: str, value: object
) -> None:
    document = manifest(parts[1])
    arguments = document["arguments"]
    (arguments if field == "repeats" else arguments["selection"])[field] = value
    parts[1].with_suffix(".run.json").write_bytes(orjson.dumps(document))
    result = merge(tmp_path / "out.jsonl", *parts)
    assert result.code == 2
    assert f"--{field}" in result.err


def test_outputs_that_are_none(parts: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert "No such file" in merge(output, tmp_path / "nothing.jsonl").err
    assert "one of the files" in merge(parts[0], *parts).err
    output.write_bytes(b"costly\n")
    assert "no merge wrote it" in merge(output, *parts).err
    assert output.read_bytes() == b"costly\n"
    parts[0].write_bytes(b'{"id": "q1"}\n')
    result = merge(tmp_path / "other.jsonl", *parts)
    assert (result.code, "line 1 is no row" in result.err) == (2, True)
    parts[0].with_suffix(".run.json").write_bytes(b"[]")
    assert "no manifest" in merge(tmp_path / "other.jsonl", *parts).err


def test_an_output_that_cannot_be_written(parts: list[Path], tmp_path: Path) -> None:
    result = merge(tmp_path / "nowhere" / "out.jsonl", *parts)
    assert (result.code, "cannot write" in result.err) == (3, True)


def test_a_shard_that_is_still_written(
    run: Callable[..., Run], rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path
) -> None:
    def slow(request: Request) -> Reply:
        return Reply(fault="hang") if request.stage else plausible(request)

    with running(slow) as simulator:
        job = run(simulator.url, rows(4))
        process = job.start(*OPTIONS, "--drain", "0")
        simulator.call(simulator.until(lambda: simulator.in_flight == 4, timeout=PATIENCE_S))
        result = merge(tmp_path / "out.jsonl", job.output)
        process.terminate()
        assert finish(process).code == 130
    assert (result.code, "still writing" in result.err) == (2, True)


ARRAY = "SLURM_ARRAY_TASK_"


def array(task: int, count: int, first: int, last: int, step: int = 1) -> dict[str, str]:
    numbers = {"ID": task, "COUNT": count, "MIN": first, "MAX": last, "STEP": step}
    return {ARRAY + name: str(value) for name, value in numbers.items()}


@pytest.mark.parametrize(
    ("environment", "shard"),
    [
        ({}, None),
        (array(0, 1, 0, 0), (0, 1)),
        (array(5, 8, 0, 7), (5, 8)),
        (array(1, 8, 1, 8), (0, 8)),
        (array(16, 4, 4, 16, 4), (3, 4)),
        (array(14, 8, 0, 15, 2), (7, 8)),
        ({ARRAY + "ID": "0", ARRAY + "COUNT": "1"}, (0, 1)),
    ],
)
def test_the_shard_of_an_array_task(
    environment: dict[str, str], shard: tuple[int, int] | None
) -> None:
    assert shard_of_array(environment) == shard


@pytest.mark.parametrize(
    "environment",
    [
        array(3, 3, 1, 7),  # --array=1,3,7
        array(5, 1, 5, 5),  # one task of an array, submitted again
        {ARRAY + "ID": "4"},
        {**array(0, 4, 0, 3), ARRAY + "STEP": "0"},
        {**array(0, 4, 0, 3), ARRAY + "COUNT": "four"},
    ],
)
def test_an_array_that_does_not_say_which_part(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--shard I/N"):
        shard_of_array(environment)


def test_batch_takes_its_shard_from_the_array(
    run: Callable[..., Run], rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    with running(plausible) as simulator:
        job = run(simulator.url, rows(20))
        environment = array(6, 2, 3, 6, 3)
        assert job(*OPTIONS, env=environment).code == 0
        assert job.manifest()["arguments"]["selection"]["shard"] == [1, 2]
        assert 0 < len(job.rows()) < 20
        job.output.unlink()
        assert job(*OPTIONS, "--shard", "0/1", env=environment).code == 0
        assert len(job.rows()) == 20


def test_memory_does_not_grow_with_the_rows(parts: list[Path], tmp_path: Path) -> None:
    def peak(*paths: Path) -> int:
        """KiB, as the process says itself: what its parent learns includes the parent's own."""
        merging = (
            f"merge([Path(p) for p in {list(map(str, paths))}], Path({str(tmp_path)!r}) / 'o')"
        )
        code = f"from pathlib import Path; from medagents_async.merge import merge; {merging}"
        status = "print(Path('/proc/self/status').read_text())"
        command = [sys.executable, "-c", f"{code}; {status}"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(told.split("VmHWM:")[1].split()[0])

    small = peak(*parts)
    for part in parts:
        rows = [orjson.loads(line) for line in part.read_bytes().splitlines()]
        large = ({**row, "detail": {"text": "x" * 4_000_000}} for row in rows)
        part.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in large))
    assert sum(part.stat().st_size for part in parts) > 150 << 20
    assert peak(*parts) - small < 40 << 10
