"""`python -m medagents_async.merge SHARD.jsonl … -o OUT.jsonl`: outputs of `--shard` runs in one.

A million rows of any size merge in 125 MB: of each row only its place, its length and the keys
to sort by are kept, some 60 bytes with the sorting; the rows are copied from file to file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from medagents_async import manifest
from medagents_async.engine import jsonl
from medagents_async.engine.runner import Totals
from medagents_async.errors import OutputFailed, UsageError
from medagents_async.job import summary
from medagents_async.reporting import tables
from medagents_async.shards import Part, Rows, open_part

EPILOG = (
    "Exit status: 0 OUT is whole; 2 the files do not belong together, have gaps or doubles, "
    "nothing was written; 3 OUT cannot be written."
)
SHOWN = 20  # of what is missing or double
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def merge(paths: Sequence[Path], output: Path, *, partial: bool = False) -> dict[str, Any]:
    """Write the rows of `paths` to `output` by (index, repeat), its manifest beside it.

    Returns the totals, what is `missing`, and the servers' fingerprints. A single path is only
    sorted, whatever it lacks; with `partial`, several may lack rows, too. Raises UsageError where
    they do not belong together, OutputFailed.
    """
    with ExitStack() as stack:
        parts = [open_part(path, stack) for path in paths]
        _check_output(output, paths)
        _check_together(parts)
        rows, totals = _read(parts)
        _check_doubles(parts, rows)
        gaps = _gaps(parts, rows)
        if gaps and not partial and len(parts) > 1:
            raise UsageError(
                "rows are missing:\n" + "\n".join(f"  {gap}" for gap in gaps) + "\nRun those "
                "shards again to resume them, or join what there is with --partial"
            )
        document = _document(parts, totals, output)
        # The manifest goes first: without its mark a second merge would not write over OUT.
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        jsonl.replace(manifest.path_for(output), orjson.dumps(document, option=options))
        _write(parts, rows, output)
        fingerprints = document.get("system_fingerprint")
        return {**document["totals"], "missing": gaps, "system_fingerprint": fingerprints}


def _check_output(output: Path, paths: Sequence[Path]) -> None:
    if not output.exists():
        return
    if any(output.samefile(path) for path in paths):
        raise UsageError(f"{output} is one of the files to merge; write to another one")
    try:
        ours = "merged_from" in orjson.loads(manifest.path_for(output).read_bytes())
    except (OSError, orjson.JSONDecodeError, TypeError):
        ours = False
    if not ours:
        raise UsageError(f"{output} is there and no merge wrote it; write to another file")


def _check_together(parts: Sequence[Part]) -> None:
    """Raises UsageError: one configuration, one way to cut it, each shard once."""
    first = parts[0]
    for part in parts[1:]:
        before, now = first.document["configuration"], part.document["configuration"]
        changes = list(_differences(before, now))
        if changes:
            raise UsageError(
                f"{first.path} and {part.path} come from different configurations:\n"
                + "\n".join(changes)
            )
        for name, one, other in (
            ("--shard I/", first.shard[1], part.shard[1]),
            ("--repeats ", *(p.document["arguments"]["repeats"] for p in (first, part))),
            ("--limit ", first.selection.get("limit"), part.selection.get("limit")),
            ("--sample ", first.selection.get("sample"), part.selection.get("sample")),
        ):
            if one != other:
                raise UsageError(
                    f"{first.path} was run with {name}{one}, {part.path} with {name}{other}: "
                    "together they are no whole"
                )
    taken: dict[int, Path] = {}
    for part in parts:
        index, count = part.shard
        if index in taken and len(parts) > 1:
            raise UsageError(f"{taken[index]} and {part.path} are both shard {index}/{count}")
        taken[index] = part.path


def _read(parts: Sequence[Part]) -> tuple[Rows, Totals]:
    rows, totals = Rows(), Totals()
    for number, part in enumerate(parts):
        start = 0
        for line_number, line in enumerate(part.file, 1):
            if not line.endswith(b"\n"):
                part.torn = True  # a kill's last line; its run cuts it off when it resumes
            elif not line.isspace():
                try:
                    row = orjson.loads(line)
                    rows.add(row, number, start, len(line))
                    totals.add(row)
                except (ValueError, LookupError, TypeError, OverflowError) as error:
                    raise UsageError(
                        f"{part.path}, line {line_number} is no row of a run ({error})"
                    ) from error
                part.rows += 1
            start += len(line)
    return rows, totals


def _check_doubles(parts: Sequence[Part], rows: Rows) -> None:
    lines = []
    for pair in rows.doubles(SHOWN):
        one, other = (orjson.loads(rows.line(parts, place)) for place in pair)
        where = " and ".join(str(parts[rows.part[place]].path) for place in pair)
        same = [name for name in ("id", "index") if one[name] == other[name]]
        if same:  # else two ids with one hash
            value = f"{same[0]} {one[same[0]]!r}, repeat {one['repeat']}"
            lines.append(f"  {value}: in {where}")
    if lines:
        raise UsageError(
            "some questions have more than one row; did a resubmitted array cut the questions "
            "differently?\n" + "\n".join(lines)
        )


def _gaps(parts: Sequence[Part], rows: Rows) -> list[str]:
    """What is missing, a line each."""
    gaps = []
    count = parts[0].shard[1]
    absent = sorted(set(range(count)) - {part.shard[0] for part in parts})
    if absent:
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        names = ", ".join(f"{index}/{count}" for index in absent[:SHOWN])
        gaps.append(f"no output of shard {names}{more}")
    for part in parts:
        torn = "; its last line is torn" if part.torn else ""
        if part.wanted is None:
            gaps.append(f"{part.path}: its run did not end, {part.rows} rows so far{torn}")
        elif part.rows < part.wanted:
            gaps.append(f"{part.path}: {part.rows} of {part.wanted} rows{torn}")
    wanted = parts[0].all_wanted
    if wanted is not None and len(rows.index) != wanted:
        gaps.append(f"all together: {len(rows.index)} of {wanted} rows")
    return gaps


def _write(parts: Sequence[Part], rows: Rows, output: Path) -> None:
    scratch = output.with_name(output.name + ".tmp")
    try:
        with scratch.open("wb") as file:
            for place in rows.order():
                file.write(rows.line(parts, place))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(output)
    except OSError as error:
        raise OutputFailed(f"cannot write {output}: {error.strerror}") from error


def _document(parts: Sequence[Part], totals: Totals, output: Path) -> dict[str, Any]:
    """The manifest of a run that would have done it all: one value where all agree, else a list."""
    documents = [part.document for part in parts]
    document = {name: _agreed(documents, name) for name in documents[0]}
    document["configuration"] = documents[0]["configuration"]
    document["arguments"] = {**documents[0]["arguments"], "output": str(output)}
    if len(parts) > 1:
        document["arguments"]["selection"] = {**parts[0].selection, "shard": None}
    document["started"] = min(part["started"] for part in documents)
    ends = [part["ended"] for part in documents]
    document["ended"] = None if None in ends else max(ends)
    each = [part.wanted if part.wanted is not None else part.rows for part in parts]
    totals.expected = parts[0].all_wanted or sum(each)
    if len(parts) == 1:
        totals.expected = each[0]
    document["totals"] = {"output": str(output), **summary(totals, _span(document))}
    document["merged_from"] = [
        {"output": str(part.path), "shard": part.shard, "rows": part.rows}
        | {name: part.document.get(name) for name in ("server", "started", "ended", "totals")}
        for part in parts
    ]
    return document


def _agreed(documents: Sequence[Mapping[str, Any]], name: str) -> Any:
    values: list[Any] = [document.get(name) for document in documents]
    distinct: list[Any] = [
        value for place, value in enumerate(values) if value not in values[:place]
    ]
    if len(distinct) == 1:
        return distinct[0]
    if all(isinstance(value, list) for value in distinct):  # the servers of several runs
        return [one for value in distinct for one in value]
    return distinct


def _span(document: Mapping[str, Any]) -> float:
    """Seconds from the first shard's start to the last one's end, 0 where that is not known."""
    if document["ended"] is None:
        return 0.0
    begun, ended = (datetime.fromisoformat(document[name]) for name in ("started", "ended"))
    return (ended - begun).total_seconds()


def _differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """A line for each field (`parameters.rounds`) in which two configurations differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _differences(one.get(key), other.get(key), f"{name}.{key}".lstrip("."))
    elif one != other:
        first, second = (orjson.dumps(value).decode()[:200] for value in (one, other))
        yield f"  {name}: {first} and {second}"


@app.command(epilog=EPILOG)
def merge_command(
    shards: Annotated[
        list[Path], typer.Argument(metavar="SHARD.jsonl …", help="What batch wrote; one is sorted.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT.jsonl", help="All rows, sorted.")
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Join what there is, and say what is missing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on stdout.")] = False,
) -> None:
    """Join the outputs of --shard runs, sorted, as one run would have left them."""
    console = Console(stderr=True)
    try:
        totals = merge(shards, output, partial=partial)
    except (UsageError, OutputFailed) as error:
        console.print(tables.printable(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(error.exit_status) from error
    notes = [f"missing: {gap}" for gap in totals["missing"]]
    if isinstance(totals["system_fingerprint"], list):
        notes.append(f"the servers were not alike: {totals['system_fingerprint']}")
    for note in notes:
        console.print(note, style="yellow", markup=False, soft_wrap=True)
    if as_json:
        typer.echo(orjson.dumps(totals).decode())
    else:
        shown = {name: value for name, value in totals.items() if name != "missing"}
        Console().print(tables.summary(shown))


if __name__ == "__main__":
    app()
