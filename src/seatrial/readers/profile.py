import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec

from seatrial.job import ObservedStep


def entry_files(observed: ObservedStep, name: str) -> list[dict[str, Any]]:
    """The files that the agent found for an entry."""
    entry = observed.result.get(name)
    files = entry.get("files") if isinstance(entry, dict) else None
    return [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []


class StepTime(msgspec.Struct, frozen=True):
    """Of the host whose steps took longest: all wait for it."""

    seconds: float
    count: int  # values that it was made from
    warmup: int  # values before them that were left out
    source: str


def from_profile(profiles: Sequence[tuple[str, dict[str, Any]]]) -> StepTime | None:
    """From the profiles of all hosts, each under its path: the median of its steps, as the profile has them."""
    best: StepTime | None = None
    for path, profile in profiles:
        values = [value for _, value in profile_steps(profile)]
        if values and (best is None or median(values) > best.seconds):
            source = f"{profile.get('step_source') or 'steps'} in {path}"
            best = StepTime(median(values), len(values), 0, source)
    return best


def profile_steps(profile: dict[str, Any]) -> list[tuple[int | None, float]]:
    """Number and seconds of each step of a profile."""
    steps = profile.get("steps")
    found = []
    for step in steps if isinstance(steps, list) else []:
        seconds = step.get("seconds") if isinstance(step, dict) else None
        if isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0:
            number = step.get("number")
            found.append((number if isinstance(number, int) else None, float(seconds)))
    return found


def profiles(files: ObservedStep, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Path and summary of each profile of an entry that could be read."""
    found = [(str(one.get("path")), one.get("profile"), one.get("error")) for one in entry_files(files, name)]
    return [(path, profile) for path, profile, error in found if isinstance(profile, dict) and not error]
