"""Processes and what they cost: user and system time of each and its children, whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson

PEERS = Path(__file__).parents[2] / ".venv-peers/bin/python"
NO_PEERS = "no .venv-peers here; `make bench-peers` makes it"
#: Only ends what hangs.
PATIENCE_S = 600.0

#: Nothing of the surroundings may reach a measured process; nothing of it may reach the network.
_DROPPED = ("MEDAGENTS_", "OPENAI_", "INSPECT_", "LMEVAL_", "PYTHON", "VIRTUAL_ENV")
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Cost:
    """What one process took, from its start to its exit, in seconds."""

    wall: float
    cpu: float


def measured(
    command: Sequence[str | Path],
    log: Path,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Cost:
    """Run `command` in `folder` to its end; what it says goes to `log`.

    Raises RuntimeError if it fails.
    """
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)
    }
    with log.open("wb") as out:
        begun = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**surroundings, **_QUIET, **(env or {})},
        )
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        # `wait4` and not the sum over all children: other processes run at the same time.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begun
        guard.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        said = log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{said}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


class Server:
    """The benchmark's server in a process of its own, and what it counted since the last reset."""

    def __init__(self, port: int, pid: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"
        self._pid = pid

    def reset(self, gate: int = 0) -> None:
        """Count anew; the first replies wait until `gate` calls are in flight."""
        with urlopen(f"{self.root}/reset/{gate}", data=b"", timeout=30):  # noqa: S310
            pass

    def counters(self) -> dict[str, int]:
        """`requests`, `peak` (most in flight at once), `bytes` of their bodies."""
        with urlopen(f"{self.root}/peak", timeout=30) as reply:  # noqa: S310
            counters: dict[str, int] = orjson.loads(reply.read())
        return counters

    def cpu(self) -> float:
        """Seconds that the server itself has taken so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(low: float, high: float) -> Iterator[Server]:
    """A server whose replies take `low` to `high` seconds."""
    command = [sys.executable, "-m", "tests.benchmarks.server", str(low), str(high)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()), process.pid)
    finally:
        process.terminate()
        process.communicate()


def batch(source: Path, output: Path, server: Server, *options: str) -> list[str]:
    """Our command, as a user runs it."""
    command = [sys.executable, "-m", "medagents_async.batch", str(source), str(output)]
    return [*command, "--base-url", server.url, *options]


def rows_with(path: Path, status: str) -> int:
    """How many rows of an OUT.jsonl have this status."""
    rows: Iterator[Any] = map(orjson.loads, path.read_bytes().splitlines())
    return sum(row["status"] == status for row in rows)
