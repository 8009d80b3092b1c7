"""`python -m medagents_async.convert DATASET SRC … -o IN.jsonl`: published sets to rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from medagents_async import datasets
from medagents_async.datasets.conversion import Account, BadRecords
from medagents_async.datasets.conversion import convert as converted
from medagents_async.datasets.drafts import Making
from medagents_async.datasets.pictures import Pictures
from medagents_async.datasets.sources import File, HubSplit, Sources, local, matches
from medagents_async.errors import UsageError
from medagents_async.reporting.tables import printable

EPILOG = (
    "Exit status: 0 IN is written; 2 it is not, and the message says what to change. IN appears "
    "in one piece or not at all; the same files and --seed give the same bytes."
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _list(wanted: bool) -> None:
    if not wanted:
        return
    for one in datasets.every_dataset().values():
        typer.echo(f"{one.name}  {one.title}")
        typer.echo(f"    files: {one.files}\n    published: {one.published}")
        typer.echo(f"    licence: {one.licence}")
        if one.hub:
            typer.echo(f"    --hub: {one.hub.repository}, split {one.hub.split}")
    raise typer.Exit


@app.command(epilog=EPILOG)
def convert(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A name that --list shows.")],
    source: Annotated[
        list[Path] | None, typer.Argument(metavar="SRC", help="Published files, or their folder.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="IN.jsonl", help="The rows, for batch.")
    ] = Path("in.jsonl"),
    hub: Annotated[
        bool, typer.Option("--hub", help="From the Hugging Face hub, in place of SRC.")
    ] = False,
    split: Annotated[str | None, typer.Option(help="Another split of the hub's.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of wrong options that are made here.")
    ] = Making.seed,
    choices: Annotated[
        int, typer.Option(min=2, max=26, help="Options to make where a set has none.")
    ] = Making.choices,
    images: Annotated[
        Path | None, typer.Option(help="The folder of images or videos (default: SRC's).")
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="Frames of a video.")] = Making.frames,
    explanations: Annotated[
        bool, typer.Option("--explanations", help="Keep them, for rows that serve as examples.")
    ] = False,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows")] = False,
    list_sets: Annotated[
        bool,
        typer.Option(
            "--list", callback=_list, is_eager=True, help="The sets, their files, their sources."
        ),
    ] = False,
) -> None:
    """Convert a published data set's files to the rows that batch reads."""
    del list_sets  # whose callback did all
    console = Console(stderr=True, highlight=False)
    try:
        found = datasets.find(dataset)
        sources = _sources(found, source or [], hub=hub, split=split)
        _check(output, source or [])
        making = Making(
            seed=seed, choices=choices, frames=frames, pictures=Pictures(output, images)
        )
        account = Account()
        rows = converted(found, sources, making, account, explanations=explanations)
        scratch = output.with_name(output.name + ".tmp")
        try:
            with scratch.open("wb") as file:
                file.writelines(rows)
                file.flush()
                os.fsync(file.fileno())
            if account.problems and not skip_bad_rows:
                raise BadRecords(account.problems)
            if not account.written:
                raise UsageError(f"no record makes a row: {dict(account.left_out) or 'none read'}")
            scratch.replace(output)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        console.print(printable(f"{error}"), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    except UsageError as error:
        console.print(printable(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(error.exit_status) from error
    for line in _told(found.title, account, output):
        console.print(printable(line), markup=False, soft_wrap=True)


def _sources(
    dataset: datasets.Dataset, paths: list[Path], *, hub: bool, split: str | None
) -> Sources:
    """Where the rows come from. Raises UsageError."""
    if hub and paths:
        raise UsageError("SRC or --hub, not both")
    if hub and dataset.hub is None:
        raise UsageError(f"{dataset.name} is read from files: {dataset.files}")
    if hub and dataset.hub is not None:
        wanted = split or dataset.hub.split
        return Sources([HubSplit(dataset.hub, one, wanted) for one in dataset.hub.configurations])
    if split:
        raise UsageError("--split goes with --hub; name the split's file as SRC")
    if not paths:
        raise UsageError(f"name the published files as SRC: {dataset.files}")
    files = local(paths, dataset.patterns, dataset.aside)
    aside = [path for path in files if matches(path, dataset.aside)]
    rows = [File(path, dataset.columns) for path in files if path not in aside]
    if not rows:
        raise UsageError(f"none of these files holds questions: {dataset.files}")
    return Sources(rows, aside)


def _check(output: Path, sources: list[Path]) -> None:
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: name a file in a folder that exists")
    if output.exists() and any(path.exists() and output.samefile(path) for path in sources):
        raise UsageError(f"{output} is one of the sources; write to another file")


def _told(title: str, account: Account, output: Path) -> list[str]:
    """What a person should know of a conversion, line by line."""
    lines = [f"{title}: {account.read.total()} records, {account.written.total()} rows in {output}"]
    if len(account.read) > 1:
        lines += [
            f"  {label}: {count} records, {account.written[label]} rows"
            for label, count in account.read.items()
        ]
    named = {name: count for name, count in sorted(account.subjects.items()) if name}
    if len(named) > 1:
        lines.append("  subjects: " + ", ".join(f"{name} {n}" for name, n in named.items()))
    for title, counts in (("mended", account.mended), ("left out", account.left_out)):
        lines += [f"  {title}: {count} × {what}" for what, count in sorted(counts.items())]
    lines += [f"  kept: {count} × {what}" for what, count in sorted(account.noted.items())]
    groups, rows, differ = account.repeats()
    if groups:
        lines.append(
            f"  kept: {groups} questions stand in {rows} rows; {differ} with unlike answers"
        )
    if account.problems:
        lines.append(f"  left out: {len(account.problems)} bad rows")
        lines += [
            f"    {label} line {line}: {reason}" for label, line, reason in account.problems[:20]
        ]
    return lines


if __name__ == "__main__":
    app()
