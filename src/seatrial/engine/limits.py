"""How many cells may run at once: a cap for each target and each machine."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from seatrial import plugins
from seatrial.suite import Cell, RunSuite

CELLS_ELSEWHERE = 50  # cells at a time on a target that is not this machine, unless it says otherwise


class Caps:
    """The machine's place is taken before the target's, always in that order: two cells never wait for each other."""

    def __init__(self, suite: RunSuite, parallel: int | None) -> None:
        self._suite = suite
        self._parallel = parallel
        self._targets: dict[str, asyncio.Semaphore] = {}
        self._machines: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def place(self, cell: Cell) -> AsyncIterator[None]:
        machine = self._machine(cell)
        target = self._target(cell)
        if machine is None:
            async with target:
                yield
        else:
            async with machine, target:
                yield

    def _machine(self, cell: Cell) -> asyncio.Semaphore | None:
        if cell.machine.parallel is None:
            return None
        return self._machines.setdefault(cell.machine_name, asyncio.Semaphore(cell.machine.parallel))

    def _default(self, target: str) -> int:
        """On this machine, its CPUs; elsewhere they say nothing."""
        here = plugins.targets()[self._suite.targets[target].kind].one_machine
        return os.cpu_count() or 1 if here else CELLS_ELSEWHERE

    def _target(self, cell: Cell) -> asyncio.Semaphore:
        if cell.target not in self._targets:
            limit = self._parallel or self._suite.parallel(cell.target) or self._default(cell.target)
            self._targets[cell.target] = asyncio.Semaphore(limit)
        return self._targets[cell.target]
