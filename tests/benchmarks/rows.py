"""What a benchmark says: one row a measure, held to its bound."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BOUNDS = Path(__file__).with_name("bounds.toml")


def bounds(part: str) -> dict[str, float]:
    """The bounds of one part, by name."""
    found: dict[str, float] = tomllib.loads(BOUNDS.read_text())[part]
    return found


@dataclass
class Findings:
    """The rows of one part and the figures they come from; `skipped` says why there are none."""

    part: str
    rows: list[Row] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        return all(row["ok"] for row in self.rows)

    def at_most(self, measure: str, value: float, bound: float, note: str = "") -> None:
        self._add(measure, value, f"≤ {bound:g}", value <= bound, note)

    def at_least(self, measure: str, value: float, bound: float, note: str = "") -> None:
        self._add(measure, value, f"≥ {bound:g}", value >= bound, note)

    def exactly(self, measure: str, value: float, bound: float, note: str = "") -> None:
        self._add(measure, value, f"= {bound:g}", value == bound, note)

    def tell(self, measure: str, value: float, note: str = "") -> None:
        """A figure that no bound holds."""
        self._add(measure, value, None, True, note)

    def _add(self, measure: str, value: float, bound: str | None, ok: bool, note: str) -> None:
        row = {"measure": measure, "value": value, "bound": bound, "ok": ok, "note": note}
        self.rows.append(row)
