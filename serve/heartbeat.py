"""Run a long command so that whoever waits can see it move."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from layout import say

_TELLING = ("Collecting", "Downloading", "Using cached", "Building", "Installing")


def run(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, every: float = 10.0
) -> int:
    """Run `argv` to its end, its output appended to `log`, with a line for people now and then.

    Args:
        argv: command and arguments.
        log: file that gets all of the output; made if missing.
        env: variables to add to this process's own.
        every: seconds between the lines that say what the command is at.

    Returns: the command's exit status. An exception here (Ctrl-C too) ends the command first.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"$ {' '.join(argv)}\n")
        sink.flush()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        latest, due = "working", time.monotonic() + every
        try:
            while True:
                try:
                    line = lines.get(timeout=max(0.0, due - time.monotonic()))
                except queue.Empty:
                    say(f"   … {latest}")
                    due = time.monotonic() + every
                    continue
                if line is None:
                    return process.wait()
                sink.write(line)
                sink.flush()
                latest = _tell(line) or latest
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    for line in process.stdout or ():
        lines.put(line)
    lines.put(None)


def _tell(line: str) -> str:
    """Return what a line of pip's output says about where it is; empty if nothing."""
    text = line.strip()
    if not text.startswith(_TELLING):
        return ""
    if text.startswith("Installing collected packages:"):
        return f"unpacking {text.count(',') + 1} packages (the longest part, and silent)"
    return text.split(" (from ")[0][:100]
