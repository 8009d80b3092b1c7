"""Run independent steps of one question side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, overload

from medagents_async.errors import CallError

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


@overload
async def fan_out(
    first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B], /
) -> tuple[A, B]: ...
@overload
async def fan_out(*steps: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...
async def fan_out(*steps: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
    """Results in the order of `steps`, whatever the order of arrival.

    When calls fail, the others go on to their ends, so that the record of what was said does not
    depend on timing, and the first error by position is raised. Any other error cancels the rest
    and is raised as it is, not as a group of one.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_settled(step)) for step in steps]
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None
    for task in tasks:
        error = task.result()[1]
        if error is not None:
            raise error
    return tuple(task.result()[0] for task in tasks)


async def _settled(step: Coroutine[Any, Any, T]) -> tuple[T | None, CallError | None]:
    try:
        return await step, None
    except CallError as error:
        return None, error


def first_error(error: BaseException) -> BaseException:
    """The first error inside a group, or the error itself where it is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
