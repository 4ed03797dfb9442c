"""Plots over runs and hosts: a metric over its runs, before and since its last change, and attempts by host."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from seatrial.job import AttemptResult, Stage
from seatrial.job.units import count
from seatrial.record import history
from seatrial.report.view.cell import CellView
from seatrial.report.view.plot import MOST_POINTS, Axis, Band, Mark, Plot, Point, curve
from seatrial.report.view.run import RunView
from seatrial.report.view.series import Scale, SeriesView
from seatrial.report.view.words import clock_text, commit_text, date_text, duration_text, one_line, percent_text

_MOST_CHANGES = 9
_LATEST_S = 1e11  # the year 5138; later times are not dates
_BINS = 24
_LEAST_BEFORE, _LEAST_SINCE = 8, 3  # values of a distribution


def metric_plot(view: SeriesView, link: Callable[[history.Point], str] = lambda _: "", last: int = 0) -> Plot:
    """One dot per value, the bounds as a band, level changes as marks; only the `last` values if given."""
    scale = Scale(view)
    points = [point for point in view.points[-last:] if 0 <= point.at_s < _LATEST_S]
    dots = curve(view.metric, (_dot(point, link(point)) for point in points), "dots")
    near = {side: level if scale.shows(level) else None for side, level in scale.bounds.items()}
    bands = [Band(near.get("lower"), near.get("upper"), label="bounds")] if near else []
    changes = [change for change in view.changes[-_MOST_CHANGES:] if points and change.at_s >= points[0].at_s]
    marks = [Mark(change.at_s) for change in changes]
    if changes:
        where = f", {commit_text(changes[-1].commit)}" if changes[-1].commit else ""
        text = f"{percent_text(changes[-1].size)} since {date_text(changes[-1].at_s)}{where}"
        marks[-1] = Mark(changes[-1].at_s, text)
    x, y = Axis(kind="date"), Axis(one_line(view.unit))
    return Plot(one_line(view.metric), [dots], x, y, bands, marks, 240, group="runs")


def _dot(point: history.Point, link: str) -> Point:
    """Alerts, failed runs and reviewed runs have a colour."""
    state = "v-failed" if not point.good else f"v-{point.verdict}" if point.alarm else "v-flaky" if point.mark else ""
    commit = f"commit {commit_text(point.commit)}" if point.commit else ""
    about = (f"run {point.run}", clock_text(point.at_s, "%-d %b %Y %H:%M UTC"), commit, point.verdict, point.mark)
    return Point(point.at_s, point.value, 0, "\n".join(one_line(part) for part in about if part), link, state)


def before_and_since(view: SeriesView) -> Plot | None:
    """The distribution of the values before and since the last level change; None if there are too few."""
    split = view.changes[-1].index if view.changes else 0
    parts = [[point.value for point in some if point.good] for some in (view.points[:split], view.points[split:])]
    low, high = (pick((value for part in parts for value in part), default=0.0) for pick in (min, max))
    if len(parts[0]) < _LEAST_BEFORE or len(parts[1]) < _LEAST_SINCE or low == high:
        return None
    edges = [low + (high - low) * place / _BINS for place in range(_BINS + 1)]
    curves = []
    for part, name in zip(parts, ("before", "since"), strict=True):
        bins = [min(int((value - low) / (high - low) * _BINS), _BINS - 1) for value in part]
        bars = [(edges[place], 100 * bins.count(place) / len(part), edges[place + 1]) for place in sorted(set(bins))]
        curves.append(curve(f"{count(len(part), 'value')} {name}", bars, "bars"))
    x = Axis(one_line(view.unit), label=one_line(view.metric))
    return Plot("Before and since the last change", curves, x, Axis("%"), note="share of values")


# The timeline: when each attempt was queued and running, with one lane per host.


ROW = 7  # height of one attempt
_FEW_ROWS = 12
_MOST_ROWS = 40  # per lane; further attempts overlap


class _Span(NamedTuple):
    queued: float
    started: float
    finished: float
    cell: CellView
    attempt: AttemptResult


def run_lanes(run: RunView) -> Plot | None:
    """None if no attempt has times."""
    places: dict[str, list[_Span]] = {}
    for span in _spans(run.cells):
        place = span.attempt.place
        where = f"{place.target}/{place.machine}" if place.machine else place.target
        places.setdefault(one_line(f"{where} {place.host}"), []).append(span)
    if not places:
        return None
    first = min(span.queued for spans in places.values() for span in spans)
    last = max(span.finished for spans in places.values() for span in spans)
    top, ticks, edges, queued, curves = 0, [], [], [], []
    for name, spans in places.items():
        free: list[float] = []  # end time of the last bar in each row
        bars = []
        for span in sorted(spans, key=lambda span: span[:3]):
            row = next((number for number, at in enumerate(free) if at <= span.queued), None)
            if row is None:
                row = len(free) if len(free) < _MOST_ROWS else min(range(len(free)), key=free.__getitem__)
            free[row : row + 1] = [span.finished]
            bars.append(Point(span.started - first, top + row, span.finished - first, *_words(span)))
            queued.append(Point(span.queued - first, top + row, span.started - first, state="queued"))
        ticks.append((top + (len(free) - 1) / 2, f"{name} ({len(spans)})"))
        curves.append(curve(name, bars, "lane"))
        top += len(free)
        edges.append(Mark(top - 0.5, axis="y", kind="edge"))
    some = f", the {MOST_POINTS:,} longest of each host" if max(map(len, places.values())) > MOST_POINTS else ""
    note = f"from {clock_text(first, '%Y-%m-%d %H:%M:%S UTC')}, {duration_text(last - first)}{some}"
    x, rows = Axis("s", low=0, high=last - first or 1.0, label="time"), Axis(low=top - 0.5, high=-0.5, ticks=ticks)
    curves.insert(0, curve("queued", (bar for bar in queued if bar.end > bar.x), "lane"))
    tall = 34 + max(2, top) * (ROW if top > _FEW_ROWS else 2 * ROW)
    return Plot("Attempts by host", curves, x, rows, [], edges[:-1], tall, note, legend=False)


def _words(span: _Span) -> tuple[str, str, str]:
    """Text, link and class of an attempt."""
    cell, attempt, verdict = span.cell, span.attempt, span.attempt.verdict.value
    waited, ran = duration_text(span.started - span.queued), duration_text(span.finished - span.started)
    text = f"{one_line(cell.id)}\nattempt {attempt.number}: {verdict}, queued {waited}, ran {ran}"
    return text, f"#cell/{cell.hash}", f"v-{verdict}{' retried' if attempt.number < len(cell.attempts) else ''}"


def _spans(cells: Iterable[CellView]) -> Iterable[_Span]:
    for cell in cells:
        for attempt in cell.attempts:
            times = {one.stage: one.wall_s for one in attempt.stages}
            if times:
                begin = min(times.values())
                end = times.get(Stage.FINISHED, max(times.values()))
                started = times.get(Stage.STARTED, end)
                if Stage.STARTED in times and attempt.seconds is not None:
                    end = max(end, started + attempt.seconds)
                yield _Span(begin, max(begin, started), max(end, started), cell, attempt)
