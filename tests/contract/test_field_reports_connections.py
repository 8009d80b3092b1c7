"""Faults that users of such evaluators reported, P38 to P47: connections, overload and retries.

P46, throughput that collapses beyond some concurrency, is left to benchmarks: it is about time, and
a test that measures time depends on the machine.
"""

from __future__ import annotations

import asyncio
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from medagents_async.simulator import Reply, Request, Simulator, plausible, running
from tests.support.command import PATIENCE_S, Run, finish, kill, until

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
DIRECT = ["--set", "stages=direct"]
MIB = 1024


class Gate:
    """A script that holds all replies but the first `free` ones until `open`.

    The request number `last`, from 0, opens it, too.
    """

    def __init__(self, *, free: int = 0, last: int | None = None) -> None:
        self._free, self._last = free, last
        self._opened = asyncio.Event()

    async def __call__(self, request: Request) -> Reply:
        if request.arrival == self._last:
            self._opened.set()
        if request.arrival >= self._free:
            await self._opened.wait()
        return Reply("Option: A")

    async def open(self) -> None:
        self._opened.set()


@pytest.fixture
def open_files() -> Iterator[None]:
    """Room for a thousand connections on the server's side, too, which is this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if wanted < 2048:
        pytest.skip("the system allows too few open files for a thousand connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wait_for(simulator: Simulator, *, in_flight: int = 0, arrivals: int = 0) -> None:
    until(lambda: simulator.in_flight >= in_flight and len(simulator.requests) >= arrivals)


def resident_kib(process: subprocess.Popen[str]) -> int:
    """The most memory that `process` has had so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1])


