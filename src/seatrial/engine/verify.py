"""Asks each target, before anything runs, whether it would ever take the jobs of a plan: one job for each shape."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from seatrial.engine.follow import Follower
from seatrial.job import Job, Mask, Outcome
from seatrial.suite import Cell
from seatrial.target import TargetError

AT_ONCE = 8
MOST_TOLD = 5

Shape = tuple[object, ...]


class RunRefused(Exception):
    """A target would never take some jobs of the plan. Nothing was run; asking again cannot help."""

    def __init__(self, refused: list[tuple[Cell, str]]) -> None:
        """Of each cell the target's words."""
        self.refused = refused
        lines = [f"target {cell.target} refuses {cell.id}: {why}" for cell, why in refused[:MOST_TOLD]]
        if len(refused) > MOST_TOLD:
            lines.append(f"and {len(refused) - MOST_TOLD} more like these")
        super().__init__("\n".join([*lines, "nothing was run"]))


def shapes(cells: Iterable[tuple[Cell, Job]]) -> list[tuple[Cell, Job]]:
    """The first of each target, machine, environment and number of hosts: the others are asked for in the same way."""
    first: dict[Shape, tuple[Cell, Job]] = {}
    for cell, job in cells:
        first.setdefault((cell.target, cell.machine_name, job.environment, job.hosts), (cell, job))
    return list(first.values())


async def verify(
    wanted: Iterable[tuple[Cell, Job]], follower: Callable[[str], Awaitable[Follower]], mask: Mask
) -> None:
    """Raises RunRefused with all that was refused; TargetError when a target could not be asked."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def asked(cell: Cell, job: Job) -> tuple[Cell, TargetError] | None:
        async with turn:
            try:
                await (await follower(cell.target)).target.verify(job)
            except TargetError as error:
                return cell, error
        return None

    problems = [one for one in await asyncio.gather(*(asked(*one) for one in wanted)) if one is not None]
    refused = [(cell, mask.text(str(error))) for cell, error in problems if error.outcome is Outcome.REFUSED]
    if refused:
        raise RunRefused(refused)
    if problems:
        raise problems[0][1]
