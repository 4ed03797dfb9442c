"""Asks each target, before anything runs, whether it would ever take the jobs of a plan: one job for each shape."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from seatrial.agent.masking.mask import Mask
from seatrial.engine.follow import Follower
from seatrial.job import Outcome, Part
from seatrial.suite import Cell
from seatrial.targets import TargetError

_AT_ONCE = 8
_MOST_SHOWN = 5

Shape = tuple[object, ...]


class RunRefused(Exception):
    """A target would never take some jobs of the plan. Nothing was run; asking again cannot help."""

    def __init__(self, refused: list[tuple[Cell, str, str]]) -> None:
        """Cells, each with the name of the target and its reason."""
        self.refused = refused
        lines = [f"target {target} refuses {cell.id}: {why}" for cell, target, why in refused[:_MOST_SHOWN]]
        if len(refused) > _MOST_SHOWN:
            lines.append(f"and {len(refused) - _MOST_SHOWN} more like these")
        super().__init__("\n".join([*lines, "nothing was run"]))


def shapes(cells: Iterable[tuple[Cell, Part]]) -> list[tuple[Cell, Part]]:
    """The first of each target, machine, environment, part and number of hosts: the others are asked for in the same
    way."""
    first: dict[Shape, tuple[Cell, Part]] = {}
    for cell, part in cells:
        shape = part.target, cell.machine_name, part.name, part.job.environment, part.job.hosts
        first.setdefault(shape, (cell, part))
    return list(first.values())


async def verify(
    wanted: Iterable[tuple[Cell, Part]], follower: Callable[[str], Awaitable[Follower]], mask: Mask
) -> None:
    """Raises RunRefused with all that was refused; TargetError when a target could not be asked."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def asked(cell: Cell, part: Part) -> tuple[Cell, str, TargetError] | None:
        async with turn:
            try:
                await (await follower(part.target)).target.verify(part.job)
                if part.uses:
                    await follower(part.uses)  # that it can be reached is all that can be said before
            except TargetError as error:
                return cell, part.target, error
        return None

    problems = [one for one in await asyncio.gather(*(asked(*one) for one in wanted)) if one is not None]
    refused = [
        (cell, target, mask.text(str(error))) for cell, target, error in problems if error.outcome is Outcome.REFUSED
    ]
    if refused:
        raise RunRefused(refused)
    if problems:
        raise problems[0][2]
