"""Time: when each attempt waited and ran, in a lane for each place."""

from dataclasses import dataclass

from seatrial.job import AttemptResult, Stage
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import RunView
from seatrial.report.view.words import clock_text, duration_text

_WIDTH = 1000
ROW = 7  # height of one attempt
_MOST_ROWS = 40  # of one lane: beyond them attempts are drawn over each other


@dataclass(frozen=True)
class Bar:
    hash: str
    verdict: str
    y: int
    queued: float  # where it began to wait
    left: float
    width: float
    retried: bool
    title: str


@dataclass(frozen=True)
class Lane:
    place: str
    attempts: int
    bars: list[Bar]
    height: int
    busy: str  # seconds of all attempts together


@dataclass(frozen=True)
class Lanes:
    lanes: list[Lane]
    began: str
    took: str
    ticks: list[str]


Span = tuple[float, float, float, CellView, AttemptResult]  # queued, started, finished


def run_lanes(run: RunView) -> Lanes | None:
    """None where no attempt has its times."""
    places: dict[str, list[Span]] = {}
    for cell in run.cells:
        for attempt in cell.attempts:
            span = _span(cell, attempt)
            if span is not None:
                place = attempt.place
                where = f"{place.target}/{place.machine}" if place.machine else place.target
                places.setdefault(f"{where} {place.host}".strip(), []).append(span)
    spans = [span for some in places.values() for span in some]
    if not spans:
        return None
    first, last = min(span[0] for span in spans), max(span[2] for span in spans)
    scale = _WIDTH / max(last - first, 1e-9)
    lanes = [_lane(place, sorted(some, key=lambda span: span[:3]), first, scale) for place, some in places.items()]
    ticks = [duration_text((last - first) * part / 4) for part in range(5)]
    return Lanes(lanes, clock_text(first, "%Y-%m-%d %H:%M:%S UTC"), duration_text(last - first), ticks)


def _span(cell: CellView, attempt: AttemptResult) -> Span | None:
    times = {one.stage: one.wall_s for one in attempt.stages}
    if not times:
        return None
    begin = min(times.values())
    started = times.get(Stage.STARTED)
    end = times.get(Stage.FINISHED, max(times.values()))
    if started is None:
        return begin, end, end, cell, attempt
    if attempt.seconds is not None:
        end = max(end, started + attempt.seconds)
    return begin, max(begin, started), max(end, started), cell, attempt


def _lane(place: str, spans: list[Span], first: float, scale: float) -> Lane:
    free: list[float] = []  # when each row of the lane is free again
    bars = []
    for queued, started, finished, cell, attempt in spans:
        row = next((number for number, at in enumerate(free) if at <= queued), None)
        if row is None:
            row = len(free) if len(free) < _MOST_ROWS else min(range(len(free)), key=free.__getitem__)
        free[row : row + 1] = [finished]
        bars.append(
            Bar(
                cell.hash,
                attempt.verdict.value,
                row * ROW,
                round((queued - first) * scale, 1),
                round((started - first) * scale, 1),
                round(max(1.0, (finished - started) * scale), 1),
                attempt.number < len(cell.attempts),
                f"{cell.id}, attempt {attempt.number}: {attempt.verdict.value}, waited "
                f"{duration_text(started - queued)}, ran {duration_text(finished - started)}",
            )
        )
    busy = duration_text(sum(finished - started for _, started, finished, _, _ in spans))
    return Lane(place, len(spans), bars, len(free) * ROW, busy)
