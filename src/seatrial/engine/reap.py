"""Removes what runs left behind, found by label alone."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from seatrial import plugins
from seatrial.record import owner_of
from seatrial.suite import TargetEntry
from seatrial.target import Found, Target, TargetError

AT_ONCE = 16  # jobs that are removed at the same time
FOLDER = "folder"  # label of a job: the run folder, to know whether its run is still being worked on


class Reaped(msgspec.Struct, frozen=True):
    target: str
    found: Found
    in_use: bool  # its run is being worked on: left alone
    problem: str = ""  # why it could not be removed


class Reaping(msgspec.Struct, frozen=True):
    """What was found, and the targets that could not be asked, each with the reason."""

    reaped: list[Reaped]
    unreached: dict[str, str]

    @property
    def done(self) -> bool:
        return not self.unreached and not any(one.problem for one in self.reaped)


async def reap(
    targets: Mapping[str, TargetEntry], runs: Iterable[str], older_s: float, now_s: float, dry: bool
) -> Reaping:
    """Everything that carries a run's label on these targets, oldest first. One that fails hides no other."""
    wanted = set(runs)
    reaping = Reaping([], {})
    for name, entry in targets.items():
        target = plugins.targets()[entry.kind].open(name, entry.options)
        try:
            await target.open()
            try:
                chosen = [
                    found
                    for found in sorted(await target.list(None), key=lambda one: one.created_s)
                    # What has lost its folder was created, as far as is known, when it was found: after `now_s`.
                    if (not wanted or found.run in wanted) and max(0.0, now_s - found.created_s) >= older_s
                ]
                turn = asyncio.Semaphore(AT_ONCE)
                reaping.reaped.extend(await asyncio.gather(*(_reaped(name, target, one, dry, turn) for one in chosen)))
            finally:
                await target.close()
        except TargetError as error:
            reaping.unreached[name] = str(error)
    return reaping


async def _reaped(name: str, target: Target, found: Found, dry: bool, turn: asyncio.Semaphore) -> Reaped:
    if not found.labels:  # it may have been about to say whose it is
        found = next((one for one in await target.list(found.run) if one.handle == found.handle), found)
    in_use = _in_use(found)
    if not dry and not in_use:
        async with turn:
            try:
                await target.remove(found.handle)
            except TargetError as error:
                return Reaped(name, found, in_use, str(error))
    return Reaped(name, found, in_use)


def _in_use(found: Found) -> bool:
    """By the target's own word, or because a living process of this machine holds the run's folder."""
    owner = owner_of(Path(found.labels[FOLDER])) if FOLDER in found.labels else None
    return bool(found.in_use) or (owner is not None and owner.alive())
