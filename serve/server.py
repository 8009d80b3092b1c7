"""A server as a child process: started apart, stopped whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from layout import say

STARTING_GRACE_S = 5.0  # a server that is not ready has no requests to finish


class Server:
    """A child process in a group of its own, which gets this process's signals to stop."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], log: Path, grace: float
    ) -> None:
        """Start `argv` with the variables `env`, its output in `log`.

        SIGINT and SIGTERM to this process are passed on to `argv`'s own process, which ends its
        workers when their requests are done; a worker that gets the signal itself dies at once
        and its requests with it. What still runs `grace` seconds later is killed, the whole group,
        and so it is at a second signal. Set `is_ready` once there may be requests to wait for.
        """
        self.asked_to_stop = False
        self.is_ready = False
        self._grace = grace
        self._deadline = float("inf")
        self._process: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGINT, self._pass_on)
        signal.signal(signal.SIGTERM, self._pass_on)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as sink:
            # A group of its own: a terminal sends Ctrl-C to every process of the foreground group.
            self._process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        if self.asked_to_stop:  # in the moment before there was a process to pass it on to
            self._process.terminate()

    def is_running(self) -> bool:
        """Return whether the server process still runs; kill it if its time to stop is over."""
        running = self._process is not None and self._process.poll() is None
        if running and time.monotonic() > self._deadline:
            say("it has had its time to stop; killing it")
            self._deadline = float("inf")
            self._kill()
        return running

    def stop(self) -> None:
        """Ask the server to stop, unless that was done."""
        if not self.asked_to_stop:
            self._pass_on(signal.SIGTERM, None)

    def wait(self) -> None:
        """Return when the server and every process that it started has ended."""
        while self.is_running():
            time.sleep(0.2)
        self._kill()  # workers that outlived it hold the memory of a GPU

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self.asked_to_stop:  # asked again: whoever asks is done waiting
            self._kill()
            return
        self.asked_to_stop = True
        grace = self._grace if self.is_ready else STARTING_GRACE_S
        self._deadline = time.monotonic() + grace
        if self._process:
            self._process.send_signal(number)

    def _kill(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
