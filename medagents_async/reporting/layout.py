"""A report as tables of values, before anything is decided about how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from medagents_async.scoring.intervals import Interval

Kind = Literal["share", "points", "p", "money"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit and what is known of its precision.

    `share` is of 1 and shown in percent, `points` is a difference of shares, `p` a significance.
    """

    value: float | None
    kind: Kind = "share"
    interval: Interval | None = None
    sd: float | None = None


Cell = str | int | float | Quantity | None


@dataclass(frozen=True)
class Table:
    """The first cell of a row names it. `limit` is how many rows a screen shows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str | None = None
    limit: int | None = None


def text(cell: Cell) -> str:
    """A cell as people read it, in any format."""
    value = cell.value if isinstance(cell, Quantity) else cell
    if value is None:
        return "–"
    if isinstance(cell, Quantity):
        return _quantity(cell, float(value))
    if isinstance(value, float):
        return f"{value:,.2f}"
    return value if isinstance(value, str) else f"{value:,}"


def _quantity(cell: Quantity, value: float) -> str:
    interval = cell.interval
    if cell.kind == "p":
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    if cell.kind == "money":
        return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"
    if cell.kind == "points":
        shown = f"{100 * value:+.1f}"
        if interval is not None:
            shown += f" ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
        return shown
    if cell.sd is not None:
        return f"{value:.1%} ± {100 * cell.sd:.1f}"
    if interval is not None:
        return f"{value:.1%} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"
    return f"{value:.1%}"
