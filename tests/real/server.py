"""A real vLLM that tests may start, stop in any way, and start again on the same port."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.command import until

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / ".models" / "tiny-random-llama"
INSTALLED = (ROOT / ".venv-serve" / "installed.json").exists() and MODEL.exists()
KEY = "sk-of-the-real-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Vllm:
    """vLLM with a tiny random model, or another `model`.

    With `make` it is started as a user does, else by `serve/start.py`.
    """

    folder: Path
    extra: str = ""
    make: bool = False
    model: Path = MODEL
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def log(self) -> str:
        return (self.folder / "start.log").read_text()

    def start(self) -> None:
        ready = self.folder / "url"
        ready.unlink(missing_ok=True)
        script = ["serve/start.py", "--ready-file", str(ready)]
        command = (
            ["make", "-s", "serve", f"READY_FILE={ready}"] if self.make else ["python3", *script]
        )
        settings = {
            "MODEL": str(self.model),
            "PORT": str(self.port),
            "API_KEY": KEY,
            "EXTRA": self.extra,
        }
        with (self.folder / "start.log").open("wb") as sink:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **settings},
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self._process
        until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, self.log

    def interrupt(self) -> None:
        """What Ctrl-C does in a terminal: the whole foreground group gets the signal."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def signal_server(self, number: signal.Signals) -> None:
        os.kill(self._server_pid(), number)

    def kill_engine(self) -> None:
        """The process that computes, a child of the one that answers."""
        parent = self._server_pid()
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        engine = next(
            int(child) for child in children if "Engine" in Path(f"/proc/{child}/comm").read_text()
        )
        os.kill(engine, signal.SIGKILL)

    def gone(self) -> None:
        """Wait until the process that was started has ended."""
        assert self._process is not None
        self._process.wait(timeout=120)

    def _server_pid(self) -> int:
        found = re.search(r"starting vLLM, process (\d+)", self.log)
        assert found, self.log
        return int(found[1])
