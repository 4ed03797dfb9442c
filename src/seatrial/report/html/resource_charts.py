"""Small charts of resource samples as inline SVG: a line over the time of an attempt, its steps as bands behind it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from seatrial.job import Observation, Sample
from seatrial.report.cell_view import CellView, nonnegative
from seatrial.report.text import duration_text, one_line, size_text

WIDTH, HEIGHT = 600, 80
_MOST_POINTS = 150

SamplePoint = tuple[float, float]


@dataclass(frozen=True)
class Band:
    name: str
    x: float
    width: float


@dataclass(frozen=True)
class Chart:
    """Ready for a template: numbers of the SVG's own units, and texts."""

    title: str
    most: str
    end: str
    line: str  # points of a polyline
    area: str  # the same, closed at the bottom
    bands: list[Band]


def resource_charts(view: CellView) -> list[Chart]:
    """Each part has its own: their processes have nothing in common, nor have the clocks of their steps."""
    return [chart for part, one in view.observed.items() for chart in _charts(f" of the {part}" if part else "", one)]


def _charts(whose: str, observed: Observation) -> list[Chart]:
    steps = [step for step in observed.steps if step.started_s is not None]
    samples = sorted((sample for step in steps for sample in step.samples), key=lambda sample: sample.at_s)
    if len(samples) < 3:
        return []
    first = min(step.started_s for step in steps if step.started_s is not None)
    last = max([samples[-1].at_s, *(step.ended_s for step in steps if step.ended_s is not None)])
    span = max(last - first, 1e-9)
    bands = [
        Band(
            f"{one_line(step.name)}: {duration_text(step.seconds) or 'did not end'}",
            round((step.started_s - first) / span * WIDTH, 1),
            round(((step.ended_s if step.ended_s is not None else last) - step.started_s) / span * WIDTH, 1),
        )
        for step in steps
        if step.started_s is not None
    ]
    memory = [(sample.at_s, float(sample.memory_bytes)) for sample in samples if sample.memory_bytes is not None]
    series = [
        ("Memory", memory, size_text),
        ("CPU cores", _rates(samples), _two),
        ("GPU memory", _gpu(samples, "memory_bytes", sum), size_text),
        ("GPU use, %", _gpu(samples, "utilization", max), _two),
    ]
    return [
        _chart(f"{title}{whose}", points, form(max(v for _, v in points)), first, span, bands)
        for title, points, form in series
        if len(points) > 2
    ]


def _chart(title: str, points: list[SamplePoint], most: str, first: float, span: float, bands: list[Band]) -> Chart:
    kept = _thinned(points)
    top = max(value for _, value in kept) or 1.0
    placed = [f"{(at - first) / span * WIDTH:.1f},{HEIGHT - value / top * (HEIGHT - 4):.1f}" for at, value in kept]
    start, end = placed[0].split(",")[0], placed[-1].split(",")[0]
    area = f"{start},{HEIGHT} {' '.join(placed)} {end},{HEIGHT}"
    return Chart(title, most, duration_text(span), " ".join(placed), area, bands)


def _thinned(points: list[SamplePoint]) -> list[SamplePoint]:
    """At most so many points; the highest of each stretch stays, for a peak must not vanish."""
    stretch = -(-len(points) // _MOST_POINTS)
    return [
        max(points[start : start + stretch], key=lambda point: point[1]) for start in range(0, len(points), stretch)
    ]


def _rates(samples: Iterable[Sample]) -> list[SamplePoint]:
    """CPU seconds a second between neighbours. A counter that falls belongs to a new process tree: no rate there."""
    known = [(sample.at_s, sample.cpu_s) for sample in samples if sample.cpu_s is not None]
    pairs = pairwise(known)
    return [
        (later, (used - before) / (later - at))
        for (at, before), (later, used) in pairs
        if later > at and used >= before
    ]


def _gpu(samples: Iterable[Sample], key: str, together: object) -> list[SamplePoint]:
    points = []
    for sample in samples:
        figures = [figure for figure in (nonnegative(gpu.get(key)) for gpu in sample.gpu) if figure is not None]
        if figures:
            points.append((sample.at_s, sum(figures) if together is sum else max(figures)))
    return points


def _two(value: float | None) -> str:
    return f"{value:.2g}" if value is not None else ""
