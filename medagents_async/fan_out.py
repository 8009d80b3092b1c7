"""Run independent steps of one question side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, overload

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

    When a step fails, the others are cancelled and its own error is raised, not a group of one.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step) for step in steps]
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None
    return tuple(task.result() for task in tasks)


def first_error(error: BaseException) -> BaseException:
    """The first error inside a group, or the error itself where it is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
