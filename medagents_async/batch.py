"""`python -m medagents_async.batch IN.jsonl OUT.jsonl`: the main job."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.logging import RichHandler

from medagents_async import job as jobs
from medagents_async.datasets.reader import Selection
from medagents_async.engine.fleet import named
from medagents_async.engine.sink import Trace
from medagents_async.errors import RunStopped, UsageError
from medagents_async.plan import Job, plan
from medagents_async.process import shard_of_array
from medagents_async.reporting import tables

EPILOG = (
    "Exit status: 0 every question has an outcome; 1 some ended in an error; 2 nothing was sent, "
    "something must be changed; 3 stopped early, run again to resume; 130 interrupted, likewise."
)
# Pretty tracebacks would print local variables, the API key among them.
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _concurrency(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter("want a whole number from 1, or auto")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    """KEY=VALUE in two. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: want KEY=VALUE")
    return name, value


def _object(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter('want a JSON object, such as {"top_k": 20}')
    return found


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise typer.BadParameter(f"{text!r}: want I/N with I from 0 to N-1")
    return int(index), int(count)


def _list_methods(wanted: bool) -> None:
    if wanted:
        from medagents_async import methods, preview

        for method in methods.every_method().values():
            typer.echo("\n".join(preview.described(method)))
        raise typer.Exit


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's, which saves a quarter of the CPU, where it installs."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@app.command(epilog=EPILOG)
def batch(
    input: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="The questions.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.jsonl", help="One row a question; run again to resume.")
    ],
    base_url: Annotated[
        list[str],
        typer.Option(envvar="MEDAGENTS_BASE_URL", help="A server, ending in /v1; repeatable."),
    ] = [*Job.base_urls],  # noqa: B006 - typer's way
    servers: Annotated[
        Path | None,
        typer.Option(help="A file with a base URL a line, watched: servers may join and leave."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL#MODEL", help="Another model, for calls that name it."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=["MEDAGENTS_API_KEY", "OPENAI_API_KEY"],
            help="Better in the environment; from the command line it is moved there at once.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Default: the one that is served.")] = None,
    method: Annotated[str, typer.Option(help="A method's name or FILE.py:FUNCTION.")] = Job.method,
    preset: Annotated[str | None, typer.Option(help="paper, code, … (default paper).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One parameter.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A folder whose files replace prompt templates by name.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0)] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most that any call may ask for.")
    ] = None,
    extra_body: Annotated[
        Any,
        typer.Option(parser=_object, metavar="JSON", help="Fields to add to every request."),
    ] = "{}",
    reasoning: Annotated[
        int, typer.Option(min=0, help="Tokens on top of every limit, for a model that thinks.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="All samples' seeds derive from it.")
    ] = 0,
    concurrency: Annotated[
        Any, typer.Option(parser=_concurrency, metavar="N|auto", help="Calls in flight.")
    ] = "auto",
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="Calls started per second, at most."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one call.")] = Job.timeout,
    retries: Annotated[int, typer.Option(min=0)] = Job.retries,
    limit: Annotated[int | None, typer.Option(min=1, help="The first N questions.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="N questions, by --seed.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to run each question.")] = 1,
    shard: Annotated[
        Any,
        typer.Option(
            parser=_shard,
            metavar="I/N",
            help="Part I of N, by question id; in a Slurm array by default the task's.",
        ),
    ] = None,
    trace: Annotated[Trace, typer.Option(help="How much of each call OUT keeps.")] = "full",
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows")] = False,
    image_side: Annotated[
        int, typer.Option(min=16, help="Pixels of an image's longest side, at most.")
    ] = Job.image_side,
    allow_remote_images: Annotated[
        bool,
        typer.Option(
            "--allow-remote-images", help="Have the server fetch http: and https: images."
        ),
    ] = False,
    wait_server: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for the server at the start.")
    ] = Job.wait_server,
    server_grace: Annotated[
        float, typer.Option(min=0.0, help="Seconds for a server that went away to come back.")
    ] = Job.server_grace,
    accept_server_change: Annotated[
        bool, typer.Option("--accept-server-change", help="Go on with another fingerprint.")
    ] = False,
    drain: Annotated[
        float, typer.Option(min=0.0, help="Seconds for calls in flight after an interrupt.")
    ] = Job.drain,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on stdout.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show, send nothing.")
    ] = False,
    list_methods: Annotated[
        bool,
        typer.Option(
            "--list-methods",
            callback=_list_methods,
            is_eager=True,
            help="What methods, presets and parameters there are.",
        ),
    ] = False,
) -> None:
    """Run every question of IN.jsonl through a method; one row each in OUT.jsonl."""
    given = locals()
    hide_key()
    # Until the run itself takes over, SIGTERM ends the command as SIGINT does, which a shell has
    # set to be ignored where it starts a command in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    console = Console(stderr=True)
    logging.basicConfig(
        level=logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=console, show_time=False, show_path=False)],
    )
    summary: Mapping[str, Any] | None = None
    try:
        given |= {
            "base_urls": tuple(dict.fromkeys(url.rstrip("/") for url in base_url)),
            "servers_file": servers,
            "named_servers": tuple(named(text) for text in server or ()),
            "api_key": (api_key or "").strip() or None,
            "settings": dict(setting(text) for text in settings or ()),
            "selection": Selection(limit, sample, seed, shard or shard_of_array(os.environ)),
        }
        job = Job(**{field.name: given[field.name] for field in dataclasses.fields(Job)})
        if dry_run:
            from medagents_async import preview  # with the simulator: seldom wanted, slow to load

            asyncio.run(preview.show(plan(job), Console()))
            return
        # What was imported stays: the collector need not look at it again, nor so often. It would
        # take a tenth of the run's CPU time.
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            summary = runner.run(jobs.run(job, console))
        status = 1 if summary["error"] else 0
    except (UsageError, RunStopped) as error:
        console.print(tables.printable(error), style="red", markup=False, soft_wrap=True)
        summary = error.summary if isinstance(error, RunStopped) else None
        status = error.exit_status
    except Exception:
        logging.exception("this should not happen; what was finished is on disk")
        status = 3
    if summary is not None:
        _tell(summary, console, as_json=as_json)
    raise typer.Exit(status)


def hide_key() -> None:
    """Start anew with the key in the environment where it was on the command line.

    Every user of a machine can read a command line; an environment only its owner.
    """
    words = sys.orig_argv
    for place, word in enumerate(words):
        name, equals, key = word.partition("=")
        if name == "--api-key":
            rest = words[place + 1 :] if equals else words[place + 2 :]
            environment = {**os.environ, "MEDAGENTS_API_KEY": key or words[place + 1]}
            os.execve(sys.executable, [*words[:place], *rest], environment)  # noqa: S606


def _tell(summary: Mapping[str, Any], console: Console, *, as_json: bool) -> None:
    if summary["cut_by_context"]:
        console.print(
            f"{summary['cut_by_context']} replies were cut by the model's context, not by their "
            "own limit: serve it with a larger MAX_MODEL_LEN, or lower --max-tokens",
            style="yellow",
            soft_wrap=True,
        )
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(summary, option=orjson.OPT_APPEND_NEWLINE))
    else:
        Console().print(tables.summary(summary))


if __name__ == "__main__":
    app()
