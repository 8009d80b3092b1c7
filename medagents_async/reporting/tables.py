"""A run's totals and a consultation, as people would read them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from medagents_async.scoring.records import Record


def printable(text: object) -> str:
    """Text of any origin without control characters: a model must not drive the terminal."""
    return "".join(
        character if character == "\n" or character.isprintable() else "�"
        for character in str(text)
    )


def outcomes(records: Iterable[Record]) -> Table:
    """One line a row: what was said against the answer key.

    `cut` counts the replies that ended at their token limit.
    """
    table = Table(box=SIMPLE)
    for name in ("id", "status", "said", "key"):
        table.add_column(name)
    for name in ("calls", "tokens in", "out", "cut", "seconds"):
        table.add_column(name, justify="right")
    for record in records:
        table.add_row(
            Text(printable(record.id) + (f" #{record.repeat}" if record.repeat else "")),
            Text(record.status + (f" ({printable(record.error)})" if record.error else "")),
            record.prediction or "–",
            record.answer or "–",
            str(record.calls),
            f"{record.prompt_tokens:,}",
            f"{record.completion_tokens:,}",
            str(record.truncated),
            f"{record.seconds:.1f}",
        )
    return table


def summary(totals: Mapping[str, Any]) -> Table:
    """Two columns: what, how much."""
    table = Table(show_header=False, box=None)
    for name, value in totals.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(Text(name.replace("_", " ")), Text(printable(shown)))
    return table


def bench(result: Mapping[str, Any]) -> Group:
    """A line for each run of a bench, then how they compare."""
    table = Table(box=SIMPLE)
    for name in ("in flight", "questions/h", "calls/s", "prompt tokens/s", "cached", "out"):
        table.add_column(name, justify="right")
    for name in ("slots idle", "queued s", "CPU ms/call", "errors"):
        table.add_column(name, justify="right")
    for run in result["runs"]:
        table.add_row(
            str(run["concurrency"]),
            f"{run['questions_per_hour']:,.0f}",
            f"{run['calls_per_s']:,.1f}",
            f"{run['computed_prompt_tokens_per_s']:,.0f}",
            f"{run['cached_prompt_tokens_per_s']:,.0f}",
            f"{run['completion_tokens_per_s']:,.0f}",
            f"{run['slots_idle']:.1%}",
            f"{run['queued_s']['p50']:.2f}",
            f"{run['cpu_ms_per_call']:.2f}",
            str(run["errors"]),
        )
    facts = {"knee, calls in flight": result["knee"], **result["ratios"]}
    return Group(
        table, summary(facts | {f"plan: {k}": v for k, v in result.get("plan", {}).items()})
    )


def consultation(row: Mapping[str, Any], console: Console) -> None:
    """Print every call of one question in reading order, then the decision."""
    console.rule(Text(f"Consultation of question {printable(row['id'])}"))
    for step in row["trace"]:
        who = f" · {step['agent']}" if step["agent"] else ""
        when = f" · round {step['round']}" if step["round"] else ""
        title = printable(f"{step['stage']}{who}{when}")
        console.print(Panel(_said(step), title=Text(title), title_align="left"))
    detail = ", ".join(
        f"{name}: {value}" for name, value in row["detail"].items() if not isinstance(value, dict)
    )
    console.print(Text(printable(detail)))
    verdict = {True: "right", False: "wrong", None: "no answer key"}[row["correct"]]
    console.print(
        Text(
            f"Decision: {row['prediction'] or row['status']} · answer key: {row['answer'] or '–'}"
            f" · {verdict}",
            style="bold",
        )
    )


def _said(step: Mapping[str, Any]) -> RenderableType:
    if step["error"]:
        return Text(f"failed: {printable(step['error'])}", style="red")
    cut = step["finish_reason"] == "length"
    reply = Text(printable(step["reply"]))
    return Group(reply, Text("… cut by its token limit", style="dim")) if cut else reply
