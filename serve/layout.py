"""Where the serving environment, models and logs lie, and how the scripts here talk to people."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVE = Path(__file__).resolve().parent
ROOT = SERVE.parent
VENV = ROOT / ".venv-serve"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
MODELS = ROOT / ".models"
SMALL_MODEL = MODELS / "smollm2-135m-instruct"
TINY_MODEL = MODELS / "tiny-random-llama"
LOGS = ROOT / ".serve"

_started = time.monotonic()


def say(text: str) -> None:
    """Print `text` for people, on stderr, behind the seconds since the script started."""
    print(f"[{time.monotonic() - _started:5.0f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold `folder`, which exists, against other scripts that hold it; wait for them first."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another script that works in {folder.name}/")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # gives the lock up, as does the end of the process


def last_lines(log: Path, count: int) -> str:
    """Return the last `count` lines of `log`, indented; empty if there is no such file."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in lines[-count:])


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; empty if it is missing or no JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
