"""What a campaign counts, and how it says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from medagents_async.simulator import Reply, Request
from tests.support.command import Run


@dataclass
class Line:
    """One row of the table. `bad` counts what must be 0."""

    name: str
    questions: int
    statuses: Counter[str]
    kinds: Counter[str]
    bad: dict[str, int] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not any(self.bad.values())


class Sound:
    """A script that counts the sound replies of another one, by call: no call may get two."""

    def __init__(self, script: Callable[[Request], Reply], faults: Collection[Reply]) -> None:
        self._script, self._faults = script, faults
        self._answered = Counter[str]()

    def __call__(self, request: Request) -> Reply:
        reply = self._script(request)
        self._answered[request.request_id] += not any(reply is fault for fault in self._faults)
        return reply

    @property
    def repeated(self) -> int:
        calls = (count for name, count in self._answered.items() if not name.startswith("probe/"))
        return sum(max(0, count - 1) for count in calls)


def judge(
    name: str, job: Run, wanted: int, clean: dict[str, Any], expected_errors: dict[str, str]
) -> Line:
    """Hold the rows of `job` against those of an undisturbed run, `clean`, by question id.

    `expected_errors` maps the questions that must fail to the kind of their error.
    """
    rows = job.rows()
    by_id = {row["id"]: row for row in rows}
    wrong = 0
    for identity, row in by_id.items():
        if identity in expected_errors:
            error = row["error"] or {}
            wrong += row["status"] != "error" or error.get("kind") != expected_errors[identity]
            wrong += row["prediction"] is not None
        else:
            wrong += job.steady(row) != clean[identity]
    return Line(
        name,
        wanted,
        Counter(row["status"] for row in rows),
        Counter(row["error"]["kind"] for row in rows if row["error"]),
        {"lost": wanted - len(by_id), "doubled": len(rows) - len(by_id), "wrong": wrong},
    )


def show(title: str, lines: list[Line]) -> bool:
    """Print the table; True when every line is sound."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("what", no_wrap=True)
    names = ["questions", "ok", "unparsed", "error", *lines[0].bad]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("kinds of error", no_wrap=True)
    for line in lines:
        counts = [line.statuses[status] for status in ("ok", "unparsed", "error")]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(line.kinds.items()))
        values = [line.questions, *counts, *line.bad.values()]
        table.add_row(line.name, *map(str, values), kinds, style=None if line.sound else "red")
    Console(width=150).print(table)
    return all(line.sound for line in lines)
