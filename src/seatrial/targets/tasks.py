"""Tasks: work that several callers need and that is done once, and the end of tasks."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


async def shared_task(tasks: dict[_K, asyncio.Task[_T]], key: _K, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Result of the task with that key, shared by all callers. Cancelling one caller does not cancel the task. A failed
    task is started again."""
    task = tasks.get(key)
    if task is None or failed(task):
        task = tasks[key] = asyncio.create_task(make())
    return await asyncio.shield(task)


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
