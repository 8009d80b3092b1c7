"""Published question sets by name, and input: rows checked before anything is sent, read lazily.

A set is a function from one published record to a draft of a row. Adding a set is adding a file
to this folder.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from medagents_async.datasets.drafts import Draft, Making
from medagents_async.datasets.sources import Hub, Record, Sources
from medagents_async.errors import UsageError

#: (record), or (record, what `study` found out) → a draft. Raises BadRow or LeftOut.
RowFunction = Callable[..., Draft]
F = TypeVar("F", bound=RowFunction)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A published set: how its records become rows, and what `convert --list` says about it.

    `study` looks at all the files before the first row is made. `patterns` says which files of a
    folder are meant, `aside` which files say something about the records and hold none, `columns`
    what a CSV file without a header has. A JSON line with the keys `marks` is known for one of
    this set by `batch`, too.
    """

    name: str
    title: str
    row: RowFunction
    files: str
    published: str
    licence: str = "not stated here: ask its publisher"
    hub: Hub | None = None
    study: Callable[[Sources, Making], Any] | None = None
    patterns: tuple[str, ...] = ("*.jsonl", "*.json", "*.csv", "*.parquet")
    aside: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()

    def maker(self, sources: Sources, making: Making) -> Callable[[Record], Draft]:
        """The function from a record to its draft. Raises UsageError where a file is missing."""
        if self.study is None:
            return self.row
        known = self.study(sources, making)
        return lambda record: self.row(record, known)


_REGISTRY: dict[str, Dataset] = {}


def dataset(name: str, **facts: Any) -> Callable[[F], F]:
    """Register the decorated function as the set `name`; `facts` are the fields of Dataset.

    Its title is the first line of the function's docstring.
    """

    def register(function: F) -> F:
        title = (function.__doc__ or name).splitlines()[0].rstrip(".")
        _REGISTRY[name] = Dataset(name=name, title=title, row=function, **facts)
        return function

    return register


@functools.cache
def every_dataset() -> Mapping[str, Dataset]:
    """All sets of this folder by name, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def find(name: str) -> Dataset:
    """The set called `name`. Raises UsageError when there is none."""
    sets = every_dataset()
    if name not in sets:
        raise UsageError(
            f"there is no set {name!r}; there are: {', '.join(sets)}. A file of your own needs "
            "no conversion: batch reads canonical rows"
        )
    return sets[name]


def recognised(document: Mapping[str, Any]) -> Dataset | None:
    """The set that a JSON line is a record of, by the keys that only this set has."""
    if "options" in document:
        return None  # canonical, or nearly
    sets = every_dataset().values()
    return next((one for one in sets if one.marks and one.marks <= document.keys()), None)
