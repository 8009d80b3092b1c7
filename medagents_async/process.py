"""What a run needs of its process: open files, and to be told of signals."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

#: File descriptors that are not calls: standard streams, OUT, journal, event loop, libraries.
SPARE_DESCRIPTORS = 64


def affordable(concurrency: int) -> int:
    """As many calls in flight as the system's limit on open files allows, which is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = concurrency + SPARE_DESCRIPTORS
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        log.warning(
            "the system allows %d open files (ulimit -n): %d calls in flight instead of %d",
            soft,
            soft - SPARE_DESCRIPTORS,
            concurrency,
        )
        return max(1, soft - SPARE_DESCRIPTORS)
    return concurrency


@contextmanager
def stopping_on_signals(stop_run: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM stops the run in order, the second ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def stop(number: int) -> None:
        if received:
            os._exit(130)  # every row so far was written whole; a torn one is mended on resume
        received.append(number)
        log.warning("stopping: calls in flight may finish; a second signal ends at once")
        stop_run()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
