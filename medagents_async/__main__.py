"""`medagents batch …`, `medagents report …`: the same programs as `python -m medagents_async.…`."""

from __future__ import annotations

import typer

from medagents_async.batch import batch
from medagents_async.convert import convert
from medagents_async.merge import merge_command
from medagents_async.report import report

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
app.command()(batch)
app.command()(report)
app.command()(convert)
app.command("merge")(merge_command)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