def children(process: subprocess.Popen[str]) -> list[str]:
    parents = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.append(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return [parent for parent in parents if parent == str(process.pid)]


def test_p38_four_hundred_in_flight(run: MakeRun, rows: Rows) -> None:
    """Nothing is answered before all 400 are there, so a smaller pool could never go on."""
    with running(Gate(last=399)) as simulator:
        job = run(simulator.url, rows(1000))
        assert job(*DIRECT, "--concurrency", "400").code == 0
        assert simulator.max_in_flight == 400
        assert len(simulator.requests) == 1000
    assert job.manifest()["totals"]["retries"] == 0


def test_p39_few_open_files(
    run: MakeRun, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -n 256\nexec {sys.executable} "$@"\n')
    limited.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(limited))
    gate = Gate()
    with running(gate) as simulator:
        job = run(simulator.url, rows(600))
        process = job.start(*DIRECT, "--concurrency", "1000")
        wait_for(simulator, in_flight=128)
        simulator.call(gate.open())
        result = finish(process)
        assert simulator.max_in_flight < 256
    assert result.code == 0
    assert "open files" in result.err
    totals = job.manifest()["totals"]
    assert (totals["ok"], totals["retries"]) == (600, 0)


def test_p40_time_limit_is_generous_reported_and_counted(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        return Reply("Option: A", fault="hang" if request.question_id == "q0" else None)

    with running(script) as simulator:
        job = run(simulator.url, rows(2))
        assert job(*DIRECT, "--limit", "1", "--timeout", "0.2", "--retries", "1").code == 1
        assert len(simulator.requests) == 2
        (row,) = job.rows()
        assert (row["error"]["kind"], row["retries"]) == ("timeout", 1)
        assert "--timeout" in row["error"]["message"]
        assert job.manifest()["totals"]["retries"] == 1
        assert job.manifest()["arguments"]["timeout"] == 0.2
        other = run(simulator.url, rows(2)[1:], "other")
        assert other(*DIRECT).code == 0
    assert other.manifest()["arguments"]["timeout"] >= 600


def test_p41_retries_do_not_multiply(run: MakeRun, rows: Rows) -> None:
    with running(lambda _: Reply(status=503)) as simulator:
        job = run(simulator.url, rows(4))
        assert job(*DIRECT, "--retries", "3").code == 1
        asked = Counter(request.request_id for request in simulator.requests)
    assert list(asked.values()) == [4] * 4
    assert {row["retries"] for row in job.rows()} == {3}


def test_p42_memory_does_not_grow_with_the_number_of_questions(run: MakeRun, rows: Rows) -> None:
    """Looked at when all but the last eight questions are done, so at the peak of the whole run."""
    peaks = []
    for count in (100, 3000):
        questions = [{**row, "context": "He has oedema. " * 500} for row in rows(count)]
        with running(Gate(free=count - 8), max_model_len=8192) as simulator:
            job = run(simulator.url, questions, str(count))
            process = job.start(*DIRECT, "--concurrency", "8", "--trace", "off")
            wait_for(simulator, arrivals=count)
            peaks.append(resident_kib(process))
            kill(process)
            assert simulator.max_in_flight == 8
    assert peaks[1] - peaks[0] < 16 * MIB


def test_p43_dead_engine_ends_the_run_and_is_resumed(run: MakeRun, rows: Rows) -> None:
    dead = asyncio.Event()

    def agreeing(request: Request) -> Reply:
        return Reply("YES") if request.stage == "vote" else plausible(request)

    def script(request: Request) -> Reply:
        if request.arrival == 50:
            dead.set()
            simulator.set_health(False)
        return Reply(status=500) if dead.is_set() else agreeing(request)

    with running(agreeing) as simulator:
        undisturbed = run(simulator.url, rows(5), "undisturbed")
        assert undisturbed().code == 0
    with running(script) as simulator:
        job = run(simulator.url, rows(5))
        result = job("--concurrency", "4", "--server-grace", "0.5")
        assert result.code == 3
        assert "resume" in result.err
        decided = {r.question_id for r in simulator.requests[:50] if r.stage == "decide"}
        assert {row["id"] for row in job.rows()} == decided > set()
        dead.clear()
        simulator.set_health(True)
        assert job("--concurrency", "4").code == 0
        assert simulator.repeated == 0  # no reply was asked for twice
    assert job.canonical() == undisturbed.canonical()


TWICE = """
import asyncio, sys
from pathlib import Path
from rich.console import Console
from medagents_async import job
from medagents_async.plan import Job

for output in sys.argv[3:]:
    todo = Job(input=Path(sys.argv[2]), output=Path(output), base_urls=sys.argv[1:2])
    print(asyncio.run(job.run(todo, Console(stderr=True)))["ok"])
"""


def test_p44_two_runs_in_one_process(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(2))
        outputs = [str(job.folder / name) for name in ("one.jsonl", "two.jsonl")]
        command = [sys.executable, "-W", "error", "-c", TWICE, simulator.url, str(job.source)]
        done = subprocess.run(
            [*command, *outputs], capture_output=True, text=True, timeout=PATIENCE_S
        )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["2", "2"], "")


@pytest.mark.usefixtures("open_files")
def test_p45_a_thousand_in_flight_are_one_small_process(run: MakeRun, rows: Rows) -> None:
    gate = Gate()
    with running(gate) as simulator:
        job = run(simulator.url, rows(1000))
        process = job.start(*DIRECT, "--concurrency", "1000")
        wait_for(simulator, in_flight=1000)
        assert children(process) == []
        assert resident_kib(process) < 256 * MIB
        simulator.call(gate.open())
        assert finish(process).code == 0


def test_p47_retry_after_is_waited_for(run: MakeRun, rows: Rows) -> None:
    def script(request: Request) -> Reply:
        busy = request.attempt == 0
        return Reply(status=429, headers={"Retry-After": "2"}) if busy else Reply("Option: A")

    with running(script) as simulator:
        job = run(simulator.url, rows(1))
        assert job(*DIRECT).code == 0
    (row,) = job.rows()
    assert (row["status"], row["retries"]) == ("ok", 1)
    assert row["seconds"] >= 2


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "Incorrect API key provided"), (404, "The model `simulator` does not exist.")],
    ids=["401", "404"],
)
def test_p47_what_is_wrong_for_every_call_stops_the_run_at_once(
    run: MakeRun, rows: Rows, status: int, words: str
) -> None:
    """The list of models was fine, so only the first calls can tell."""
    with running(lambda _: Reply(status=status, error=words)) as simulator:
        job = run(simulator.url, rows(20))
        result = job(*DIRECT, "--concurrency", "4")
        asked = Counter(request.request_id for request in simulator.requests)
    assert result.code in (2, 3)
    assert words in " ".join(result.err.split())
    assert len(asked) <= 4
    assert set(asked.values()) == {1}


def test_p47_unknown_model_stops_the_run_before_any_call(run: MakeRun, rows: Rows) -> None:
    with running() as simulator:
        job = run(simulator.url, rows(1))
        result = job("--model", "other")
        assert simulator.requests == []
    assert result.code == 2
    assert "does not serve 'other'; choose one with --model: simulator" in " ".join(
        result.err.split()
    )
