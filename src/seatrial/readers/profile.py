"""Files and profiles that the agent read in a job."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec

from seatrial.job import ObservedStep, Unreadable, convert


class _Step(msgspec.Struct, frozen=True):
    number: int | None = None
    seconds: float | None = None


class DeviceEvents(msgspec.Struct, frozen=True):
    """Devices of one type and their events."""

    count: int = 0
    events: int = 0


class Profile(msgspec.Struct, frozen=True):
    """A profile as summarised by the agent."""

    events: int = 0
    unresolved: int = 0  # events without a name
    errors: list[str] = []
    planes: list[Any] = []
    devices: dict[str, DeviceEvents] = {}
    marked: list[_Step] = msgspec.field(default_factory=list, name="steps")
    step_source: str = ""
    ambiguous: list[str] = []  # event names that could all be steps

    @property
    def steps(self) -> list[tuple[int | None, float]]:
        """Number and seconds of each step."""
        timed = [(step.number, step.seconds or 0.0) for step in self.marked]
        return [(number, seconds) for number, seconds in timed if math.isfinite(seconds) and seconds > 0]


class StepTime(msgspec.Struct, frozen=True):
    """Step time of the slowest host, for which all others wait."""

    seconds: float
    count: int  # values used
    warmup: int  # leading values left out
    source: str


def entry_files(observed: ObservedStep, name: str) -> list[dict[str, Any]]:
    """The files that the agent found for an entry."""
    entry = observed.result.get(name)
    files = entry.get("files") if isinstance(entry, dict) else None
    return [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []


def entry_error(observed: ObservedStep, name: str) -> str:
    """Why the agent could not look for an entry's files; empty if it did."""
    entry = observed.result.get(name)
    return str(entry.get("error") or "") if isinstance(entry, dict) else ""


def profiles(files: ObservedStep, name: str) -> list[tuple[str, Profile]]:
    """Path and content of each readable profile of an entry; a malformed one has no events."""
    found: list[tuple[str, Profile]] = []
    for one in entry_files(files, name):
        if isinstance(one.get("profile"), dict) and not one.get("error"):
            try:
                profile = convert(one["profile"], Profile)
            except Unreadable:
                profile = Profile()
            found.append((str(one.get("path")), profile))
    return found


def from_profile(profiles: Sequence[tuple[str, Profile]]) -> StepTime | None:
    """The step time from the profiles of all hosts: the median of the slowest."""
    times = [(path, profile, [seconds for _, seconds in profile.steps]) for path, profile in profiles]
    slowest = max((one for one in times if one[2]), key=lambda one: median(one[2]), default=None)
    if slowest is None:
        return None
    path, profile, values = slowest
    return StepTime(median(values), len(values), 0, f"{profile.step_source or 'steps'} in {path}")
