"""Examines targets: what of them is in order, and what to do about the rest."""

import asyncio

import msgspec

from seatrial import plugins
from seatrial.suite import HERE, LOCAL, ChosenTarget, Suite, TargetEntry, choose_target
from seatrial.targets import Remark, RemarkLevel

DOCTOR_VERSION = 1
_PATIENCE_S = 120.0  # for one target; each asks what it needs with a patience of its own


class Examined(msgspec.Struct, frozen=True):
    """One target, as `seatrial doctor --json` tells it."""

    target: str
    kind: str
    remarks: list[Remark]

    @property
    def sound(self) -> bool:
        return all(remark.level is not RemarkLevel.PROBLEM for remark in self.remarks)


def chosen_targets(suite: Suite | None, chosen: str | None) -> dict[str, TargetEntry]:
    """By name: the one that is `chosen` (raises SuiteError), else those of the suite, else this machine."""
    known = suite.targets if suite is not None else {HERE: _entry(LOCAL)}
    if chosen is None:
        return dict(known)
    moved: ChosenTarget = choose_target(chosen, known, plugins.models()[1])
    return {moved.name: moved.entry}


def targets_at_hand() -> dict[str, TargetEntry]:
    """What there is to look at where nobody names a suite: this machine, the cluster that kubectl would use."""
    others = [name for name, kind in plugins.targets().items() if name != LOCAL and kind.at_hand()]
    return {HERE: _entry(LOCAL)} | {name: _entry(name) for name in others}


def _entry(kind: str) -> TargetEntry:
    return TargetEntry(kind, plugins.targets()[kind].options())


async def examine(targets: dict[str, TargetEntry]) -> list[Examined]:
    return list(await asyncio.gather(*(_examined(name, entry) for name, entry in targets.items())))


async def _examined(name: str, entry: TargetEntry) -> Examined:
    """That a target cannot even be examined is a remark, too: whoever asks the doctor has trouble enough."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            remarks = await plugins.targets()[entry.kind].open(name, entry.options).examine()
    except TimeoutError:
        why = f"it did not answer within {_PATIENCE_S:g} s"
        remarks = [Remark(RemarkLevel.PROBLEM, "reachable", why, "look whether it, and the way to it, is up")]
    except Exception as error:  # noqa: BLE001
        remarks = [Remark(RemarkLevel.PROBLEM, "examined", f"it cannot be: {type(error).__name__}: {error}")]
    return Examined(name, entry.kind, remarks)
