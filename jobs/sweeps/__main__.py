"""`python -m jobs.sweeps FILE.toml DIR`: all runs of a sweep; again to resume; then the report.

Exit status: 0 all done; 1 some questions ended in errors; 2 something must be changed; 3 a server
is gone, run again to resume; 130 interrupted, likewise. DIR/report.md says what there is so far.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from jobs.sweeps import plan, table
from jobs.sweeps.runs import Runs, command
from medagents_async.errors import UsageError


def say(text: str) -> None:
    """Tell people, on stderr."""
    print(f"== {time.strftime('%T')}  {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser("python -m jobs.sweeps", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.toml")
    parser.add_argument("folder", type=Path, metavar="DIR", help="gets a run for each cell")
    parser.add_argument("--check", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args()
    try:
        sweep = plan.read(options.file, options.folder)
        for missing in sweep.left_out:
            say(f"left out: {missing}")
        if options.check:
            for cell in sweep.cells:
                print(shlex.join(command(cell)))
            return 0
        options.folder.mkdir(parents=True, exist_ok=True)
        runs = Runs(sweep, say)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: runs.stop())
        status = runs.run()
    except UsageError as error:
        say(str(error))
        return error.exit_status
    print(table.write(sweep, options.folder))
    return status


if __name__ == "__main__":
    os.environ.pop("SLURM_ARRAY_TASK_ID", None)  # the cells of a sweep are never shards
    sys.exit(main())
