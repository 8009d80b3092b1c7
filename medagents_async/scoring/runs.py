"""A run as scoring sees it: its records, and what its manifest says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import orjson

from medagents_async.scoring.records import Record


@dataclass(frozen=True)
class Run:
    """`name` is that of the file without `.jsonl`; `manifest` is empty where there is none."""

    name: str
    records: Sequence[Record]
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def configured(self, name: str) -> Any:
        return (self.manifest.get("configuration") or {}).get(name)

    @property
    def seed(self) -> int | None:
        seed: int | None = self.configured("seed")
        return seed

    @property
    def dataset(self) -> str:
        """The input's name without its ending, or the run's own."""
        source = self.manifest.get("input")
        return PurePath(source).name.removesuffix(".jsonl") if source else self.name

    @property
    def system(self) -> str:
        """Equal for runs that differ in nothing but seed and questions."""
        configuration = self.manifest.get("configuration")
        if not configuration:
            return self.name
        kept = {key: part for key, part in configuration.items() if key not in ("seed", "input")}
        return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode()

    @property
    def facts(self) -> dict[str, Any]:
        """What a report's head shows."""
        return {
            "name": self.name,
            "method": self.configured("method"),
            "preset": self.manifest.get("preset"),
            "model": self.configured("model"),
            "dataset": self.dataset,
            "seed": self.seed,
            "started": self.manifest.get("started"),
            "ended": self.manifest.get("ended"),
        }

    def wall(self) -> tuple[float | None, bool]:
        """Seconds that the run took, and whether they are an estimate.

        The manifest of a resumed run has the time of its last part and how many questions an hour
        that part made; all are taken to have come at that pace. None where no part is on record.
        """
        totals = self.manifest.get("totals") or {}
        seconds, pace = totals.get("seconds"), totals.get("questions_per_hour")
        if not seconds or not pace:
            return None, False
        made = pace * seconds / 3600
        if made >= len(self.records) - 0.5:
            return seconds, False
        return seconds * len(self.records) / made, True


def labels(runs: Sequence[Run]) -> dict[str, str]:
    """A short name of each system: the first of these that tells all of them apart."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.system, run)
    candidates: list[Callable[[Run], list[Any]]] = [
        lambda run: [run.configured("method")],
        lambda run: [run.configured("method"), run.manifest.get("preset")],
        lambda run: [run.configured("method"), _last(run.configured("model"))],
        lambda run: [
            run.configured("method"),
            run.manifest.get("preset"),
            _last(run.configured("model")),
        ],
        lambda run: [run.name],
    ]
    for parts in candidates:
        named = {
            system: " ".join(str(part) for part in parts(run) if part)
            for system, run in first.items()
        }
        if all(named.values()) and len({*named.values()}) == len(named):
            return named
    return {system: f"{run.name} ({n})" for n, (system, run) in enumerate(first.items(), 1)}


def _last(model: str | None) -> str | None:
    return model and PurePath(model).name
