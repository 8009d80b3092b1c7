"""The real command, as a user runs it: a process of its own, its files, its exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

#: No test may depend on how fast the machine is; this only ends a test that hangs.
PATIENCE_S = 240.0

#: What two runs may differ in: when and where calls were made, never what came out.
VOLATILE = {"seconds", "asked_s", "queued_s", "attempts", "server", "retries"}


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Run:
    """`batch` on files in `folder`: IN is written from `rows`, OUT is `out.jsonl`."""

    def __init__(self, folder: Path, url: str, rows: Sequence[Mapping[str, Any]] | bytes) -> None:
        self.folder, self.url = folder, url
        self.source, self.output = folder / "in.jsonl", folder / "out.jsonl"
        self.repeated = 0  # finished calls that were sent again, where a test counts them
        self.write(rows)

    def write(self, rows: Sequence[Mapping[str, Any]] | bytes) -> None:
        lines = rows if isinstance(rows, bytes) else b"".join(orjson.dumps(r) + b"\n" for r in rows)
        self.source.write_bytes(lines)

    def start(self, *options: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-m", "medagents_async.batch"]
        paths = [str(self.source), str(self.output), "--base-url", self.url]
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in ("MEDAGENTS_BASE_URL", "MEDAGENTS_API_KEY", "OPENAI_API_KEY")
        }
        return subprocess.Popen(
            [*command, *paths, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean, **(env or {})},
        )

    def __call__(self, *options: str, env: Mapping[str, str] | None = None) -> Result:
        return finish(self.start(*options, env=env))

    def rows(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.output.read_bytes().splitlines()]

    def manifest(self) -> dict[str, Any]:
        document: dict[str, Any] = orjson.loads((self.folder / "out.run.json").read_bytes())
        return document

    def journal(self) -> list[Path]:
        return list((self.folder / "out.journal").iterdir())

    @staticmethod
    def steady(row: dict[str, Any]) -> dict[str, Any]:
        """A row without what may differ between two runs."""
        kept: dict[str, Any] = _steady(row)
        return kept

    def canonical(self) -> bytes:
        """OUT sorted by (index, repeat), without what may differ between two runs."""
        rows = sorted(self.rows(), key=lambda row: (row["index"], row["repeat"]))
        return b"\n".join(orjson.dumps(_steady(row)) for row in rows)


def finish(process: subprocess.Popen[str], *, traceback: bool | None = False) -> Result:
    """Wait for the end; a traceback is a failure, unless it is wanted, or (None) may be there."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert traceback is None or ("Traceback" in err) is traceback, err
    return Result(process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)


def until(happened: Callable[[], object]) -> None:
    """Wait for a condition that must come about, however slow the machine is."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _steady(part) for name, part in value.items() if name not in VOLATILE}
    return [_steady(part) for part in value] if isinstance(value, list) else value
