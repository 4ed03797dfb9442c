"""Removes what runs left behind, found by label alone."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from seatrial.engine import registry
from seatrial.record import owner_of
from seatrial.suite import Suite
from seatrial.target import Found, Target

FOLDER = "folder"  # label of a job: the run folder, to know whether its run is still being worked on


class Reaped(msgspec.Struct, frozen=True):
    target: str
    found: Found
    in_use: bool  # its run is being worked on by a living process: left alone


async def reap(suite: Suite | None, runs: Iterable[str], older_s: float, now_s: float, dry: bool) -> list[Reaped]:
    """Everything that carries a run's label on the targets of `suite` (this machine without one), oldest first."""
    wanted = set(runs)
    seen: list[Reaped] = []
    for name, target in _targets(suite):
        await target.open()
        try:
            for found in sorted(await target.list(None), key=lambda one: one.created_s):
                if (wanted and found.run not in wanted) or now_s - found.created_s < older_s:
                    continue
                reaped = Reaped(name, found, _in_use(found))
                if not dry and not reaped.in_use:
                    await target.remove(found.handle)
                seen.append(reaped)
        finally:
            await target.close()
    return seen


def _targets(suite: Suite | None) -> list[tuple[str, Target]]:
    if suite is None:
        local = registry.targets()["local"]
        return [("here", local.open("here", local.options()))]
    return [(name, registry.targets()[entry.kind].open(name, entry.options)) for name, entry in suite.targets.items()]


def _in_use(found: Found) -> bool:
    owner = owner_of(Path(found.labels[FOLDER])) if FOLDER in found.labels else None
    return owner is not None and owner.alive()
