"""Work past one box: sweeps, and Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from jobs.sweeps import plan
from medagents_async.errors import UsageError
from medagents_async.simulator import Simulator, plausible, running
from tests.campaigns.kills import on_record
from tests.conftest import question_row
from tests.support.command import PATIENCE_S, Run, until

ROOT = Path(__file__).resolve().parents[2]
RAY = ROOT / ".venv-ray" / "bin" / "python"


# Sweeps


SWEEP = """
title = "Two methods"
seeds = [0, 1]
[options]
sample = 5
concurrency = 8
[[server]]
name = "One"
base-url = "${FIRST}"
[[server]]
name = "Other"
base-url = "${SECOND}"
[[data]]
name = "Questions"
path = "in.jsonl"
[[data]]
name = "Not there"
path = "elsewhere.jsonl"
optional = true
[[method]]
name = "CoT"
method = "cot"
[[method]]
name = "CoT + SC"
method = "self-consistency"
set = { samples = 2 }
"""


@pytest.fixture
def servers() -> Iterator[tuple[Simulator, Simulator]]:
    with running(plausible) as one, running(plausible) as other:
        yield one, other


def start(*words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


def sweep(
    folder: Path, servers: tuple[Simulator, Simulator], text: str = SWEEP, *options: str
) -> tuple[int, str, str]:
    (folder / "sweep.toml").write_text(text)
    (folder / "in.jsonl").write_bytes(
        b"".join(orjson.dumps(question_row(n)) + b"\n" for n in range(12))
    )
    urls = {"FIRST": servers[0].url, "SECOND": servers[1].url}
    process = start("jobs.sweeps", folder / "sweep.toml", folder / "runs", *options, env=urls)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def test_a_sweep_runs_every_cell_and_reports(
    tmp_path: Path, servers: tuple[Simulator, Simulator]
) -> None:
    status, out, err = sweep(tmp_path, servers)
    assert status == 0, err
    outputs = sorted((tmp_path / "runs").rglob("seed-?.jsonl"))
    assert len(outputs) == 8
    assert all(len(path.read_bytes().splitlines()) == 5 for path in outputs)
    first, second = (outputs[0].read_bytes(), outputs[1].read_bytes())
    assert {json.loads(line)["id"] for line in first.splitlines()} != {
        json.loads(line)["id"] for line in second.splitlines()
    }
    assert out.strip() == (tmp_path / "runs" / "report.md").read_text().strip()
    assert "## One" in out
    assert "## Other" in out
    assert re.search(r"\| CoT \+ SC \| [\d.]+ ± [\d.]+ \| 2\.0 \|", out)
    assert "Left out: Not there" in out
    cells = json.loads((tmp_path / "runs" / "report.json").read_text())
    assert [cell["done"] for cell in cells] == [5] * 8
    asked = servers[0].arrivals, servers[1].arrivals

    assert sweep(tmp_path, servers)[0] == 0
    assert (servers[0].arrivals, servers[1].arrivals) == asked, "a finished sweep sends nothing"

    status, _, err = sweep(tmp_path, servers, SWEEP.replace("samples = 2", "samples = 3"))
    assert status == 2
    assert "parameters.samples" in err


def test_an_interrupted_sweep_goes_on(tmp_path: Path, servers: tuple[Simulator, Simulator]) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    rows = [question_row(n) for n in range(12)]
    (tmp_path / "in.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    urls = {"FIRST": servers[0].url, "SECOND": servers[1].url}
    words = ("jobs.sweeps", tmp_path / "sweep.toml", tmp_path / "runs")
    process = start(*words, env=urls)
    until(lambda: servers[0].arrivals > 7)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Two methods" in out
    status, _, err = sweep(tmp_path, servers)
    assert status == 0, err
    for server in servers:  # two cells may ask the same question under the same id
        calls = [(request.request_id, request.raw) for request in server.requests]
        assert len(set(calls)) == len(calls), "a finished call was asked again"
    outputs = sorted((tmp_path / "runs").rglob("seed-?.jsonl"))
    assert [len(path.read_bytes().splitlines()) for path in outputs] == [5] * 8


def test_one_server_that_is_gone_leaves_the_others_running(
    tmp_path: Path, servers: tuple[Simulator, Simulator]
) -> None:
    text = SWEEP.replace("${SECOND}", "http://127.0.0.1:9/v1")
    status, out, _ = sweep(tmp_path, servers, text)
    assert status == 2, "a server that never answered is a mistake in the file"
    assert len(list((tmp_path / "runs" / "one").rglob("seed-?.jsonl"))) == 4
    assert "| CoT | – |" in out


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("title", "titel", "titel: no part"),
        ("${FIRST}", "${NOWHERE}", r"\$NOWHERE is not set"),
        ("optional = true", "", "elsewhere.jsonl: no such file"),
        ('name = "Other"', 'name = "one"', "share a folder"),
        ("[[method]]", "[[methods]]", "methods: no part"),
        ('name = "CoT"\n', "", "each with a name"),
        ("[0, 1]", "[0, 1", "no TOML"),
    ],
)
def test_a_sweep_file_that_is_wrong(
    tmp_path: Path, before: str, after: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("SECOND", "http://127.0.0.1:9/v1")
    (tmp_path / "in.jsonl").write_text("")
    (tmp_path / "sweep.toml").write_text(SWEEP.replace(before, after))
    with pytest.raises(UsageError, match=reason):
        plan.read(tmp_path / "sweep.toml", tmp_path / "runs")


def test_published_files_are_converted_once(
    tmp_path: Path, servers: tuple[Simulator, Simulator]
) -> None:
    published = {
        "question": "Which measure?",
        "answer": "rest",
        "options": {"A": "rest", "B": "work"},
        "meta_info": "step1",
        "answer_idx": "A",
    }
    (tmp_path / "published.jsonl").write_text(json.dumps(published) + "\n")
    text = SWEEP.replace('path = "in.jsonl"', 'convert = ["medqa", "published.jsonl"]')
    assert sweep(tmp_path, servers, text)[0] == 0
    made = tmp_path / "runs" / "data" / "questions.jsonl"
    written = made.stat().st_mtime_ns
    assert sweep(tmp_path, servers, text)[0] == 0
    assert made.stat().st_mtime_ns == written


@pytest.mark.parametrize("path", sorted((ROOT / "jobs" / "sweeps").glob("*.toml")), ids=str)
def test_the_papers_tables_name_what_there_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method, preset and parameter exists, on whatever data."""
    from medagents_async import methods
    from medagents_async.batch import setting

    class Everything(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return "/nowhere"

    monkeypatch.setattr("os.environ", Everything(os.environ))
    monkeypatch.setattr(Path, "exists", lambda _: True)
    for cell in plan.read(path, Path("runs")).cells:
        words = list(cell.options)
        pairs = list(pairwise(words))
        given = {name: value for name, value in pairs if name in ("--method", "--preset")}
        settings = dict(setting(value) for name, value in pairs if name == "--set")
        method = methods.find(given["--method"])
        preset = given.get("--preset") or ("paper" if "paper" in method.presets else None)
        method.parameters(preset, settings)


# Ray


@pytest.fixture
def ray() -> None:
    if not RAY.exists() or subprocess.run([RAY, "-c", "import ray"]).returncode:
        pytest.skip("Ray is not installed; `make setup-ray` makes .venv-ray")


@pytest.mark.ray
def test_a_killed_actor_loses_nothing(ray: None, tmp_path: Path) -> None:
    rows = [question_row(n) for n in range(40)]
    with running(latency=0.05) as one, running(latency=0.05) as other:
        job = Run(tmp_path, one.url, rows)
        words = [str(job.source), str(job.output), "--workers", "2", "--shards", "6"]
        words += ["--base-url", one.url, "--base-url", other.url, "--address", "local"]
        victim, recorded, sent, said = 0, set[str](), [0, 0], []
        with on_ray(*words, "--", "--concurrency", "4") as process:
            for line in process.stderr or ():
                said.append(line)
                found = re.search(r"worker 0: process (\d+)", line)
                if found and not victim:
                    victim = int(found[1])
                    until(lambda: one.served > 150)
                    os.kill(victim, signal.SIGKILL)
                    time.sleep(0.5)  # until the kernel has ended what was tied to it
                    sent = [len(one.requests), len(other.requests)]
                    outputs = (tmp_path / "out.shards").glob("*.jsonl")
                    recorded = set[str]().union(*map(recorded_in, outputs))
        assert process.returncode == 0, "".join(said)
        again = {request.request_id for request in one.requests[sent[0] :]}
        again |= {request.request_id for request in other.requests[sent[1] :]}
    assert "worker 0 is lost" in "".join(said)
    ids = [row["id"] for row in job.rows()]
    assert sorted(ids) == sorted(row["id"] for row in rows)
    assert again & recorded == set(), "a finished call was asked again"


@pytest.mark.ray
def test_an_actor_starts_and_stops_its_own_server(ray: None, tmp_path: Path) -> None:
    job = Run(tmp_path, "", [question_row(n) for n in range(12)])
    server = f"{sys.executable} -m medagents_async.simulator"
    words = [str(job.source), str(job.output), "--workers", "2", "--gpus", "0"]
    words += ["--server", server]
    with on_ray(*words, "--address", "local", "--", "--method", "cot") as process:
        said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert len({row["id"] for row in job.rows()}) == len(job.rows()) == 12
    assert "12 rows in" in said
    servers = {part["server"] for part in job.manifest()["merged_from"]}
    assert len(servers) == 2
    for url in servers:
        port = int(url.split(":")[2].split("/")[0])
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", port))


def on_ray(*words: str) -> subprocess.Popen[str]:
    command = [str(RAY), "-m", "jobs.ray", *words]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def recorded_in(output: Path) -> set[str]:
    """Calls on record in one shard's output and journal."""

    class Shard:
        def __init__(self) -> None:
            self.output = output

    shard: Any = Shard()
    shard.folder = output.parent
    found = on_record(shard)
    for path in output.with_suffix(".journal").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            found.add(orjson.loads(line)["call"])
    return found
