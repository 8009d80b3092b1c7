"""Faults that users of such evaluators reported, P48 to P55: results, resuming, accounting."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, Simulator, plausible, running
from tests.support.command import Run, finish, kill, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
DIRECT = ["--set", "stages=direct"]


class Gate:
    """A script that answers the first `free` requests and holds the others until `open`."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._opened = asyncio.Event()

    async def __call__(self, request: Request) -> Reply:
        if request.arrival >= self._free:
            await self._opened.wait()
        return Reply("Option: A")

    async def open(self) -> None:
        self._opened.set()


def ids(job: Run) -> Counter[str]:
    return Counter(row["id"] for row in job.rows())


def questions_asked(simulator: Simulator) -> Counter[str]:
    return Counter(request.question_id for request in simulator.requests)


def heard(process: subprocess.Popen[str], words: str) -> None:
    """Wait until `process` has said so."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}")


# --- a run that ends early ------------------------------------------------------------------------


def test_p48_kill_at_half_time_loses_only_what_is_in_flight(run: MakeRun, rows: Rows) -> None:
    gate = Gate(free=20)
    with running(gate) as simulator:
        job = run(simulator.url, rows(40))
        process = job.start(*DIRECT, "--concurrency", "4")
        until(lambda: len(simulator.requests) == 24)
        kill(process)
        until(lambda: simulator.in_flight == 0)
        saved = [orjson.loads(line) for line in job.output.read_bytes().splitlines()]
        assert len(saved) >= 20 - 4
        simulator.call(gate.open())
        assert job(*DIRECT).code == 0
        asked = questions_asked(simulator)
    assert {asked[row["id"]] for row in saved} == {1}
    assert ids(job) == Counter(f"q{n}" for n in range(40))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p53_interrupt_finishes_what_is_in_flight(
    run: MakeRun, rows: Rows, number: signal.Signals
) -> None:
    gate = Gate(free=6)
    with running(gate) as simulator:
        job = run(simulator.url, rows(20))
        process = job.start(*DIRECT, "--concurrency", "4")
        until(lambda: len(simulator.requests) == 10)
        process.send_signal(number)
        heard(process, "stopping")
        simulator.call(gate.open())
        result = finish(process)
        assert len(simulator.requests) == 10
    assert result.code == 130
    assert "interrupted" in result.err
    assert ids(job) == questions_asked(simulator)
    manifest = job.manifest()
    assert "interrupted" in manifest["stopped"]
    assert (manifest["totals"]["questions"], manifest["totals"]["done"]) == (20, 10)
    assert manifest["ended"]


# --- one row for each question --------------------------------------------------------------------


def test_p49_resumed_twice_and_in_another_order(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(9))
        assert job(*DIRECT, "--limit", "3").code == 0
        job.write(rows(9)[::-1])
        assert job(*DIRECT, "--limit", "4").code == 0
        job.write(rows(9)[4:] + rows(9)[:4])
        assert job(*DIRECT).code == 0
        asked = questions_asked(simulator)
    assert ids(job) == asked == Counter(f"q{n}" for n in range(9))


def test_p50_equal_questions_are_scored_each_by_its_own_key(run: MakeRun) -> None:
    question = {"question": "What helps?", "options": {"A": "Aspirin", "B": "Heparin"}}
    with running(lambda _: Reply("Option: A")) as simulator:
        job = run(simulator.url, [{**question, "answer": letter} for letter in "ABBAB"])
        assert job(*DIRECT).code == 0
    scored = {row["id"]: (row["answer"], row["correct"]) for row in job.rows()}
    assert scored == {str(n): (letter, letter == "A") for n, letter in enumerate("ABBAB", 1)}


def test_p50_repeated_id_is_refused_with_both_lines(run: MakeRun, rows: Rows) -> None:
    repeated = [*rows(3), {**rows(1)[0], "id": "q1", "answer": "B"}]
    with running() as simulator:
        result = run(simulator.url, repeated)()
        assert simulator.requests == []
    assert result.code == 2
    assert "line 4: id 'q1' is taken by line 2" in result.err


def test_p50_all_rows_of_a_published_set_with_repeated_questions(run: MakeRun, data: Path) -> None:
    content = (data / "mmlu_medical" / "test.jsonl").read_bytes()
    published = [orjson.loads(line) for line in content.splitlines()]
    assert len({row["question"] for row in published}) < len(published) == 1089
    with running(lambda _: Reply("Option: A")) as simulator:
        job = run(simulator.url, content)
        assert job(*DIRECT).code == 0
    found = sorted(job.rows(), key=lambda row: row["index"])
    assert [row["answer"] for row in found] == [row["answer_idx"] for row in published]
    assert max(ids(job).values()) == 1


# --- results of different runs --------------------------------------------------------------------

OTHERS = {
    "input": DIRECT,
    "model": [*DIRECT, "--model", "second"],
    "method": ["--method", "{folder}/mine.py:mine"],
    "sampling.temperature": [*DIRECT, "--temperature", "0.7"],
    "parameters.stages": ["--set", "stages=cot"],
    "seed": [*DIRECT, "--seed", "1"],
}
MINE = "async def mine(question, ask):\n    raise NotImplementedError\n"


@pytest.fixture(scope="module")
def five_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A finished run on questions with five options and without ids."""
    question = {"question": "What helps?", "options": {letter: letter * 2 for letter in "ABCDE"}}
    with running(lambda _: Reply("Option: E"), model=["first", "second"]) as simulator:
        folder = tmp_path_factory.mktemp("five")
        job = Run(folder, simulator.url, [{**question, "answer": "E"}] * 3)
        (folder / "mine.py").write_text(MINE)
        assert job(*DIRECT, "--model", "first", "--temperature", "0").code == 0
        yield job
        assert len(simulator.requests) == 3


