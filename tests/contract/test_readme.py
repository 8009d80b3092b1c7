"""Every command in the README does what it is there for. `make …` is run by the CI script."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medagents_async.simulator import running

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


def test_make_targets_are_run_by_ci_or_by_the_real_tests() -> None:
    targets = {line for line in COMMANDS if line.startswith("make")}
    assert targets == {"make demo", "make test", "make serve"}
    ci = (ROOT / ".ci" / "run").read_text()
    assert "\nmake demo\n" in ci
    assert "\nmake test\n" in ci


def test_commands_run_one_after_another(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "panel.py").write_text(blocks("python")[0], encoding="utf-8")
    ours = [line for line in COMMANDS if line.startswith("python -m medagents_async")]
    assert len(ours) >= 9
    with running() as simulator:
        env = {**os.environ, "MEDAGENTS_BASE_URL": simulator.url}
        for line in ours:
            done = subprocess.run(
                [sys.executable, *shlex.split(line)[1:]],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, (line, done.stderr)
    rows = (tmp_path / "panel.jsonl").read_text().splitlines()
    assert len(rows) == 8
    assert all('"votes"' in row for row in rows)


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
