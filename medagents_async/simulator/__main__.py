"""`python -m medagents_async.simulator`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from medagents_async.errors import UsageError
from medagents_async.simulator import load_script, plausible, realistic, running
from medagents_async.simulator.profiles import PROFILES


def latency(text: str) -> float | tuple[float, float]:
    """Seconds: `0.2`, or `0.1:0.3` for a spread."""
    low, colon, high = text.partition(":")
    return (float(low), float(high)) if colon else float(low)


def arguments() -> argparse.ArgumentParser:
    """Build the parser of the command line; most options are those of `Simulator`."""
    parser = argparse.ArgumentParser("python -m medagents_async.simulator", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--script", type=Path, metavar="FILE.json", help="default: invented words")
    parser.add_argument("--model", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--latency", type=latency, default=0.0, metavar="S|LOW:HIGH")
    parser.add_argument("--profile", metavar="NAME", help=f"time like {', '.join(PROFILES)}")
    parser.add_argument("--max-model-len", type=int, default=16_384, metavar="N")
    parser.add_argument("--api-key", metavar="KEY")
    parser.add_argument("--max-num-seqs", type=int, metavar="N")
    parser.add_argument("--max-queued", type=int, metavar="N")
    parser.add_argument("--prefix-cache", action="store_true", help="report cached tokens")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="gets the URL when ready")
    return parser


def main() -> int:
    """Serve until SIGINT or SIGTERM; the exit status is 0, or 2 if it cannot start."""
    options = vars(arguments().parse_args())
    file, ready_file = options.pop("script"), options.pop("ready_file")
    options["model"] = options["model"] or "simulator"
    ends = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # for `sigwait`, in all threads
    try:
        model = realistic if options["profile"] else plausible
        with running(load_script(file) if file else model, keep=0, **options) as simulator:
            if ready_file:
                ready_file.write_text(simulator.url + "\n")
            print(simulator.url, flush=True)
            signal.sigwait(ends)
    except (UsageError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
