"""The finding for a loss that should go as a recorded curve went: each step that both have, and no step left out."""

from bisect import bisect
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Protocol

from seatrial.check.finding import failed, passed
from seatrial.check.training.log import cut_short, relevant_output
from seatrial.check.training.log_values import LogValue, LogValues, value_text
from seatrial.job import Finding, ObservedStep, count

CHECK = "loss curve"
SURE = 3  # steps from which on it is known that a log prints every Nth


class CurveTolerance(Protocol):
    @property
    def width(self) -> str: ...

    def near(self, value: float, wanted: float) -> bool: ...

    def about(self, wanted: float) -> str: ...


def check_curve(
    observed: ObservedStep, losses: LogValues, tolerance: CurveTolerance, recorded: Mapping[int, float]
) -> Finding:
    """1. Steps that a host reports and the curve has are compared, the last one of a long log always among them.
    2. Each host comes as far as the curve, and has each of its steps, but for those between two lines of a log that
       prints every Nth step: a run that skipped what it did badly is not like the recorded one.
    """
    by_host = {host: [one for one in losses.of(host) if one.step is not None] for host in losses.hosts}
    logged_steps = [one for readings in by_host.values() for one in readings]
    common = [one for one in logged_steps if one.step in recorded]
    if not common:
        why = "its lines have no step number" if not logged_steps else "it has none of the steps of the recorded curve"
        return failed(observed, CHECK, "loss", f"the curve cannot be compared: {why}", relevant_output(observed))
    if off := [one for one in common if not tolerance.near(one.value, recorded[one.step or 0])]:
        return _off(observed, off, len(common), tolerance, recorded)
    for host, readings in by_host.items():
        place = f" on host {host}" if len(by_host) > 1 else ""
        lacks = _lacks(observed, readings, losses.thinned(host), recorded, place)
        if lacks:
            return failed(observed, CHECK, "loss", lacks, relevant_output(observed))
    compared = len({one.step for one in common})
    part = "; of this many values only a part is kept" if any(map(losses.thinned, by_host)) else ""
    message = (
        f"{compared:,} of {count(len(recorded), 'step')} of the recorded curve compared, within {tolerance.width}{part}"
    )
    return passed(observed, CHECK, message)


def _off(
    observed: ObservedStep,
    off: list[LogValue],
    compared: int,
    tolerance: CurveTolerance,
    recorded: Mapping[int, float],
) -> Finding:
    first = min(off, key=lambda one: one.step or 0)
    message = (
        f"{len(off)} of {count(compared, 'step')} are off the recorded curve, first step {first.step}: "
        f"{value_text(first.value)}, and should be {tolerance.about(recorded[first.step or 0])}"
    )
    return failed(observed, CHECK, "loss", message)


def _lacks(
    observed: ObservedStep, readings: list[LogValue], thinned: bool, recorded: Mapping[int, float], place: str
) -> str:
    """What a host's log has not of the recorded curve, in words; of one that was ended early, before its end."""
    logged_steps = sorted({one.step for one in readings if one.step is not None})
    if not logged_steps:
        return f"the curve cannot be compared{place}: its lines have no step number"
    every, reached, wanted = _every(logged_steps), logged_steps[-1], max(recorded)
    if reached + every - 1 < wanted and not cut_short(observed):
        return f"the recorded curve goes to step {wanted}, and this log{place} only to {reached}"
    if thinned:
        return ""
    there = set(logged_steps)
    lacking = [
        step for step in recorded if step <= reached and step not in there and _left_out(step, logged_steps, every)
    ]
    if not lacking:
        return ""
    here = sum(step in there for step in recorded)
    steps = f"{here:,} of {count(len(recorded), 'step')} of the recorded curve"
    return f"{steps} are in the log{place}; step {min(lacking)} is not"


def _left_out(step: int, logged_steps: list[int], every: int) -> bool:
    """Whether a step that the log has not, and goes beyond, should be there."""
    at = bisect(logged_steps, step)
    if at == 0:  # one that prints every tenth may begin at 10
        return logged_steps[0] - step > every or every == 1
    return logged_steps[at] - logged_steps[at - 1] > every


def _every(steps: list[int]) -> int:
    """Which step the log prints, by the steps that it has: every second, every tenth; 1 where that is not known."""
    if len(steps) < SURE:
        return 1
    return int(median(high - low for low, high in pairwise(steps)))
