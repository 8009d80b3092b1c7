"""What came of a sweep: one page of tables, and the same as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.sweeps.plan import Cell, Sweep
from jobs.sweeps.runs import manifest


def write(sweep: Sweep, folder: Path) -> str:
    """Write report.md and report.json into `folder`; returns the page."""
    found = [(cell, manifest(cell).get("totals") or {}) for cell in sweep.cells]
    page = "\n".join(_page(sweep, found)) + "\n"
    (folder / "report.md").write_text(page, encoding="utf-8")
    rows = [
        {"server": c.server, "data": c.data.name, "method": c.method, "seed": c.seed, **totals}
        for c, totals in found
    ]
    (folder / "report.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return page


def _page(sweep: Sweep, found: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterator[str]:
    seeds = len({cell.seed for cell in sweep.cells})
    yield f"# {sweep.title}\n"
    yield (
        "Accuracy in %, errors and unparsed replies counted as wrong"
        + (f"; mean ± standard deviation over {seeds} seeds." if seeds > 1 else ".")
        + " `*`: not all runs of the cell are done."
    )
    for missing in sweep.left_out:
        yield f"\nLeft out: {missing}."
    sets = sweep.names("data")
    for server in sweep.names("server"):
        yield f"\n## {server}\n"
        yield _line(["method", *sets, "calls", "tokens in", "out", "unparsed", "errors"])
        yield _line(["---", *["---:"] * (len(sets) + 5)])
        for method in sweep.names("method"):
            mine = [(c, t) for c, t in found if (c.server, c.method) == (server, method)]
            by_set = [[t for c, t in mine if c.data.name == name] for name in sets]
            yield _line([method, *map(_accuracy, by_set), *_costs([t for _, t in mine])])
    yield "\nCalls and tokens are a question's mean; unparsed and errors the sum over all runs."


def _accuracy(runs: Sequence[dict[str, Any]]) -> str:
    values = [100 * run["accuracy"] for run in runs if run.get("accuracy") is not None]
    if not values:
        return "–"
    whole = all(run and run["done"] == run["questions"] for run in runs)
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}{'' if whole else ' *'}"


def _costs(runs: Sequence[dict[str, Any]]) -> list[str]:
    done = sum(run.get("done", 0) for run in runs)
    each = [
        f"{sum(run.get(name, 0) for run in runs) / done:,.1f}" if done else "–"
        for name in ("calls", "prompt_tokens", "completion_tokens")
    ]
    return [*each, *(str(sum(run.get(name, 0) for run in runs)) for name in ("unparsed", "error"))]


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(words) + " |"
