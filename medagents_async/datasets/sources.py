"""Published files, record by record: JSON lines, JSON, CSV, Parquet, or a split of a hub."""

from __future__ import annotations

import csv
import fnmatch
import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import orjson

from medagents_async.errors import UsageError


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of `source`, a file's stem: on `line` of it (from 1), the `row`-th (from 0).

    `fields` holds it as published; `key` is its name where the file is one JSON object.
    """

    source: str
    line: int
    row: int
    fields: dict[str, Any]
    key: str | None = None
    folder: Path | None = None

    @property
    def name(self) -> str:
        """What it is called where it has no id of its own."""
        return f"{self.source}-{self.row}"


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that holds no record."""

    line: int
    reason: str


class Source(Protocol):
    """Where records come from; `label` is for people."""

    @property
    def label(self) -> str: ...

    def records(self) -> Iterator[Record | Broken]: ...


@dataclass(frozen=True)
class Sources:
    """The sources of rows, and the files that say something about them."""

    rows: Sequence[Source]
    aside: Sequence[Path] = ()

    def records(self) -> Iterator[Record]:
        """All that can be read."""
        for source in self.rows:
            yield from (one for one in source.records() if isinstance(one, Record))

    def document(self, pattern: str) -> Any:
        """The JSON of the one file aside that is called so; None without it."""
        found = [path for path in self.aside if fnmatch.fnmatch(path.name, pattern)]
        if len(found) > 1:
            raise UsageError(f"{found[0]} and {found[1]}: one {pattern} is wanted")
        return _json(found[0]) if found else None


@dataclass(frozen=True)
class Hub:
    """A set on the Hugging Face hub: its repository, its configurations, its split."""

    repository: str
    split: str
    configurations: tuple[str | None, ...] = (None,)
    images: str | None = None  # the column that holds them


@dataclass(frozen=True)
class HubSplit:
    """One configuration's split, read with the `datasets` library."""

    hub: Hub
    configuration: str | None
    split: str

    @property
    def label(self) -> str:
        return f"{self.hub.repository} {self.configuration or ''} {self.split}".replace("  ", " ")

    def records(self) -> Iterator[Record | Broken]:
        library = optional("datasets", "hub")
        try:
            rows = library.load_dataset(self.hub.repository, self.configuration, split=self.split)
        except Exception as error:  # of many libraries: the network's, the hub's, the set's own
            raise UsageError(f"--hub {self.label}: {type(error).__name__}: {error}") from error
        if self.hub.images:  # as bytes: nothing here wants them decoded
            rows = rows.cast_column(self.hub.images, library.Image(decode=False))
        name = "_".join(filter(None, (self.configuration, self.split)))
        for row, fields in enumerate(rows):
            yield Record(name, row + 1, row, dict(fields))


@dataclass(frozen=True)
class File:
    """A local file; `columns` are those of a CSV file that has no header.

    `lines` says that it holds JSON lines, whatever it is called.
    """

    path: Path
    columns: Sequence[str] = ()
    lines: bool = False

    @property
    def label(self) -> str:
        return self.path.name

    def records(self) -> Iterator[Record | Broken]:
        """Raises UsageError where the file is of no kind that is read here."""
        readers = {".jsonl": _lines, ".json": _json_records, ".parquet": _parquet}
        reader = _lines if self.lines else readers.get(self.path.suffix)
        found = reader(self.path) if reader else _csv(self.path, self.columns)
        for row, (line, fields, key) in enumerate(found):
            if isinstance(fields, dict):
                yield Record(self.path.stem, line, row, fields, key, self.path.parent)
            else:
                yield Broken(line, fields if isinstance(fields, str) else "not a JSON object")


def optional(module: str, extra: str) -> ModuleType:
    """A library that only some sets want. Raises UsageError saying how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this wants the library {module.partition('.')[0]}: "
            f"pip install 'medagents-async[{extra}]'"
        ) from error


def local(paths: Iterable[Path], patterns: Sequence[str], aside: Sequence[str]) -> list[Path]:
    """The files meant by `paths`: of a folder those that match, in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            wanted = (*patterns, *aside)
            names = sorted(one for one in path.iterdir() if matches(one, wanted) and one.is_file())
            if not names:
                raise UsageError(f"{path} holds no file {' or '.join(wanted)}")
            found += names
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such file")
    return found


def matches(path: Path, patterns: Iterable[str]) -> bool:
    """Whether a file's name is one that a pattern means."""
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


#: (line, the record or the reason why there is none, key) for each entry of a file.
Found = Iterator[tuple[int, Any, str | None]]


def _lines(path: Path) -> Found:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip()
            if line:
                try:
                    yield number, orjson.loads(line), None
                except orjson.JSONDecodeError as error:
                    yield number, f"not JSON: {error}", None


def _json(path: Path) -> Any:
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error


def _json_records(path: Path) -> Found:
    """A list of records, an object of them, or (pandas' way) an object of columns.

    Some sets call JSON lines `.json`. The entries of a document are counted as lines, from 1.
    """
    if _holds_lines(path):
        yield from _lines(path)
        return
    document = _json(path)
    if not isinstance(document, list | dict):
        raise UsageError(f"{path} holds neither a list nor an object")
    if isinstance(document, list):
        yield from ((line, entry, None) for line, entry in enumerate(document, 1))
    elif isinstance(document.get("question"), list | dict):
        columns = {name: _column(values) for name, values in document.items()}
        for line, key in enumerate(columns["question"], 1):
            yield line, {name: values.get(key) for name, values in columns.items()}, None
    else:
        yield from ((line, entry, key) for line, (key, entry) in enumerate(document.items(), 1))


def _holds_lines(path: Path) -> bool:
    """Whether the first line is an object that holds more than records or columns."""
    with path.open("rb") as file:
        first = file.readline().removeprefix(b"\xef\xbb\xbf")
    try:
        document = orjson.loads(first)
    except orjson.JSONDecodeError:
        return False
    return isinstance(document, dict) and not all(
        isinstance(value, dict | list) for value in document.values()
    )


def _column(values: Any) -> dict[Any, Any]:
    return values if isinstance(values, dict) else dict(enumerate(values))


def _csv(path: Path, columns: Sequence[str]) -> Found:
    """Cells are texts, empty ones too. A file without a header has `columns`."""
    with path.open(encoding="utf-8-sig", newline="") as file:  # CRLF inside cells stays
        reader = csv.reader(file, strict=True)
        header: list[str] | None = None
        line = 0
        try:
            for cells in reader:
                line, start = reader.line_num, line + 1
                if not any(cells):
                    continue
                if header is None:
                    named = not columns or "question" in (cell.casefold() for cell in cells)
                    header = [cell.strip() for cell in cells] if named else list(columns)
                    if named:
                        continue
                if len(cells) == len(header):
                    yield start, dict(zip(header, cells, strict=True)), None
                else:
                    yield start, f"{len(cells)} cells, and {len(header)} columns", None
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is no text that can be read here: {error}") from error
        except csv.Error as error:
            yield line + 1, f"not CSV: {error}", None


def _parquet(path: Path) -> Found:
    parquet = optional("pyarrow.parquet", "hub")
    try:
        batches = parquet.ParquetFile(path).iter_batches(batch_size=64)  # rows may hold images
        rows = (fields for batch in batches for fields in batch.to_pylist())
        yield from ((line, fields, None) for line, fields in enumerate(rows, 1))
    except (OSError, ValueError) as error:  # PyArrow's errors are these, too
        raise UsageError(f"{path} is no Parquet file that can be read: {error}") from error
