"""The bench's figures as one page that needs no network: three plots and a table."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from medagents_async.errors import UsageError

INK, ACCENT, SOFT = "#33415c", "#c0392b", "#8d99ae"


def write(path: Path, result: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of `result`, as `bench.json` has it, and of one question's trace rows.

    Raises UsageError where the plotting library is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib: pip install 'medagents-async[plots]', or leave out --html"
        ) from error
    environment = Environment(
        loader=PackageLoader("medagents_async.bench"), autoescape=True, undefined=StrictUndefined
    )
    draw: dict[str, Callable[[Any], None]] = {
        "throughput": lambda figure: _throughput(figure, result),
        "load": lambda figure: _load(figure, result["knee_run"]["moments"]),
        "timeline": lambda figure: _timeline(figure, timeline),
    }
    figures = {}
    for name in draw:
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        draw[name](figure)
        svg = io.StringIO()
        figure.savefig(svg, format="svg")
        # Without the XML declaration, so that it may stand inside HTML.
        figures[name] = Markup(svg.getvalue()[svg.getvalue().index("<svg") :])  # noqa: S704
    page = environment.get_template("page.html").render(result=result, figures=figures)
    path.write_text(page, encoding="utf-8")


def _throughput(figure: Any, result: Mapping[str, Any]) -> None:
    axes = figure.add_subplot()
    runs = [run for run in result["runs"] if run["concurrency"] != "auto"]
    levels = [run["concurrency"] for run in runs]
    axes.plot(levels, [run["body_calls_per_s"] for run in runs], "o-", color=INK, label="run")
    axes.plot(
        [result["knee"]],
        [result["limit"]["body_calls_per_s"]],
        "x",
        color=ACCENT,
        label="the same calls without dependencies",
    )
    for run in result["runs"]:
        if run["concurrency"] == "auto":
            axes.axhline(run["body_calls_per_s"], color=SOFT, linestyle="--", label="auto")
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="calls in flight", ylabel="calls/s")
    axes.legend(frameon=False)


def _load(figure: Any, moments: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.add_subplot()
    times = [moment["t"] for moment in moments]
    for name, color in (("in_flight", INK), ("running", ACCENT), ("waiting", SOFT)):
        values = [moment[name] for moment in moments]
        if None not in values:
            axes.plot(times, values, color=color, label=name.replace("_", " "))
    axes.set(xlabel="seconds", ylabel="calls")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    usage = [moment["kv_usage"] for moment in moments]
    if None not in usage:
        share = axes.twinx()
        share.plot(times, [100 * value for value in usage], ":", color=SOFT)
        share.set(ylabel="KV cache in use, % (dotted)", ylim=(0, 100))


def _timeline(figure: Any, steps: Sequence[Mapping[str, Any]]) -> None:
    axes = figure.add_subplot()
    steps = sorted(steps, key=lambda step: (step["asked_s"], step["stage"], step["n"]))
    stages = list(dict.fromkeys(step["stage"] for step in steps))
    for row, step in enumerate(steps):
        color = f"C{stages.index(step['stage']) % 10}"
        axes.barh(row, step["queued_s"], left=step["asked_s"], color="#dddddd")
        axes.barh(row, step["seconds"], left=step["asked_s"] + step["queued_s"], color=color)
    axes.set_yticks(range(len(steps)), [f"{step['stage']} {step['n']}" for step in steps])
    axes.tick_params(axis="y", labelsize=6)
    axes.invert_yaxis()
    axes.set(xlabel="seconds since the question began (grey: waiting for a slot)")
