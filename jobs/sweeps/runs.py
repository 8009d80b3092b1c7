"""Run the cells of a sweep: processes of the batch command, one at a time for each server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.sweeps.plan import Cell, Data, Sweep
from medagents_async.errors import UsageError
from medagents_async.manifest import path_for

REFUSED, GONE, INTERRUPTED = 2, 3, 130


@dataclass
class Runs:
    """The runs of `sweep`; `say` tells people what goes on."""

    sweep: Sweep
    say: Callable[[str], None]
    statuses: dict[str, int] = field(default_factory=dict)  # by the label of the cell
    _children: list[subprocess.Popen[str]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Let the runs in progress write and end, start none any more."""
        self._stop.set()
        for child in list(self._children):
            if child.poll() is None:
                child.terminate()

    def run(self) -> int:
        """Run what is not done yet; returns the gravest exit status. Raises UsageError."""
        for data in {cell.data.path: cell.data for cell in self.sweep.cells}.values():
            make(data)
        lanes = [
            [cell for cell in self.sweep.cells if cell.server == server]
            for server in self.sweep.names("server")
        ]
        with ThreadPoolExecutor(len(lanes)) as pool:
            for lane in [pool.submit(self._lane, lane) for lane in lanes]:
                lane.result()
        if self._stop.is_set():
            return INTERRUPTED
        return max(self.statuses.values(), default=0)

    def _lane(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            if self._stop.is_set():
                return
            if is_done(cell):
                self.statuses[cell.label] = 0
                continue
            self.statuses[cell.label] = status = self._batch(cell)
            if status == GONE:
                self.say(f"{cell.server} is gone: its other runs wait for the next time")
                return

    def _batch(self, cell: Cell) -> int:
        cell.output.parent.mkdir(parents=True, exist_ok=True)
        note(cell).write_text(json.dumps(cell.options), encoding="utf-8")
        log = cell.output.with_suffix(".log")
        self.say(f"{cell.label}: running, log {log}")
        with log.open("a", encoding="utf-8") as sink:
            # A session of its own: Ctrl-C would reach it beside `stop`, and a second signal ends a
            # run at once.
            child = subprocess.Popen(
                command(cell),
                stdout=subprocess.DEVNULL,
                stderr=sink,
                text=True,
                start_new_session=True,
            )
            self._children.append(child)
            if self._stop.is_set():
                child.terminate()
            status = child.wait()
        totals = manifest(cell).get("totals") or {}
        accuracy = totals.get("accuracy")
        shown = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        self.say(f"{cell.label}: status {status}{shown}")
        if status == REFUSED:
            self.say("   " + log.read_text(encoding="utf-8").strip()[-500:])
        return status


def command(cell: Cell) -> list[str]:
    """The words that run a cell."""
    paths = [str(cell.data.path), str(cell.output)]
    return [sys.executable, "-m", "medagents_async.batch", *paths, *cell.options, "--json"]


def make(data: Data) -> None:
    """Convert published files to rows, once. Raises UsageError."""
    if not data.convert or data.path.is_file():
        return
    data.path.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "medagents_async.convert", *data.convert, "-o", str(data.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{data.name}: {done.stderr.strip()}")


def note(cell: Cell) -> Path:
    """Where the options of the cell's last run are: other options must reach the batch command."""
    return cell.output.with_suffix(".options.json")


def manifest(cell: Cell) -> dict[str, Any]:
    """The manifest of the cell's output, empty where there is none."""
    try:
        document: dict[str, Any] = json.loads(path_for(cell.output).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return document


def is_done(cell: Cell) -> bool:
    """Whether another run would find nothing to do: all questions are done, none in error."""
    try:
        before = json.loads(note(cell).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return False
    totals = manifest(cell).get("totals") or {"questions": 0, "done": -1}
    whole = totals["done"] == totals["questions"] and not totals["error"]
    return whole and before == list(cell.options) and cell.output.is_file()
