"""Limits on starting cells: concurrency on targets and machines, failures, cost."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from seatrial import plugins
from seatrial.job import count
from seatrial.suite import Cell, RunSuite

CELLS_ELSEWHERE = 50  # default for cells at a time on a target other than this machine


class Caps:
    """Limits how many cells run at once on each target and each machine. The machine's slot is always taken before the
    target's, to avoid deadlocks."""

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
            # On this machine the number of CPUs; elsewhere that says nothing.
            here = plugins.targets()[self._suite.targets[cell.target].kind].one_machine
            default = os.cpu_count() or 1 if here else CELLS_ELSEWHERE
            limit = self._parallel or self._suite.parallel(cell.target) or default
            self._targets[cell.target] = asyncio.Semaphore(limit)
        async with machine, self._targets[cell.target]:
            yield


class Budget:
    """Limits on failures and cost; when one is reached, no more cells are started."""

    def __init__(self, max_failures: int | None, max_cost: float | None) -> None:
        self._max_failures = max_failures
        self._max_cost = max_cost
        self.failures = 0
        self._spent = 0.0
        self._reserved: dict[str, float] = {}  # expected cost of running cells, by hash

    def reserve(self, cell: Cell) -> None:
        self._reserved[cell.hash] = _expected_cost(cell)

    def charge(self, cell: Cell, seconds: float) -> None:
        """Replaces the cell's reservation by the actual cost of an attempt."""
        self._reserved.pop(cell.hash, None)
        self._spent += _cost(cell, seconds)

    def why_not(self, cell: Cell) -> str:
        """Why no new attempt may start now; empty if one may."""
        limit, most, expected = self._max_failures, self._max_cost, _expected_cost(cell)
        if limit is not None and self.failures >= limit:
            return f"not started: {count(self.failures, 'cell')} failed (limit {limit})"
        reserved = sum(self._reserved.values())
        if most is not None and self._spent + reserved + expected > most:
            costs = f"{self._spent:.2f} spent, {reserved:.2f} reserved, {expected:.2f} needed"
            return f"not started: would exceed the cost limit of {most:.2f} ({costs})"
        return ""


def _expected_cost(cell: Cell) -> float:
    """Cost by its estimate, else by its run limit, as in the plan's cost limit."""
    seconds = cell.spec.timeout.run_s if cell.estimate_s is None else cell.estimate_s
    return _cost(cell, seconds or 0.0)


def _cost(cell: Cell, seconds: float) -> float:
    return (cell.machine.price or 0.0) * seconds / 3600
