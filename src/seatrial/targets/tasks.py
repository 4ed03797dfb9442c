"""Work that several callers need and that is done once."""

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


def failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
