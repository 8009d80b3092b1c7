"""`bench`: figures of a method's own call graph, on simulated servers and on one with sockets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import running

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "medqa_sample.jsonl"


def bench(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "medagents_async.bench", str(EXAMPLES)]
    files = ["--json", str(folder / "bench.json"), "--html", str(folder / "bench.html")]
    return subprocess.run(
        [*command, *files, *options], capture_output=True, text=True, timeout=240, cwd=folder
    )


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((folder / "bench.json").read_bytes())
    return found


def test_simulated_server(tmp_path: Path) -> None:
    done = bench(
        tmp_path, "--simulate", "cpu-tiny", "--questions", "6", "--concurrency", "4,16,auto"
    )
    assert done.returncode == 0, done.stderr
    found = figures(tmp_path)
    assert [run["concurrency"] for run in found["runs"]] == [4, 16, "auto"]
    for run in found["runs"]:
        assert run["questions"] == 6
        assert run["errors"] == 0
        assert run["slot_seconds_idle_while_a_call_was_ready"] == 0
        assert {"recruit_question", "vote", "decide"} <= set(run["stages"])
        assert run["moments"][-1]["running"] is not None
    assert found["knee"] in (4, 16)
    assert found["limit"]["calls"] == found["knee_run"]["calls"]
    assert 0 < found["ratios"]["of the same calls without dependencies"] <= 1.01
    assert found["ratios"]["times as fast as one call after another"] > 1
    assert "knee" in done.stdout
    page = (tmp_path / "bench.html").read_text()
    assert page.count("<svg") == 3
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)


def test_simulated_figures_are_the_same_again(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("once", "again")]
    for folder in folders:
        folder.mkdir()
        options = ("--simulate", "cpu-tiny", "--questions", "3", "--concurrency", "8")
        assert bench(folder, *options, "--method", "self-consistency").returncode == 0
    first, second = (figures(folder)["knee_run"] for folder in folders)
    for name in ("seconds", "calls_per_s", "moments", "stages"):
        assert first[name] == second[name]


def test_two_simulated_servers_do_nearly_twice_as_much(tmp_path: Path) -> None:
    rates = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        servers = ["--simulate", "llama-3.1-8b-h100"] * count
        options = ("--questions", "8", "--concurrency", str(16 * count), "--sequential", "0")
        assert bench(folder, *servers, *options, "--method", "ensemble-refinement").returncode == 0
        rates.append(figures(folder)["knee_run"]["calls_per_s"])
    assert rates[1] > 1.6 * rates[0]


def test_server_with_sockets(tmp_path: Path) -> None:
    with running(latency=0.01) as simulator:
        options = ("--base-url", simulator.url, "--concurrency", "8", "--sequential", "5")
        done = bench(tmp_path, *options, "--questions", "3")
        salts = {request.body.get("cache_salt") for request in simulator.requests}
    assert done.returncode == 0, done.stderr
    found = figures(tmp_path)
    assert found["sequential"]["calls"] == 5
    assert found["knee_run"]["cpu_ms_per_call"] > 0
    assert len(salts) == 4  # the run, auto, and both replays: no cache knows them


@pytest.mark.parametrize(
    "options", [("--simulate", "no-such-gpu"), ("--concurrency", "x"), ("--concurrency", "auto")]
)
def test_what_makes_no_sense(tmp_path: Path, options: tuple[str, ...]) -> None:
    given = options if "--simulate" in options else ("--simulate", "cpu-tiny", *options)
    assert bench(tmp_path, *given, "--questions", "1").returncode == 2