@pytest.mark.parametrize("field", OTHERS)
def test_p51_results_of_another_configuration_are_not_mixed(five_options: Run, field: str) -> None:
    job, before = five_options, five_options.output.read_bytes()
    four = {letter: letter * 2 for letter in "ABCD"}
    source = job.source.read_bytes()
    if field == "input":
        job.write([{"question": "What helps?", "options": four, "answer": "D"}] * 3)
    options = [option.format(folder=job.folder) for option in OTHERS[field]]
    # Of an option that is given twice the last one counts.
    result = job("--model", "first", "--temperature", "0", *options)
    job.source.write_bytes(source)
    assert result.code == 2
    assert "another configuration" in " ".join(result.err.split())
    assert f"  {field}: " in result.err
    assert job.output.read_bytes() == before


# --- accounting -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any], str]:
    """Ten questions: 5 right, 2 wrong, 1 unparsed, 2 failed; the summary as JSON and as text."""
    said = ["Option: A"] * 5 + ["Option: B"] * 2 + ["I cannot tell."]

    def script(request: Request) -> Reply:
        number = int(request.question_id)
        return Reply(said[number]) if number < len(said) else Reply(status=400, error="too bad")

    question = {"question": "What helps?", "options": {"A": "Rest", "B": "Tea"}, "answer": "A"}
    questions = [{**question, "id": number} for number in range(10)]
    with running(script) as simulator:
        job = Run(tmp_path_factory.mktemp("ten"), simulator.url, questions)
        told = job(*DIRECT, "--json")
        shown = job(*DIRECT)
    assert (told.code, shown.code) == (1, 1)
    return job, orjson.loads(told.out), shown.out


def test_p52_what_failed_counts_as_wrong(ten: tuple[Run, dict[str, Any], str]) -> None:
    job, summary, text = ten
    counts = {name: summary[name] for name in ("questions", "done", "ok", "unparsed", "error")}
    assert counts == {"questions": 10, "done": 10, "ok": 7, "unparsed": 1, "error": 2}
    assert (summary["correct"], summary["accuracy"]) == (5, 0.5)
    assert job.manifest()["totals"]["accuracy"] == 0.5
    lines = dict(line.strip().rsplit(maxsplit=1) for line in text.splitlines() if line.strip())
    shown = [lines[name] for name in ("ok", "unparsed", "error", "correct", "accuracy")]
    assert shown == ["7", "1", "2", "5", "0.5"]


def test_p54_full_disk_stops_the_run(
    run: MakeRun, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands in for the disk: the same refusal to write."""
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -f 64\nexec {sys.executable} "$@"\n')
    limited.chmod(0o755)
    with running(lambda _: Reply("Option: A")) as simulator:
        job = run(simulator.url, rows(100))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(limited))
            result = job(*DIRECT, "--concurrency", "2", "--json")
        assert result.code == 3
        assert "cannot write" in " ".join(result.err.split())
        assert len(simulator.requests) < 100
        assert "cannot write" in job.manifest()["stopped"]
        assert job.manifest()["totals"]["done"] < 100
        assert job(*DIRECT).code == 0
    assert ids(job) == Counter(f"q{n}" for n in range(100))


def test_p54_folder_that_takes_no_file_is_refused(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(1))
        job.output = Path("/proc/out.jsonl")  # there not even root may make a file
        result = job(*DIRECT)
        assert simulator.requests == []
    assert result.code == 2
    assert "/proc" in result.err


@pytest.mark.parametrize("preset", ["code", None])
def test_p55_manifest_tells_how_to_get_the_same_score(
    run: MakeRun, rows: Rows, preset: str | None
) -> None:
    with running(lambda r: Reply("YES") if r.stage == "vote" else plausible(r)) as simulator:
        job = run(simulator.url, rows(1))
        assert job(*(["--preset", preset] if preset else []), "--top-p", "0.9").code == 0
    manifest = job.manifest()
    configuration = manifest["configuration"]
    named = {part.get("preset") for part in (manifest, configuration, manifest["arguments"])}
    assert (preset or "paper") in named
    assert (configuration["method"], configuration["model"]) == ("medagents", "simulator")
    assert (manifest["server_version"], manifest["input"]) == ("0.32.0", str(job.source))
    assert len(configuration["prompts"]) == len(manifest["configuration_digest"]) == 16
    assert configuration["input"]
    assert manifest["version"]
    for step in job.rows()[0]["trace"]:
        body = step["request"]
        parameters = configuration["parameters"]
        for name in ("temperature", "top_p"):
            assert body[name] == parameters[name]
        assert body["top_p"] == 0.9
        assert "".join(message["content"] for message in body["messages"])
