"""A real vLLM with a tiny random model, started as users start one, for all tests that want it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import until

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / ".models" / "tiny-random-llama"
KEY = "sk-of-the-real-server"


@dataclass(frozen=True)
class RealServer:
    url: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    if not (ROOT / ".venv-serve" / "installed.json").exists() or not MODEL.exists():
        pytest.skip("vLLM is not installed here; `make test` installs it where it can")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("vllm")
    ready, log = folder / "url", folder / "server.log"
    command = ["make", "-s", "serve"]
    settings = {"MODEL": str(MODEL), "PORT": str(port), "API_KEY": KEY, "READY_FILE": str(ready)}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until(lambda: ready.exists() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield RealServer(ready.read_text().strip(), {"MEDAGENTS_API_KEY": KEY})
        finally:
            # What Ctrl-C does in a terminal: the whole foreground group gets the signal.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=120)
    assert "the server has stopped" in log.read_text()
