"""`python -m medagents_async.bench IN.jsonl`: the throughput of a method against a server."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from medagents_async.batch import hide_key, loop_factory, setting
from medagents_async.bench import page
from medagents_async.bench.ground import Ground, RealServers, SimulatedServers
from medagents_async.bench.planning import planned
from medagents_async.bench.sweep import Level, bench
from medagents_async.datasets.reader import Selection
from medagents_async.errors import CallError, RunStopped, UsageError
from medagents_async.plan import Job
from medagents_async.reporting import tables
from medagents_async.simulator import profiles

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _levels(text: str) -> list[Level]:
    try:
        return [part if part == "auto" else int(part) for part in text.split(",") if part]  # type: ignore[misc]  # mypy does not narrow a str to the literal
    except ValueError:
        raise typer.BadParameter("want numbers and auto, with commas: 8,64,256,auto") from None


@app.command()
def main(
    input: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="The questions.")],
    base_url: Annotated[
        list[str], typer.Option(envvar="MEDAGENTS_BASE_URL", help="A server; repeatable.")
    ] = [*Job.base_urls],  # noqa: B006 - typer's way
    simulate: Annotated[
        list[str] | None,
        typer.Option(metavar="PROFILE", help="A simulated server instead; repeatable."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar=["MEDAGENTS_API_KEY", "OPENAI_API_KEY"])
    ] = None,
    model: Annotated[str | None, typer.Option(help="Default: the one that is served.")] = None,
    method: Annotated[str, typer.Option(help="A method's name or FILE.py:FUNCTION.")] = Job.method,
    preset: Annotated[str | None, typer.Option(help="paper, code, fast, …")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One parameter.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    questions: Annotated[int | None, typer.Option(min=1, help="The first N of IN.")] = None,
    concurrency: Annotated[
        Any,
        typer.Option(parser=_levels, metavar="N,N,…", help="Default: doublings up to the knee."),
    ] = "",
    plan: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="What N such questions would take and cost."),
    ] = None,
    gpu_rate: Annotated[
        float, typer.Option(min=0, help="Price of a GPU for an hour, for --plan.")
    ] = 0.0,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="For --plan; default: the profile's.")
    ] = None,
    sequential: Annotated[
        int, typer.Option(min=0, help="Calls to send one after another, for comparison.")
    ] = 40,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="All figures.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="A page with plots.")] = None,
) -> None:
    """Run a method at rising concurrency and compare it with what the server can do."""
    hide_key()
    console = Console(stderr=True)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        job = Job(
            input=input,
            output=Path("bench.jsonl"),  # every run has its own, in a temporary folder
            api_key=api_key,
            model=model,
            method=method,
            preset=preset,
            settings=dict(setting(text) for text in settings or ()),
            max_tokens=max_tokens,
            seed=seed,
            selection=Selection(questions, None, seed, None),
        )
        ground: Ground = (
            SimulatedServers(simulate) if simulate else RealServers(base_url, loop_factory())
        )
        result, timeline = bench(job, ground, concurrency, sequential=sequential, tell=console)
        if plan:
            count = gpus or sum(profiles.find(name).gpus for name in simulate or ())
            result["plan"] = planned(result, plan, count or 1, gpu_rate, simulated=bool(simulate))
        if json_file:
            json_file.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
        if html:
            page.write(html, result, timeline)
    except (UsageError, RunStopped, CallError) as error:
        console.print(tables.printable(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(3 if isinstance(error, CallError) else error.exit_status) from None
    Console().print(tables.bench(result))


if __name__ == "__main__":
    app()
