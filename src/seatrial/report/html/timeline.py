"""The timeline: when each attempt was queued and running, with one lane per host."""

from collections.abc import Iterable
from typing import NamedTuple

from seatrial.job import AttemptResult, Stage
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import RunView
from seatrial.report.view.words import clock_text, duration_text

_WIDTH = 1000
ROW = 7  # height of one attempt
_MOST_ROWS = 40  # per lane; further attempts overlap


class _Span(NamedTuple):
    queued: float
    started: float
    finished: float
    cell: CellView
    attempt: AttemptResult


class Bar:
    """One attempt, in SVG units."""

    def __init__(self, span: _Span, row: int, first: float, scale: float) -> None:
        cell, attempt = span.cell, span.attempt
        self.hash, self.verdict, self.y = cell.hash, attempt.verdict.value, row * ROW
        self.queued = round((span.queued - first) * scale, 1)  # x position
        self.left = round((span.started - first) * scale, 1)
        self.width = round(max(1.0, (span.finished - span.started) * scale), 1)
        self.retried = attempt.number < len(cell.attempts)
        waited, ran = duration_text(span.started - span.queued), duration_text(span.finished - span.started)
        self.title = f"{cell.id}, attempt {attempt.number}: {self.verdict}, queued {waited}, ran {ran}"


class Lane:
    def __init__(self, place: str, spans: list[_Span], first: float, scale: float) -> None:
        self.place, self.attempts = place, len(spans)
        self.busy = duration_text(sum(span.finished - span.started for span in spans))
        free: list[float] = []  # end time of the last bar in each row
        self.bars = []
        for span in spans:
            row = next((number for number, at in enumerate(free) if at <= span.queued), None)
            if row is None:
                row = len(free) if len(free) < _MOST_ROWS else min(range(len(free)), key=free.__getitem__)
            free[row : row + 1] = [span.finished]
            self.bars.append(Bar(span, row, first, scale))
        self.height = len(free) * ROW


class Lanes:
    def __init__(self, places: dict[str, list[_Span]]) -> None:
        spans = [span for some in places.values() for span in some]
        first, last = min(span.queued for span in spans), max(span.finished for span in spans)
        scale = _WIDTH / max(last - first, 1e-9)
        self.lanes = [
            Lane(place, sorted(some, key=lambda span: span[:3]), first, scale) for place, some in places.items()
        ]
        self.began, self.took = clock_text(first, "%Y-%m-%d %H:%M:%S UTC"), duration_text(last - first)
        self.ticks = [duration_text((last - first) * part / 4) for part in range(5)]


def run_lanes(run: RunView) -> Lanes | None:
    """None if no attempt has times."""
    places: dict[str, list[_Span]] = {}
    for span in _spans(run.cells):
        place = span.attempt.place
        where = f"{place.target}/{place.machine}" if place.machine else place.target
        places.setdefault(f"{where} {place.host}".strip(), []).append(span)
    return Lanes(places) if places else None


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
