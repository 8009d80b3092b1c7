"""Every command and every snippet of docs/results.md does what it is there for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from medagents_async.simulator import running
from tests.support.command import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]
RUNS = [line for line in COMMANDS if ".batch " in line]
REPORTS = [line for line in COMMANDS if ".report " in line and "inspect" not in line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with `medqa.jsonl` and `out.jsonl`, and the environment that names a server."""
    place = tmp_path_factory.mktemp("page")
    shutil.copy(ROOT / "examples" / "medqa_sample.jsonl", place / "medqa.jsonl")
    with running() as simulator:
        env = {**os.environ, "MEDAGENTS_BASE_URL": simulator.url}
        run("python -m medagents_async.batch medqa.jsonl out.jsonl", place, env)
        yield place, env


def run(line: str, place: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def test_every_command_is_one_of_ours() -> None:
    assert all(line.startswith("python -m medagents_async.") for line in COMMANDS)
    assert len(RUNS) >= 11


@pytest.mark.parametrize("line", RUNS)
def test_runs_are_what_the_command_takes(line: str, folder: tuple[Path, dict[str, str]]) -> None:
    place, env = folder
    shown = run(f"{line} --dry-run", place, env)
    wanted = re.search(r"--repeats (\d)", line)
    assert f"8 questions x {wanted[1] if wanted else 1};" in shown


@pytest.mark.parametrize("line", REPORTS)
def test_reports_are_made(line: str, folder: tuple[Path, dict[str, str]]) -> None:
    """The runs that a line compares are made up of one: what they hold is shown elsewhere."""
    place, env = folder
    manifest = orjson.loads((place / "out.run.json").read_bytes())
    for number, name in enumerate(re.findall(r"\S+\.jsonl", line)):
        if not (place / name).exists():
            shutil.copy(place / "out.jsonl", place / name)
            manifest["configuration"]["seed"] = number
            beside = place / name.replace(".jsonl", ".run.json")
            beside.write_bytes(orjson.dumps(manifest))
    run(line, place, env)


@pytest.mark.parametrize("snippet", blocks("python"), ids=["pandas", "polars", "duckdb"])
def test_other_tools_read_out(
    snippet: str, folder: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Rows whose error comes late, when a reader has already made up its mind on the columns."""
    place, env = folder
    lines = (place / "out.jsonl").read_bytes().splitlines()
    rows = [orjson.loads(lines[n % len(lines)]) for n in range(300)]
    for number, row in enumerate(rows):
        row |= {"id": f"{number:04}", "subject": "anatomy", "correct": number % 4 == 0}
        if number > 250:
            row |= {"status": "error", "prediction": None, "detail": {"x": [number]}}
            row["error"] = {"kind": "timeout", "message": "…", "stage": "vote"}
            row["trace"] = []
    (tmp_path / "out.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "anatomy" in done.stdout
    assert "0.25" in done.stdout
