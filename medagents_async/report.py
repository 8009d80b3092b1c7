"""`python -m medagents_async.report OUT.jsonl`: a run's outcomes, and consultations to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from medagents_async.engine import jsonl
from medagents_async.errors import UsageError
from medagents_async.reporting import tables

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def report(
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="What batch wrote.")],
    show: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Print this question's consultation.")
    ] = None,
) -> None:
    """Print one line a question; with --show, all that was said on some of them."""
    console = Console()
    try:
        if not output.is_file():
            raise UsageError(f"{output}: no such file")
        rows = [row for _, row in jsonl.read(output)]
        rows.sort(key=lambda row: (row["index"], row["repeat"]))
        for wanted in show or ():
            chosen = [row for row in rows if row["id"] == wanted]
            if not chosen:
                raise UsageError(f"{output} has no question {wanted!r}")
            for row in chosen:
                tables.consultation(row, console)
    except UsageError as error:
        Console(stderr=True).print(tables.printable(error), style="red", markup=False)
        raise typer.Exit(2) from error
    if not show:
        console.print(tables.outcomes(rows))


if __name__ == "__main__":
    app()
