"""Selects the runs that bounds are computed from: good runs of one level, not marked as a regression.

In this order:
1. Runs before the newest accepted level (by `baseline recenter`) are left out. Acceptance overrides earlier marks on
   its runs: the caller leaves those marks out of the points.
2. Runs that failed or have no finite value are left out, and so are runs from one marked `regression` until one marked
   `fixed`.
3. Runs that were out of bounds are left out unless marked `false-alarm` or `fixed`. If the accepted runs were out of
   bounds, the runs right after them were checked against the same outdated bounds, so these are used.
4. The rest is split at clear change points, and the newest part is used. All values of a run count as one for that. A
   part that is worse than the best one before it, and all later ones until the level recovers, are an open regression:
   they are left out, and the part before is used. Parts before the newest accepted run are not considered.
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
BEFORE_ACCEPTED = "before the accepted level"
MARKED = "marked as a regression"
AFTER_MARKED = "after a regression, not yet fixed"
UNEXPLAINED = "out of bounds, unexplained"

WORSE = 0.015  # minimum relative difference of a worse level; the floor of bounds
RECOVERED = 0.75  # share of a regression that must be undone to count as recovered
# Minimum confidence of a change that splits the runs. An unclear change makes the bounds wider; a wrong split would
# leave newer runs out, and every later run would raise an alert.
CLEAR = 0.7


@dataclass(frozen=True)
class Past:
    """One value of a series, from the history."""

    value: float
    good: bool = True  # the verdict makes the value meaningful: passed, xfail, slower, faster
    alarm: bool = False  # out of the bounds at that time: slower, faster
    mark: RunMark = ""  # set by a user
    accepted: bool = False  # a recenter accepted its level, of which it is the first run or one of those considered
    run: str = ""  # groups the values of one run; empty: a run of its own


@dataclass(frozen=True)
class Cleaned:
    """The selection. Every index is either in `used` or in `left_out`."""

    used: list[int]  # oldest first
    left_out: dict[int, str] = field(default_factory=dict)  # index -> reason
    changes: list[ChangePoint] = field(default_factory=list)  # level changes among the runs that pass rules 1 to 3
    open_regression: int | None = None  # its first run


def clean_series(points: Sequence[Past], better: Better, detect: Detect = change_points) -> Cleaned:
    """Selects the runs of one series (one benchmark, fingerprint and metric; oldest first)."""
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
            why = f"since the level got worse (from {_level_text(was)} to {_level_text(now)}) and was not accepted"
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
    """The index of the first value of each run."""
    return [index for index, run in enumerate(runs) if not run or not index or run != runs[index - 1]]


def _level_text(level: float) -> str:
    """Formats like `job.value_text`, which must not be imported here."""
    return f"{level:,.0f}" if 1e4 <= abs(level) < 1e15 else f"{level:.4g}"


def _by_mark(points: Sequence[Past]) -> tuple[dict[int, str], int | None]:
    """Applies rules 1 to 3: the runs to leave out, and the first run of a marked regression that is not fixed."""
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
    """The first run of the newest accepted level: a sequence of accepted runs, ignoring failed ones."""
    start = 0
    inside = False
    for index, past in enumerate(points):
        if past.accepted and not inside:
            start = index
        inside = past.accepted or (inside and not past.good)
    return start


def _newest_sound(levels: Sequence[float], better: Better, first: int) -> tuple[int, int | None]:
    """The newest part from `first` on that is not a regression, and the part where an open regression began, if any."""
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
