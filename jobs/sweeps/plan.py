"""A sweep file, read into its runs.

::

    title = "…"                     # of the report
    seeds = [0, 1, 2]               # of sampling, and of which questions where `sample` is given
    [options]                       # of every run, as the batch command has them, in any table here
    sample = 300
    [[server]]                      # runs of one server follow one another, servers go side by side
    name = "llama-8b"
    base-url = "${MEDAGENTS_BASE_URL}"
    [[data]]
    name = "MedQA"
    path = "medqa.jsonl"            # or convert = ["medqa", "${MEDAGENTS_DATA}/test.jsonl"]
    optional = true                 # left out, and named, where its files are not there
    [[method]]
    name = "CoT + SC"               # `method` where that is no method's name
    method = "self-consistency"
    preset = "paper"
    set = { samples = 5 }
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medagents_async.errors import UsageError

TABLES = ("server", "data", "method")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Data:
    """Where questions are, or from which published files they are made."""

    name: str
    path: Path
    convert: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One run of the batch command."""

    server: str
    data: Data
    method: str
    seed: int
    output: Path
    options: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.server} · {self.data.name} · {self.method} · seed {self.seed}"


@dataclass(frozen=True)
class Sweep:
    """All runs in the order of the file; `left_out` names the data that is not there."""

    title: str
    cells: list[Cell]
    left_out: list[str]

    def names(self, kind: str) -> list[str]:
        """The distinct servers, data sets or methods, in order."""
        values = (cell.data.name if kind == "data" else getattr(cell, kind) for cell in self.cells)
        return list(dict.fromkeys(values))


def read(path: Path, folder: Path) -> Sweep:
    """The runs that `path` asks for, with outputs in `folder`. Raises UsageError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    unknown = sorted(set(document) - {"title", "seeds", "options", *TABLES})
    if unknown:
        raise UsageError(f"{path}: {', '.join(unknown)}: no part of a sweep file")
    for table in TABLES:
        entries = document.get(table)
        if not isinstance(entries, list) or not all(entry.get("name") for entry in entries):
            raise UsageError(f"{path}: want [[{table}]], at least one, each with a name")
        names = [slug(entry["name"]) for entry in entries]
        if len(set(names)) < len(names):
            raise UsageError(f"{path}: two [[{table}]] would share a folder; rename one")
    sets, left_out = _sets(document["data"], path.parent, folder)
    cells = list(_cells(document, sets, folder))
    if not cells:
        raise UsageError(f"{path}: no data is there: {', '.join(left_out)}")
    return Sweep(str(document.get("title", path.stem)), cells, left_out)


def _sets(
    entries: Sequence[Mapping[str, Any]], base: Path, folder: Path
) -> tuple[list[tuple[Data, Mapping[str, Any]]], list[str]]:
    found, left_out = [], []
    for entry in entries:
        name, making = str(entry["name"]), tuple(entry.get("convert", ()))
        try:
            if making:
                words = (making[0], *(str(base / expanded(word)) for word in making[1:]))
                made = folder / "data" / f"{slug(name)}.jsonl"
                data, needed = Data(name, made, words), [Path(word) for word in words[1:]]
            else:
                data = Data(name, base / expanded(str(entry.get("path", ""))))
                needed = [data.path]
            missing = [str(one) for one in needed if not one.exists() and not data.path.is_file()]
            if missing:
                raise UsageError(f"{', '.join(missing)}: no such file")
        except UsageError as error:
            if not entry.get("optional"):
                raise
            left_out.append(f"{name} ({error})")
            continue
        found.append((data, entry))
    return found, left_out


def _cells(
    document: Mapping[str, Any], sets: Sequence[tuple[Data, Mapping[str, Any]]], folder: Path
) -> Iterator[Cell]:
    for server in document["server"]:
        for data, entry in sets:
            for method in document["method"]:
                given = {"method": method.get("method", method["name"])}
                tables = (document.get("options", {}), server, entry, given, method)
                place = folder / slug(server["name"]) / slug(data.name) / slug(method["name"])
                for seed in document.get("seeds", [0]):
                    yield Cell(
                        str(server["name"]),
                        data,
                        str(method["name"]),
                        int(seed),
                        place / f"seed-{seed}.jsonl",
                        (*_options(tables), "--seed", str(seed)),
                    )


def _options(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Words for the command line; what stands in a later table wins."""
    own = {"name", "path", "convert", "optional"}
    merged: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for table in tables:
        settings |= table.get("set", {})
        merged |= {key: value for key, value in table.items() if key not in own | {"set"}}
    for key, value in merged.items():
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                yield f"--{key}"
            elif one is not False:
                yield from (f"--{key}", expanded(str(one)))
    for key, value in settings.items():
        yield from ("--set", f"{key}={expanded(str(value))}")


def expanded(text: str) -> str:
    """`text` with the value of each ${VARIABLE}. Raises UsageError where one is not set."""

    def value(match: re.Match[str]) -> str:
        try:
            return os.environ[match[1]]
        except KeyError:
            raise UsageError(f"${match[1]} is not set") from None

    return _VARIABLE.sub(value, text)


def slug(name: object) -> str:
    """`name` as the name of a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", str(name).lower()).strip("-.") or "unnamed"
