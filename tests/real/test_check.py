"""What the server check says of a real server."""

from __future__ import annotations

import os
import subprocess
import sys

import orjson
import pytest

from tests.real.conftest import RealServer
from tests.real.server import ROOT
from tests.support.command import PATIENCE_S

pytestmark = pytest.mark.real


def test_check_finds_what_start_has_switched_on(vllm: RealServer) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "serve" / "check.py"), vllm.url, "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **vllm.env},
    )
    page = orjson.loads(done.stdout)
    found = page["found"]
    assert found["server"].startswith("vLLM 0.32")
    assert found["request ids"] == "kept"
    assert found["token details"] == "told"
    assert found["prefix cache"].startswith("on: ")
    assert found["system messages"].startswith("taken; without one the template adds its own")
    assert "structured_outputs" in found["constrained replies"]
    assert found["seeds"] == "honoured"
    assert "tokens: some" in found["KV cache"]
    assert done.returncode == 1
    assert [line.split(":")[0] for line in page["change"]] == ["MAX_MODEL_LEN=8192 or more"]
