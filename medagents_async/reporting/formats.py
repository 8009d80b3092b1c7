"""Tables as a terminal, a paper, a wiki or a spreadsheet wants them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from medagents_async.reporting.layout import Cell, Quantity, Table, text
from medagents_async.reporting.tables import printable

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "–": "--",
    "…": r"\ldots{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")


def terminal(tables: Iterable[Table], console: Console) -> None:
    """Print them; of a long one as many rows as its limit says."""
    for table in tables:
        console.print(Text(printable(table.title), style="bold"))
        shown = RichTable(box=SIMPLE)
        for place, name in enumerate(table.columns):
            shown.add_column(
                Text(printable(name)), justify="right" if place else "left", overflow="fold"
            )
        for row in table.rows[: table.limit]:
            shown.add_row(*(Text(printable(text(cell))) for cell in row))
        console.print(shown)
        left = len(table.rows) - len(table.rows[: table.limit])
        if left:
            console.print(Text(f" … and {left:,} more, in every other --format", style="dim"))
        if table.note:
            console.print(Text(f" {printable(table.note)}", style="dim"))


def markdown(tables: Iterable[Table]) -> str:
    """GitHub's dialect, every cell escaped."""
    blocks = []
    for table in tables:
        rows = [table.columns, *table.rows]
        lines = ["| " + " | ".join(map(_marked, row)) + " |" for row in rows]
        lines.insert(1, "|" + "|".join(["---"] + ["---:"] * (len(table.columns) - 1)) + "|")
        note = [f"\n{_marked(table.note)}"] if table.note else []
        blocks.append("\n".join([f"### {_marked(table.title)}\n", *lines, *note]))
    return "\n\n".join(blocks) + "\n"


def _marked(cell: Cell) -> str:
    return _MARKDOWN.sub(r"\\\1", _flat(cell))


def _flat(cell: Cell) -> str:
    return " ".join(printable(text(cell)).split())


def latex(tables: Iterable[Table]) -> str:
    """Tables for `booktabs`, every cell escaped."""
    blocks = []
    for table in tables:
        body = [" & ".join(map(_typeset, row)) + r" \\" for row in table.rows]
        lines = [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_typeset(table.title)}}}",
            f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"\toprule",
            " & ".join(map(_typeset, table.columns)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *([f"\\par\\footnotesize {_typeset(table.note)}"] if table.note else []),
            r"\end{table}",
        ]
        blocks.append("\n".join(lines))
    head = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}\n"
    return head + "\n\n".join(blocks) + "\n"


def _typeset(cell: Cell) -> str:
    return "".join(_LATEX.get(character, character) for character in _flat(cell))


def comma_separated(tables: Iterable[Table]) -> str:
    """One long table: a line for each cell, numbers unrounded, shares of 1.

    `line` counts the rows of a table from 1, `row` is the first cell.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("table", "line", "row", "column", "value", "low", "high", "sd"))
    for table in tables:
        for number, row in enumerate(table.rows, 1):
            name = _flat(row[0])
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                writer.writerow((table.title, number, name, column, *_raw(cell)))
    return file.getvalue()


def _raw(cell: Cell) -> Sequence[str | float | None]:
    if not isinstance(cell, Quantity):
        return (_flat(cell) if isinstance(cell, str) else cell, None, None, None)
    low, high = (cell.interval.low, cell.interval.high) if cell.interval else (None, None)
    return (cell.value, low, high, cell.sd)


#: By what `--format` calls them; a terminal is not written but printed to.
WRITERS: Mapping[str, Callable[[Iterable[Table]], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}
