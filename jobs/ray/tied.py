"""`tied.py SIGNAL PARENT COMMAND …`: run a command that gets SIGNAL when process PARENT dies.

An actor may be killed at any moment and cannot clean up then. What it started would go on: a run
would hold the lock of its output, a server the memory of its GPU.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to PARENT and become COMMAND."""
    number, parent, command = signal.Signals[sys.argv[1]], int(sys.argv[2]), sys.argv[3:]
    # The kernel keeps this through exec. It counts the death of the thread that started us: actors
    # work in their main thread.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is the caller's


if __name__ == "__main__":
    main()
