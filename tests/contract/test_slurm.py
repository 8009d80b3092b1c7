"""The Slurm job files without a Slurm: what they run, and what they ask of it.

`make slurm` runs them under a real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from medagents_async.simulator import running
from tests.conftest import question_row
from tests.support.command import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("--method", "cot")


class Slurm:
    """A folder with questions, and stand-ins for the commands that jobs call."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"
        self.source, self.output = folder / "in.jsonl", folder / "out.jsonl"
        self.rows = [question_row(n) for n in range(20)]
        self.source.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in self.rows))
        self.state = "RUNNING"
        for name, body in (("squeue", 'echo "$STATE"'), ("scontrol", f'echo "$@" >>{self.calls}')):
            path = folder / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)

    def start(self, file: str, *words: object, **env: object) -> subprocess.Popen[str]:
        settings = {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "SLURM_SUBMIT_DIR": ROOT,
            "SLURM_JOB_ID": 7,
            "STATE": self.state,
            **env,
        }
        return subprocess.Popen(
            ["bash", str(ROOT / "jobs" / "slurm" / file), *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **{name: str(value) for name, value in settings.items()}},
        )

    def run(self, file: str, *words: object, **env: object) -> tuple[int, str]:
        process = self.start(file, *words, **env)
        said = process.communicate(timeout=PATIENCE_S)[1]
        return process.returncode, said

    @property
    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def ids(self) -> list[str]:
        return sorted(orjson.loads(line)["id"] for line in self.output.read_bytes().splitlines())


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def task(number: int, count: int, first: int = 0, step: int = 1) -> dict[str, int]:
    last = first + (count - 1) * step
    numbers = {"ID": first + number * step, "COUNT": count, "MIN": first, "MAX": last, "STEP": step}
    return {f"SLURM_ARRAY_TASK_{name}": value for name, value in numbers.items()}


def test_tasks_run_shards_and_the_merge_joins_them(slurm: Slurm) -> None:
    words = (slurm.source, slurm.output, *OPTIONS)
    with running() as one, running() as other:
        urls = f"{one.url} {other.url}"
        for number in range(3):
            status, said = slurm.run(
                "array.sbatch", *words, BASE_URLS=urls, **task(number, 3, first=5, step=2)
            )
            assert status == 0, said
        assert one.served > 0
        assert other.served > 0
        status, said = slurm.run("merge.sbatch", slurm.output)
        assert status == 0, said
        assert slurm.ids() == sorted(row["id"] for row in slurm.rows)

        asked = one.arrivals + other.arrivals
        status, said = slurm.run("array.sbatch", *words, BASE_URLS=urls, **task(0, 2))
        assert (status, "cut into 3 shards, not 2" in said) == (2, True)
        again = {**task(0, 1, first=2), "SHARDS": 3}
        assert slurm.run("array.sbatch", *words, BASE_URLS=urls, **again)[0] == 0
        assert one.arrivals + other.arrivals == asked, "shard 2 of 3 was done"
    assert slurm.asked == []


@pytest.mark.parametrize(("state", "requeues"), [("RUNNING", ["requeue 7"]), ("COMPLETING", [])])
def test_a_job_that_is_asked_to_stop(slurm: Slurm, state: str, requeues: list[str]) -> None:
    slurm.state = state
    words = (slurm.source, slurm.output, *OPTIONS, "--concurrency", "2")
    with running(latency=0.1) as simulator:
        process = slurm.start("node.sbatch", *words, BASE_URLS=simulator.url)
        until(lambda: simulator.served > 4)
        if state == "COMPLETING":  # every process gets the signal then, the run as well
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 130, said
        assert slurm.asked == requeues
        assert 0 < len(slurm.ids()) < 20
        assert slurm.run("node.sbatch", *words, BASE_URLS=simulator.url)[0] == 0
        assert simulator.repeated == 0
    assert slurm.ids() == sorted(row["id"] for row in slurm.rows)


@pytest.mark.parametrize(
    ("ends_with", "turn", "status", "requeues"),
    [(1, 0, 3, ["requeue 7"]), (1, 3, 3, []), (2, 0, 2, [])],
)
def test_a_server_that_does_not_start(
    slurm: Slurm, ends_with: int, turn: int, status: int, requeues: list[str]
) -> None:
    server = slurm.folder / "server.sh"
    server.write_text(f"exit {ends_with}\n")
    found, said = slurm.run(
        "node.sbatch",
        *(slurm.source, slurm.output),
        SERVER=f"bash {server}",
        SLURM_RESTART_COUNT=turn,
    )
    assert (found, slurm.asked) == (status, requeues), said


def test_a_job_starts_and_stops_its_server(slurm: Slurm) -> None:
    server = f"{sys.executable} -m medagents_async.simulator --api-key secret"
    status, said = slurm.run(
        "node.sbatch", slurm.source, slurm.output, *OPTIONS, SERVER=server, API_KEY="secret"
    )
    assert status == 0, said
    assert len(slurm.ids()) == 20
