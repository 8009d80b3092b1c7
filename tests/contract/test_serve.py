"""What the server check says; recipes and units that agree with `serve/start.py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from medagents_async.simulator import Reply, Request, plausible, running
from tests.support.command import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "serve" / "start.py"


# The server check


def check(url: str, *options: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "serve" / "check.py"), url, "--json", *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(env or {})},
    )
    assert "Traceback" not in done.stderr, done.stderr
    page: dict[str, Any] = orjson.loads(done.stdout)
    return done.returncode, page


def test_check_of_a_server_that_has_everything() -> None:
    with running(plausible, prefix_cache=True, api_key="k") as simulator:
        status, page = check(simulator.url, env={"API_KEY": "k"})
    assert (status, page["change"]) == (0, [])
    found = page["found"]
    assert found["server"] == "vLLM 0.32.0"
    assert found["context"] == "16,384 tokens"
    assert found["system messages"] == "taken"
    assert found["prefix cache"].startswith("on: ")
    assert found["constrained replies"] == "structured_outputs, response_format"
    assert found["seeds"] == "honoured"


def test_check_says_what_to_change() -> None:
    def poor(request: Request) -> Reply:
        if request.system:
            return Reply(status=400, error="System role not supported")
        text = "<think>Let me see.</think>Blue" if "colour" in request.user else "Yes."
        return Reply(f"{text} {request.arrival}")

    with running(poor, max_model_len=2048) as simulator:
        status, page = check(simulator.url)
    assert status == 1
    found, change = page["found"], " ".join(page["change"])
    assert found["system messages"] == "refused (400)"
    assert found["thinking"] == "in the answer's text"
    assert found["token details"] == "not told"
    assert found["constrained replies"] == "none"
    assert found["seeds"] == "not honoured"
    for word in ("MAX_MODEL_LEN=8192", "--enable-prompt-tokens-details", "--reasoning-parser"):
        assert word in change


def test_check_of_what_is_no_server() -> None:
    with running(plausible, api_key="k") as simulator:
        status, page = check(simulator.url)
    assert (status, "answers 401" in page["change"][0]) == (2, True)
    status, page = check("http://127.0.0.1:9/v1")
    assert (status, "answers 0" in page["change"][0]) == (2, True)


# Recipes and units


def checked(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("MODEL", "TP")}
    return subprocess.run(
        [sys.executable, str(ROOT / "serve" / "start.py"), "--check", *options],
        capture_output=True,
        text=True,
        env={**clean, **env},
    )


def test_a_recipe_sets_what_is_not_set_otherwise(tmp_path: Path) -> None:
    fp8 = checked(RECIPE="llama-3.3-70b-fp8").stdout
    assert "serve meta-llama/Llama-3.3-70B-Instruct" in fp8
    assert "--tensor-parallel-size=2" in fp8
    assert fp8.endswith("--quantization fp8\n")
    other = checked("--model", "other", RECIPE="llama-3.3-70b-fp8", TP="4").stdout
    assert "serve other" in other
    assert "--tensor-parallel-size=4" in other
    (tmp_path / "my.env").write_text("# mine\nMODEL=mine\n")
    assert "serve mine" in checked(RECIPE=str(tmp_path / "my.env")).stdout
    unknown = checked(RECIPE="nothing")
    assert unknown.returncode == 2
    assert "llama-3.1-8b" in unknown.stderr


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "serve/recipes").glob("*.env")))
def test_every_recipe_makes_a_command(name: str) -> None:
    done = checked(RECIPE=name)
    assert done.returncode == 0, done.stderr
    assert "--max-model-len=16384" in done.stdout


@pytest.mark.parametrize("unit", ["compose.yaml", "kubernetes.yaml"])
def test_units_have_the_flags_of_start(unit: str) -> None:
    text = (ROOT / "serve" / "units" / unit).read_text()
    block = START.read_text().split("\nFLAGS = [")[1].split("\n]")[0]
    flags = [*re.findall(r'"(--[a-z-]+)', block), "--max-model-len", "--tensor-parallel-size"]
    assert len(flags) >= 7
    for flag in flags:
        assert f"- {flag}" in text
    for variable in ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        assert variable in text


def test_systemd_takes_the_unit() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    unit = ROOT / "serve" / "units" / "medagents-vllm@.service"
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "medagents-vllm" not in done.stderr, done.stderr


def test_scripts_pass_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed here")
    scripts = [*ROOT.glob("jobs/slurm/*.sbatch"), *ROOT.glob("jobs/slurm/*.sh")]
    scripts += ROOT.glob("serve/*.sh")
    done = subprocess.run(["shellcheck", "-x", *scripts], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
