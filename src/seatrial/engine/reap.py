"""Deletes jobs that runs left behind, found by label."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from seatrial import plugins
from seatrial.record import RunFolder, owner_of
from seatrial.suite import TargetEntry
from seatrial.targets import Found, HasTombstones, Target, TargetError

_AT_ONCE = 16  # jobs removed at the same time
RUN_FOLDER = "folder"  # label of a job with the run folder, to know whether its run is in progress


class Reaped(msgspec.Struct, frozen=True):
    target: str
    found: Found
    in_use: bool  # its run is in progress: kept
    asleep: bool = False  # still running, and its owner has not responded for a while: kept
    problem: str = ""  # why it could not be removed


class Reaping(msgspec.Struct, frozen=True):
    """The jobs that were found, and the targets that could not be searched, with the reason."""

    reaped: list[Reaped]
    unreached: dict[str, str]

    @property
    def done(self) -> bool:
        return not self.unreached and not any(one.problem for one in self.reaped)


async def reap(
    targets: Mapping[str, TargetEntry],
    runs: Iterable[str],
    older_s: float,
    now_s: float,
    dry: bool,
    running: bool = False,
) -> Reaping:
    """Deletes everything with a run's label on these targets, oldest first; continues after failures. On targets that
    other machines use too, running jobs are deleted only with `running`: their machine may be asleep."""
    wanted = set(runs)
    reaping = Reaping([], {})
    for name, entry in targets.items():
        kind = plugins.targets()[entry.kind]
        target = kind.open(name, entry.options)
        try:
            await target.open()
            try:
                chosen = [
                    found
                    for found in sorted(await target.list(None), key=lambda one: one.created_s)
                    # A job without its folder counts as created when it was found, which is after `now_s`.
                    if (not wanted or found.run in wanted) and max(0.0, now_s - found.created_s) >= older_s
                ]
                turn, all_ = asyncio.Semaphore(_AT_ONCE), running or kind.one_machine
                reaped = (_reaped(name, target, one, dry, all_, turn) for one in chosen)
                reaping.reaped.extend(await asyncio.gather(*reaped))
            finally:
                await target.close()
        except TargetError as error:
            reaping.unreached[name] = str(error)
    return reaping


async def _reaped(name: str, target: Target, found: Found, dry: bool, running: bool, turn: asyncio.Semaphore) -> Reaped:
    if found.user:
        return Reaped(name, found, in_use=False)
    if not found.labels:  # it may not have had its labels yet
        found = next((one for one in await target.list(found.run) if one.handle == found.handle), found)
    # As the target reports, or because a process on this machine owns the run folder.
    folder = Path(found.labels[RUN_FOLDER]) if RUN_FOLDER in found.labels else None
    owner = owner_of(folder) if folder else None
    in_use = bool(found.in_use) or (folder is not None and owner is not None and owner.here and owner.works_on(folder))
    if found.alive and found.in_use is None and not in_use and not running:
        return Reaped(name, found, in_use, asleep=True)
    if not dry and not in_use:
        async with turn:
            try:
                if folder is not None:
                    await _record(RunFolder(folder), target, found)
                await target.remove(found.handle)
            except TargetError as error:
                return Reaped(name, found, in_use, problem=str(error))
    return Reaped(name, found, in_use)


async def _record(run: RunFolder, target: Target, found: Found) -> None:
    """Records that the job is deleted, for the process that resumes the run: in the run folder, or on the target if the
    folder is on another machine or another user's."""
    if run.plan.exists():
        with contextlib.suppress(OSError):
            return run.write_reaped(found.name)
    if isinstance(target, HasTombstones):
        await target.bury(found)
