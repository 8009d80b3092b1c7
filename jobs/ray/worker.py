"""What an actor does: keep a server, run shards against it. Knows nothing of Ray."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIED = Path(__file__).with_name("tied.py")
START_S = 3600.0  # a first start downloads the model
SERVER = f"{sys.executable} serve/start.py"


@dataclass(frozen=True)
class Ended:
    """How a shard's run ended: its exit status and the end of what it said."""

    status: int
    said: str


class Worker:
    """Runs shards against `base_url`, or against a server of its own where that is None.

    `environment` holds the variables that decide about it and its key. `gpus` share one copy of the
    model. `server` is the command that starts it; it gets --port and --ready-file as
    `serve/start.py` does.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        base_url: str | None,
        gpus: int = 0,
        server: str | None = None,
    ) -> None:
        os.environ |= environment
        self._server: subprocess.Popen[bytes] | None = None
        self.base_url = base_url or self._start(gpus, server or SERVER)

    def _start(self, gpus: int, command: str) -> str:
        ready = Path(tempfile.mkdtemp()) / "url"
        with socket.socket() as probe:  # several servers of one node want a port each
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        # TERM, not KILL: start.py ends its server, whose processes nobody else would end.
        words = [*shlex.split(command), "--port", str(port), "--ready-file", str(ready)]
        environment = {**os.environ, "TP": os.environ.get("TP") or str(max(1, gpus))}
        self._server = subprocess.Popen(_tied("SIGTERM", words), cwd=ROOT, env=environment)
        deadline = time.monotonic() + START_S
        while not (ready.exists() and ready.stat().st_size):
            if self._server.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the server did not start: {command}")
            time.sleep(0.2)
        return ready.read_text().strip()

    def where(self) -> str:
        """For people: which process this is, and its server."""
        return f"process {os.getpid()} on {socket.gethostname()}, {self.base_url}"

    def run(self, source: Path, output: Path, shard: str, options: Sequence[str]) -> Ended:
        """Run or resume `shard` (I/N) of `source` onto `output`.

        Raises RuntimeError where the server of this worker is gone.
        """
        if self._server is not None and self._server.poll() is not None:
            raise RuntimeError("the server of this worker has ended")
        words = [sys.executable, "-m", "medagents_async.batch", str(source), str(output)]
        words += ["--base-url", self.base_url, "--shard", shard, "--json", *options]
        # KILL: every finished call is in the journal, and the lock on OUT is free at once.
        run = subprocess.run(
            _tied("SIGKILL", words),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return Ended(run.returncode, run.stderr[-2000:])

    def stop(self) -> None:
        """End the server in order."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


def _tied(number: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, str(TIED), number, str(os.getpid()), *words]
