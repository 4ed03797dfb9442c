"""Which runs of a series a bound may be made from: good ones, of one level, which nobody called a regression.

In this order:
1. What is before the newest run that a recenter accepted is out.
2. A run that failed or has no finite figure is out; so are a run marked `regression` and all after it until one marked
   `fixed`.
3. A run that was out of its bounds is out, unless somebody marked it `false-alarm` or `fixed`. If the accepted run was
   out of its bounds, so were those right after it, by the same bounds that no longer hold: these are in.
4. The rest is split at its change points and the newest part is used. A part that is worse than the best one before it,
   and all after it until the level is back, are an open regression: out, and the part before them is used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from seatrial.stats.change_points import Change, change_points

Better = Literal["lower", "higher"]
Mark = Literal["", "false-alarm", "regression", "fixed"]
Detect = Callable[[Sequence[float]], list[Change]]

WORSE = 0.015  # of the level: the floor of the bounds, below which no level counts as worse than another
RECOVERED = 0.75  # of a step for the worse has to be undone until the level is back


@dataclass(frozen=True)
class Past:
    """One run of a series, as the history knows it."""

    value: float
    good: bool = True  # its cell ended well enough that the figure means something: passed, xfail, slower, faster
    alarm: bool = False  # it was out of the bounds of its time: slower, faster
    mark: Mark = ""  # a person's word on it
    accepted: bool = False  # a recenter made it the first run of an accepted level


@dataclass(frozen=True)
class Cleaned:
    """Every index of the points is either in `used` or in `left_out`."""

    used: list[int]  # oldest first
    left_out: dict[int, str] = field(default_factory=dict)  # the reason, in plain words
    changes: list[Change] = field(default_factory=list)  # of the level, among what passed rules 1 to 3
    open_regression: int | None = None  # the first run of it


def clean(points: Sequence[Past], better: Better, detect: Detect = change_points) -> Cleaned:
    """Sort the runs of one series (one benchmark, fingerprint and metric; oldest first) into used and left out."""
    left_out, marked = _by_word(points)
    kept = [index for index in range(len(points)) if index not in left_out]
    values = [points[index].value for index in kept]
    changes = [change for change in detect(values) if 0 < change.index < len(values)]
    edges = [0, *(change.index for change in changes), len(values)]
    parts = [kept[start:stop] for start, stop in pairwise(edges)]
    levels = [median(values[start:stop]) for start, stop in pairwise(edges)] if values else []
    sound, opened = _newest_sound(levels, better)
    for number, part in enumerate(parts):
        if number < sound:
            why = f"before the level changed from {levels[sound - 1]:.4g} to {levels[sound]:.4g}"
        elif number > sound:
            was, now = levels[sound : sound + 2]
            why = f"since the level got worse, from {was:.4g} to {now:.4g}, and nobody accepted it"
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


def _by_word(points: Sequence[Past]) -> tuple[dict[int, str], int | None]:
    """What verdicts and people say: the runs that are out, and the first of a marked regression that is not fixed."""
    start = max((index for index, past in enumerate(points) if past.accepted), default=0)
    left_out = dict.fromkeys(range(start), "before the level that was accepted")
    regression: int | None = None
    settling = bool(points) and points[start].accepted and points[start].alarm
    for index in range(start, len(points)):
        past = points[index]
        if past.mark == "fixed" or past.accepted:
            regression = None
        elif past.mark == "regression" and regression is None:
            regression = index
        settling = settling and (past.alarm or not past.good)
        if not past.good:
            left_out[index] = "the run failed"
        elif not math.isfinite(past.value):
            left_out[index] = "not a finite number"
        elif regression is not None:
            left_out[index] = (
                "marked as a regression" if past.mark == "regression" else "after a regression, not yet fixed"
            )
        elif past.alarm and not past.mark and not past.accepted and not settling:
            left_out[index] = "out of bounds, and nobody has said why"
    return left_out, regression


def _newest_sound(levels: Sequence[float], better: Better) -> tuple[int, int | None]:
    """The newest part whose level is no regression, and the part that a regression began with, if one is open."""
    sound, opened, step = 0, None, 0.0
    best = levels[0] if levels else 0.0
    for number, level in enumerate(levels[1:], 1):
        worse_by = level - best if better == "lower" else best - level
        if worse_by <= max(WORSE * abs(best), 0.0 if opened is None else step * (1 - RECOVERED)):
            sound, opened = number, None
            best = level if worse_by < 0 else best
        elif opened is None:
            opened, step = number, worse_by
        else:
            step = min(step, worse_by)
    return sound, opened
