"""Which runs of a series count for the bounds of an entry, which do not, and what helps them in."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.record.history import Point
from seatrial.stats.clean import AFTER_MARKED, MARKED, UNEXPLAINED, Cleaned, Past, clean
from seatrial.suite.baseline import Entry


def cleaned(points: Sequence[Point], better: str, entry: Entry | None) -> Cleaned:
    """Which runs a bound may be made from: see stats/clean.py. A level that a recenter accepted is in the entry."""
    start = accepted_from(points, entry)
    past = []
    for index, point in enumerate(points):
        accepted = start is not None and index >= start and (index == start or _looked_at(point, entry))
        word = "" if accepted and _overruled(point) else point.mark
        past.append(Past(point.value, point.good, point.alarm, _mark(word), accepted))
    return clean(past, "higher" if better == "higher" else "lower")


def accepted_from(points: Sequence[Point], entry: Entry | None) -> int | None:
    """The first run of the level that a recenter of the entry accepted; None: there was none, or it is long ago."""
    if entry is None or not (entry.accepted or entry.accepted_s is not None):
        return None
    for index, point in enumerate(points):
        if point.run == entry.accepted:
            return index
    if entry.accepted_s is None:
        return None
    return next((index for index, point in enumerate(points) if point.at_s >= (entry.accepted_s or 0.0)), None)


def overruled(points: Sequence[Point], entry: Entry | None) -> list[str]:
    """Runs with a mark `regression` that does not count, for a recenter accepted their level."""
    start = accepted_from(points, entry)
    level = points[start:] if start is not None else []
    return [one.run for one in level if _overruled(one) and (one is level[0] or _looked_at(one, entry))]


def named(points: Sequence[Point], left_out: dict[int, str]) -> dict[str, list[str]]:
    """Reason -> what it leaves out: runs, or, of a run with several figures, its cells."""
    several = {run for run, count in Counter(point.run for point in points).items() if count > 1}
    grouped: dict[str, list[str]] = {}
    for index, reason in sorted(left_out.items()):
        point = points[index]
        grouped.setdefault(reason, []).append(f"{point.run} {point.id}" if point.run in several else point.run)
    return grouped


def counted_reasons(reasons: Iterable[str]) -> str:
    """`left out: 3 × the run failed; 1 × an outlier among the others`; empty when nothing is."""
    counts = Counter(reasons).most_common()
    return "left out: " + "; ".join(f"{count} × {why}" for why, count in counts) if counts else ""


def what_helps(points: Sequence[Point], found: Cleaned) -> list[str]:
    """The commands that would let runs in which are left out."""
    helps, reasons = [], set(found.left_out.values())
    if found.open_regression is not None:
        run = points[found.open_regression].run
        since = points[found.open_regression :]
        force = " --force" if any(point.good and point.mark == "regression" for point in since) else ""
        helps.append(f"a regression is open since run {run}; `seatrial baseline recenter{force}` accepts its level")
    if reasons & {MARKED, AFTER_MARKED}:
        helps.append("`seatrial history mark RUN --fixed` says from which run on it is in order again")
    if UNEXPLAINED in reasons:
        last = max(index for index, why in found.left_out.items() if why == UNEXPLAINED)
        helps.append(f"`seatrial history mark {points[last].run} --false-alarm` says that such a run is in order")
    return helps


def _looked_at(point: Point, entry: Entry | None) -> bool:
    """It ran before the recenter that accepted its level. Times in the file are whole seconds."""
    return entry is not None and entry.accepted_until_s is not None and point.at_s < entry.accepted_until_s + 1


def _overruled(point: Point) -> bool:
    # Where the history knows of the recenter too, it has taken away what was said before, so this was said after it.
    return point.mark == "regression" and not point.accepted


def _mark(word: str) -> Any:
    return word if word in ("false-alarm", "regression", "fixed") else ""
