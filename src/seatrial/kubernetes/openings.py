"""Connections that are just being opened. Whoever wanted one may go away; it is then opened to the end, and closed: one
that is cut off in the middle of its TLS greeting stays open for long in asyncio, and its socket is never closed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_S = 1.0  # at the very end, for those that are not open yet; after that they are cut off nevertheless


class Openings:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, opening: Coroutine[Any, Any, T], let_go: Callable[[T], None]) -> T:
        """What `opening` gives; `let_go` closes it when nobody wants it any more."""
        task = asyncio.create_task(opening)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: _abandon(done, let_go))
            raise

    async def close(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await settled()


def _abandon(done: "asyncio.Task[T]", let_go: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        let_go(done.result())


async def settled() -> None:
    """Until the loop has seen the end of connections, and told their transports, which close."""
    for _ in range(3):
        await asyncio.sleep(0)
