"""`python -m medagents_async.report OUT.jsonl [OTHER.jsonl …]`: scores of runs, consultations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer
from rich.console import Console
from rich.text import Text

from medagents_async.errors import MedAgentsError, UsageError
from medagents_async.reporting import exports, files, formats, sections, tables
from medagents_async.reporting import html as page
from medagents_async.reporting.comparison import comparison
from medagents_async.scoring.compare import Comparison, compare
from medagents_async.scoring.cost import Rates
from medagents_async.scoring.runs import Run
from medagents_async.scoring.summary import Summary, summarise

Format = Literal["table", "markdown", "latex", "json", "csv"]
#: More rows than fit on a screen or two are listed only when asked for.
LISTED = 40
#: A screen lists flips of so many pairs; every other format lists all.
FEW_PAIRS = 3
#: Columns of output that goes to no terminal: nothing in a table is broken in two.
WIDE = 200

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def report(
    outputs: Annotated[
        list[Path], typer.Argument(metavar="OUT.jsonl …", help="What batch wrote; several compare.")
    ],
    show: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Print this question's consultation.")
    ] = None,
    outcomes: Annotated[
        bool | None,
        typer.Option(help=f"A line for each row (default: up to {LISTED} rows of one run)."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How tables are written.")] = "table",
    gpu_rate: Annotated[
        float | None, typer.Option(min=0.0, help="Price of one GPU for an hour.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that served the run.")] = 1,
    price_in: Annotated[
        float | None, typer.Option(min=0.0, help="Price of a million prompt tokens.")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(min=0.0, help="Price of a million completion tokens.")
    ] = None,
    to: Annotated[
        tuple[str, Path] | None,
        typer.Option(
            metavar="inspect FILE | lm-eval DIR",
            help="Write the run as another tool's log instead.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write scores and consultations as one page, too."),
    ] = None,
) -> None:
    """Score a run, or several side by side; with --show, all that was said on some questions."""
    errors, console = Console(stderr=True), Console()
    if not console.is_terminal:
        console.width = WIDE
    try:
        if show:
            _consultations(outputs, show, console)
        elif to is not None:
            if len(outputs) > 1:
                raise UsageError("--to writes one run's log: give one OUT.jsonl at a time")
            written = exports.write(to[0], outputs[0], to[1])
            errors.print(Text(f"wrote {written}"), soft_wrap=True)
        else:
            runs = [files.load(path) for path in outputs]
            rates = Rates(gpu_rate, gpus, price_in, price_out)
            if outcomes or (outcomes is None and _few(runs) and form == "table"):
                for run in runs:
                    console.print(tables.outcomes(run.records))
            summaries = [summarise(run, rates) for run in runs]
            found = compare(runs, rates) if len(runs) > 1 else None
            _score(summaries, found, form, console, errors)
            if html is not None:
                page.write(html, outputs, runs, summaries, found)
                errors.print(Text(f"wrote {html}"), soft_wrap=True)
    except MedAgentsError as error:
        errors.print(tables.printable(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from error


def _few(runs: Sequence[Run]) -> bool:
    return len(runs) == 1 and len(runs[0].records) <= LISTED


def _consultations(outputs: Sequence[Path], wanted: Sequence[str], console: Console) -> None:
    for path in outputs:
        chosen = [row for _, row in files.rows(path) if row.get("id") in wanted]
        for name in wanted:
            mine = sorted((row for row in chosen if row["id"] == name), key=lambda r: r["repeat"])
            if not mine:
                raise UsageError(f"{path} has no question {name!r}")
            for row in mine:
                tables.consultation(row, console)


def _score(
    summaries: Sequence[Summary],
    found: Comparison | None,
    form: Format,
    console: Console,
    errors: Console,
) -> None:
    """Tables and JSON to stdout, what should give pause to stderr."""
    if form == "json":
        document = {
            "runs": [summary.as_json() for summary in summaries],
            "comparison": found.as_json() if found else None,
        }
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        sys.stdout.buffer.write(orjson.dumps(document, option=options))
    else:
        flips = form != "table" or (found is not None and len(found.pairs) <= FEW_PAIRS)
        shown = comparison(found, flips=flips) if found else sections.run(summaries[0])
        if form == "table":
            formats.terminal(shown, console)
        else:
            sys.stdout.write(formats.WRITERS[form](shown))
    for summary in summaries:
        for warning in summary.warnings:
            errors.print(Text(f"{summary.run['name']}: {warning}", style="yellow"), soft_wrap=True)
    for note in found.notes if found else ():
        errors.print(Text(note, style="yellow"), soft_wrap=True)


if __name__ == "__main__":
    app()
