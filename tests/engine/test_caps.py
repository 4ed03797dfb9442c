"""How many cells run at once where nothing is written."""

import asyncio
import itertools
import os
from contextlib import AsyncExitStack
from pathlib import Path

from seatrial.engine.limits import CELLS_ELSEWHERE, Caps
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import Cell, load

SUITE = """
name: suite
targets: {cluster: {kind: kubernetes}, few: {kind: kubernetes, parallel: 3}}
machines: {here: {}, there: {target: cluster}, some: {target: few}}
runtimes: {base: {image: x}}
trials: {t: {kind: runtime, matrix: {runtime: base, machine: all}, run: ["true"]}}
"""


async def places(caps: Caps, cell: Cell) -> int:
    """How many cells like this one get a place at once."""
    async with AsyncExitStack() as taken:
        for number in itertools.count():
            try:
                async with asyncio.timeout(0):
                    await taken.enter_async_context(caps.place(cell))
            except TimeoutError:
                return number
    raise AssertionError


async def test_the_cpus_of_this_machine_count_for_this_machine_alone(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    suite = load(path, *models())
    caps = Caps(suite, None)
    found = {cell.target: await places(caps, cell) for cell in expand(suite).cells}
    assert found == {"here": os.cpu_count(), "cluster": CELLS_ELSEWHERE, "few": 3}
