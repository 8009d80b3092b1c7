"""What a run finds out of its process: open files, signals, its place in an array of jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from medagents_async.errors import UsageError

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


_ARRAY = "SLURM_ARRAY_TASK_"


def shard_of_array(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Shard (I, N) of this task of a Slurm array, None outside of one.

    `--array=4-16:4` has the tasks 4, 8, 12 and 16: I counts them from 0. Raises UsageError where
    the numbers do not say which task of how many this is, as after `--array=1,3,7` or when one
    task of an array is submitted again by itself.
    """
    if f"{_ARRAY}ID" not in environment:
        return None
    try:
        task, count = (int(environment[_ARRAY + name]) for name in ("ID", "COUNT"))
        first, last = (int(environment.get(_ARRAY + name, task)) for name in ("MIN", "MAX"))
        step = int(environment.get(f"{_ARRAY}STEP", "1"))
        shard, rest = divmod(task - first, step)
        even = (last - first) // step + 1 == count
    except (LookupError, ValueError, ZeroDivisionError) as error:
        raise UsageError(f"{_ARRAY}… make no sense ({error}); say --shard I/N") from error
    alone = count == 1 and task != 0
    if rest or not even or alone or not 0 <= shard < count:
        raise UsageError(
            f"task {task} of an array of {count}, from {first} to {last}: which part of the "
            "questions is that? Say --shard I/N"
        )
    return shard, count
