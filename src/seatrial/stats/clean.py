"""Which runs of a series a bound may be made from: good ones, of one level, which nobody called a regression.

In this order:
1. What is before the newest level that a recenter accepted is out; its first run is in. A mark that was set on a run of
   it before, the acceptance overrules: whoever makes the points leaves it out.
2. A run that failed or has no finite metric is out; so are a run marked `regression` and all after it until one marked
   `fixed`.
3. A run that was out of its bounds is out, unless somebody marked it `false-alarm` or `fixed`. If the accepted runs
   were out of their bounds, so were those right after them, by the same bounds that no longer hold: these are in.
4. The rest is split at its clear change points and the newest part is used. Metrics of one run are one value for that.
   A part that is worse than the best one before it, and all after it until the level is back, are an open
   regression: out, and the part before them is used. Of parts before the newest accepted run none is meant.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from seatrial.stats.changes import ChangePoint, change_points

Better = Literal["lower", "higher"]
RunMark = Literal["", "false-alarm", "regression", "fixed"]
Detect = Callable[[Sequence[float]], list[ChangePoint]]

FAILED = "the run failed"
NOT_FINITE = "not a finite number"
BEFORE_ACCEPTED = "before the level that was accepted"
MARKED = "marked as a regression"
AFTER_MARKED = "after a regression, not yet fixed"
UNEXPLAINED = "out of bounds, and not explained"

WORSE = 0.015  # of the level: the floor of the bounds, below which no level counts as worse than another
RECOVERED = 0.75  # of a step for the worse has to be undone until the level is back
# From which confidence on a change splits the runs. Where people would not agree on a change, both sides make the
# bounds wider; a split for nothing would leave the newer runs out, and each of the next ones would be an alarm.
CLEAR = 0.7


@dataclass(frozen=True)
class Past:
    """One run of a series, as the history knows it."""

    value: float
    good: bool = True  # its cell ended well enough that the metric means something: passed, xfail, slower, faster
    alarm: bool = False  # it was out of the bounds of its time: slower, faster
    mark: RunMark = ""  # a person's judgement of it
    accepted: bool = False  # a recenter accepted its level; it is the first run of that, or one that was looked at then
    run: str = ""  # of several metrics of one run; empty: a run of its own


@dataclass(frozen=True)
class Cleaned:
    """Every index of the points is either in `used` or in `left_out`."""

    used: list[int]  # oldest first
    left_out: dict[int, str] = field(default_factory=dict)  # the reason, in plain words
    changes: list[ChangePoint] = field(default_factory=list)  # of the level, among what passed rules 1 to 3
    open_regression: int | None = None  # the first run of it


def clean_series(points: Sequence[Past], better: Better, detect: Detect = change_points) -> Cleaned:
    """Sort the runs of one series (one benchmark, fingerprint and metric; oldest first) into used and left out."""
    left_out, marked = _by_mark(points)
    kept = [index for index in range(len(points)) if index not in left_out]
    values = [points[index].value for index in kept]
    starts = run_starts([points[index].run for index in kept])
    found = detect([median(values[start:stop]) for start, stop in pairwise([*starts, len(values)])])
    changes = [replace(change, index=starts[change.index]) for change in found if 0 < change.index < len(starts)]
    edges = [0, *(change.index for change in changes if change.confidence >= CLEAR), len(values)]
    parts = [kept[start:stop] for start, stop in pairwise(edges)]
    levels = [median(values[start:stop]) for start, stop in pairwise(edges)] if values else []
    accepted = max((index for index in kept if points[index].accepted), default=-1)
    first = next((number for number, part in enumerate(parts) if part and part[-1] >= accepted), 0)
    sound, opened = _newest_sound(levels, better, first)
    for number, part in enumerate(parts):
        if number < sound:
            why = f"before the level changed from {_level_text(levels[sound - 1])} to {_level_text(levels[sound])}"
        elif number > sound:
            was, now = levels[sound : sound + 2]
            why = f"since the level got worse, from {_level_text(was)} to {_level_text(now)}, and it was not accepted"
        else:
            continue
        left_out.update(dict.fromkeys(part, why))
    regressions = [index for index in (marked, parts[opened][0] if opened else None) if index is not None]
    return Cleaned(
        parts[sound],
        dict(sorted(left_out.items())),
        [replace(change, index=kept[change.index]) for change in changes],
        min(regressions, default=None),
    )


def run_starts(runs: Sequence[str]) -> list[int]:
    """Where the metrics of each run begin."""
    return [index for index, run in enumerate(runs) if not run or not index or run != runs[index - 1]]


def _level_text(level: float) -> str:
    """As metrics are shown everywhere; `job`, which has the function for that, may not be imported here."""
    return f"{level:,.0f}" if 1e4 <= abs(level) < 1e15 else f"{level:.4g}"


def _by_mark(points: Sequence[Past]) -> tuple[dict[int, str], int | None]:
    """What verdicts and people say: the runs that are out, and the first of a marked regression that is not fixed."""
    start = _accepted_from(points)
    left_out = dict.fromkeys(range(start), BEFORE_ACCEPTED)
    regression: int | None = None
    settling = bool(points) and points[start].accepted and points[start].alarm
    for index in range(start, len(points)):
        past = points[index]
        if past.mark == "fixed":
            regression = None
        elif past.mark == "regression" and regression is None and not (past.accepted and index == start):
            regression = index
        settling = past.alarm if past.accepted else settling and (past.alarm or not past.good)
        if not past.good:
            left_out[index] = FAILED
        elif not math.isfinite(past.value):
            left_out[index] = NOT_FINITE
        elif regression is not None:
            left_out[index] = MARKED if past.mark == "regression" else AFTER_MARKED
        elif past.alarm and not past.mark and not past.accepted and not settling:
            left_out[index] = UNEXPLAINED
    return left_out, regression


def _accepted_from(points: Sequence[Past]) -> int:
    """The first run of the newest accepted level: of accepted runs that follow each other, failed ones apart."""
    start = 0
    inside = False
    for index, past in enumerate(points):
        if past.accepted and not inside:
            start = index
        inside = past.accepted or (inside and not past.good)
    return start


def _newest_sound(levels: Sequence[float], better: Better, first: int) -> tuple[int, int | None]:
    """The newest part, from the `first` that may be one, whose level is no regression, and the part that a regression
    began with, if one is open."""
    sound, opened, step = first, None, 0.0
    best = levels[first] if levels else 0.0
    for number, level in enumerate(levels[first + 1 :], first + 1):
        worse_by = level - best if better == "lower" else best - level
        if worse_by <= max(WORSE * abs(best), 0.0 if opened is None else step * (1 - RECOVERED)):
            sound, opened = number, None
            best = level if worse_by < 0 else best
        elif opened is None:
            opened, step = number, worse_by
        else:
            step = min(step, worse_by)
    return sound, opened
