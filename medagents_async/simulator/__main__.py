"""`python -m medagents_async.simulator`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from medagents_async.errors import UsageError

from .plausible import plausible
from .rules import load_script
from .server import Simulator


def latency(text: str) -> float | tuple[float, float]:
    """Seconds: `0.2`, or `0.1:0.3` for a spread."""
    low, colon, high = text.partition(":")
    return (float(low), float(high)) if colon else float(low)


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m medagents_async.simulator",
        description="An OpenAI-compatible server that answers like vLLM, from a script.",
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--script", type=Path, metavar="FILE.json", help="default: invented words")
    parser.add_argument("--model", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--latency", type=latency, default=0.0, metavar="S|LOW:HIGH")
    parser.add_argument("--max-model-len", type=int, default=16_384, metavar="N")
    parser.add_argument("--api-key", metavar="KEY")
    parser.add_argument("--max-num-seqs", type=int, metavar="N")
    parser.add_argument("--max-queued", type=int, metavar="N")
    parser.add_argument("--prefix-cache", action="store_true", help="report cached tokens")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="gets the URL when ready")
    return parser


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Find uvloop's, which saves a quarter of the time; None is asyncio's own."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with Simulator(
        load_script(options.script) if options.script else plausible,
        model=options.model or "simulator",
        host=options.host,
        port=options.port,
        max_model_len=options.max_model_len,
        api_key=options.api_key,
        latency=options.latency,
        max_num_seqs=options.max_num_seqs,
        max_queued=options.max_queued,
        prefix_cache=options.prefix_cache,
        keep=0,
    ) as simulator:
        if options.ready_file:  # moved into place: whoever waits for it never reads half
            draft = options.ready_file.with_name(options.ready_file.name + ".part")
            draft.write_text(simulator.url + "\n")
            draft.replace(options.ready_file)
        print(simulator.url, flush=True)
        await over.wait()


def main() -> int:
    """Run the command; the exit status is 0, or 2 if it cannot start."""
    options = arguments().parse_args()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(options))
    except (UsageError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
