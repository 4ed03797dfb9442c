"""What limits the start of cells: places on targets and machines, failures, cost."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from seatrial import plugins
from seatrial.job import count
from seatrial.suite import Cell, RunSuite

CELLS_ELSEWHERE = 50  # cells at a time on a target that is not this machine, unless it says otherwise


class Caps:
    """How many cells may run at once on each target and each machine. The machine's place is always taken before the
    target's: two cells never wait for each other."""

    def __init__(self, suite: RunSuite, parallel: int | None) -> None:
        self._suite = suite
        self._parallel = parallel
        self._targets: dict[str, asyncio.Semaphore] = {}
        self._machines: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def place(self, cell: Cell) -> AsyncIterator[None]:
        machine: AbstractAsyncContextManager[None] = nullcontext()
        if cell.machine.parallel is not None:
            machine = self._machines.setdefault(cell.machine_name, asyncio.Semaphore(cell.machine.parallel))
        if cell.target not in self._targets:
            # On this machine as many as it has CPUs; elsewhere those say nothing.
            here = plugins.targets()[self._suite.targets[cell.target].kind].one_machine
            default = os.cpu_count() or 1 if here else CELLS_ELSEWHERE
            limit = self._parallel or self._suite.parallel(cell.target) or default
            self._targets[cell.target] = asyncio.Semaphore(limit)
        async with machine, self._targets[cell.target]:
            yield


class Budget:
    """How many cells may fail, and what all may cost, until no other one is started."""

    def __init__(self, max_failures: int | None, max_cost: float | None) -> None:
        self._max_failures = max_failures
        self._max_cost = max_cost
        self.failures = 0
        self._spent = 0.0
        self._reserved: dict[str, float] = {}  # what is expected of the cells that run, by hash

    def reserve(self, cell: Cell) -> None:
        self._reserved[cell.hash] = _expected_cost(cell)

    def charge(self, cell: Cell, seconds: float) -> None:
        """What an attempt took, in place of what was reserved for it."""
        self._reserved.pop(cell.hash, None)
        self._spent += _cost(cell, seconds)

    def why_not(self, cell: Cell) -> str:
        """Why no new attempt may be started now, if so."""
        limit, most, expected = self._max_failures, self._max_cost, _expected_cost(cell)
        if limit is not None and self.failures >= limit:
            return f"not started: {count(self.failures, 'cell')} had failed (max failures {limit})"
        reserved = sum(self._reserved.values())
        if most is not None and self._spent + reserved + expected > most:
            spent = f"{self._spent:.2f} is spent and {reserved:.2f} reserved for what runs"
            return f"not started: {spent}; {expected:.2f} more would be over the limit of {most:.2f}"
        return ""


def _expected_cost(cell: Cell) -> float:
    """By its estimate, else by its run limit: the plan was bounded in the same way."""
    seconds = cell.policy.run_s if cell.estimate_s is None else cell.estimate_s
    return _cost(cell, seconds or 0.0)


def _cost(cell: Cell, seconds: float) -> float:
    return (cell.price_per_hour or 0.0) * seconds / 3600
