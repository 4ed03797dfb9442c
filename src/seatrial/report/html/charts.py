"""Charts of a cell as numbers of an SVG: what its kind gave as typed data, and its resource samples.

Rows come from a run folder and may hold anything: what is not a finite number is not drawn, and is in the table."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from typing import Any

from seatrial.job import (
    AnyChart,
    Chart,
    DiffToken,
    Distribution,
    Observation,
    Sample,
    Series,
    Text,
    Timeline,
    TokenDiff,
    TokenDifference,
    value_text,
)
from seatrial.job.units import count
from seatrial.report.view.notebook import nonnegative
from seatrial.report.view.words import duration_text, one_line, size_text

WIDTH, HEIGHT = 420, 90
MOST_POINTS = 200
_MOST_ROWS = 200
_MOST_TEXT = 20_000
_MOST_TOKENS = 10


@dataclass(frozen=True)
class Curve:
    name: str
    path: str  # points of a polyline; a single one is a dot
    single: tuple[float, float] | None
    low: str
    high: str


@dataclass(frozen=True)
class Bar:
    name: str
    left: float = 0
    right: float = 0
    text: str = ""
    marks: list[tuple[float, str]] = field(default_factory=list)


@dataclass(frozen=True)
class TokenBar:
    text: str
    chosen: bool
    logprob: str
    share: str
    bar: float


@dataclass(frozen=True)
class Picture:
    """What the macro of its kind needs."""

    kind: str
    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)  # which columns are metrics
    left_out: str = ""
    curves: list[Curve] = field(default_factory=list)
    begin: str = ""
    end: str = ""
    bars: list[Bar] = field(default_factory=list)
    text: str = ""
    sides: dict[str, list[TokenBar]] = field(default_factory=dict)


def picture(chart: AnyChart) -> Picture:
    match chart:
        case Text():
            return Picture("text", chart.title, text=chart.data.text[:_MOST_TEXT])
        case TokenDiff():
            return _token_diff(chart.title, chart.data)
        case Series():
            at = [number for row in chart.rows if row and (number := _number(row[0])) is not None]
            unit = chart.units.get(chart.columns[0], "") if chart.columns else ""
            begin, end = (value_text(min(at), unit), value_text(max(at), unit)) if at else ("", "")
            return Picture("series", chart.title, _columns(chart), curves=_curves(chart), begin=begin, end=end)
        case Timeline():
            return Picture("timeline", chart.title, bars=_timeline(chart.rows))
    units = [chart.units.get(name, "") for name in chart.columns]
    more = len(chart.rows) - _MOST_ROWS
    return Picture(
        "distribution" if isinstance(chart, Distribution) else "table",
        chart.title,
        _columns(chart),
        rows=[list(map(_shown, row, chain(units, repeat("")))) for row in chart.rows[:_MOST_ROWS]],
        numeric=[_is_numeric(chart.rows, place) for place in range(len(chart.columns))],
        left_out=f"and {count(more, 'more row')}, in results.json" if more > 0 else "",
        bars=_quantiles(chart) if isinstance(chart, Distribution) else [],
    )


def _columns(chart: Chart) -> list[str]:
    """With units, but for seconds, which stand in the rows."""
    return [f"{name}, {chart.units[name]}" if chart.units.get(name, "s") != "s" else name for name in chart.columns]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _shown(value: Any, unit: str = "") -> str:
    """Of seconds with their unit, which differs from row to row; other units are in the head of the column."""
    number = _number(value)
    if number is not None:
        return value_text(number, unit if unit == "s" else "")
    return "" if value is None else str(value)


def _is_numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    found = [row[place] for row in rows if len(row) > place and row[place] is not None]
    return bool(found) and all(_number(value) is not None for value in found)


def _curves(chart: Series) -> list[Curve]:
    """One for each column beside the first: their units differ."""
    made = []
    for place, name in enumerate(chart.columns[1:], 1):
        points = []
        for row in chart.rows:
            x, y = _number(row[0]) if row else None, _number(row[place]) if len(row) > place else None
            if x is not None and y is not None:
                points.append((x, y))
        if points:
            made.append(_curve(name, chart.units.get(name, ""), points))
    return made


def _curve(name: str, unit: str, points: list[tuple[float, float]]) -> Curve:
    low, high = min(y for _, y in points), max(y for _, y in points)
    left, right = points[0][0], points[-1][0]
    thinned = _thinned(points)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return round(across * WIDTH, 1), round(HEIGHT - 4 - up * (HEIGHT - 8), 1)

    placed = [place(*point) for point in thinned]
    path = " ".join(f"{x:g},{y:g}" for x, y in placed)
    single = placed[0] if len(placed) == 1 else None
    return Curve(name, path, single, value_text(low, unit), value_text(high, unit))


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each stretch its lowest and its highest stay: a peak must not vanish."""
    if len(points) <= MOST_POINTS:
        return points
    stretch = -(-2 * len(points) // MOST_POINTS)
    kept = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        kept += sorted(ends)
    return kept


def _quantiles(chart: Distribution) -> list[Bar]:
    """Each a line from its least to its largest quantile, with a mark for each."""
    wanted = [place for place, name in enumerate(chart.columns) if place and (name[:1] == "p" or name == "max")]
    unit = chart.units.get(chart.columns[wanted[0]], "") if wanted else ""
    found = []
    for row in chart.rows[:_MOST_ROWS]:
        marks = [
            (chart.columns[place], number)
            for place in wanted
            if len(row) > place and (number := _number(row[place])) is not None and number >= 0
        ]
        found.append((str(row[0]) if row else "", marks))
    scale = WIDTH / (max((number for _, marks in found for _, number in marks), default=0.0) or 1.0)
    bars = []
    for name, marks in found:
        if not marks:
            bars.append(Bar(name))
            continue
        numbers = [number for _, number in marks]
        placed = [(round(number * scale, 1), f"{title} {value_text(number, unit)}") for title, number in marks]
        ends = round(min(numbers) * scale, 1), round(max(numbers) * scale, 1)
        bars.append(Bar(name, *ends, _spread(marks, unit), placed))
    return bars


def _spread(marks: list[tuple[str, float]], unit: str) -> str:
    known = dict(marks)
    shown = [name for name in ("p50", "p99", "max") if name in known] or list(known)[:2]
    return ", ".join(f"{name} {value_text(known[name], unit)}" for name in shown)


def _timeline(rows: Sequence[Sequence[Any]]) -> list[Bar]:
    found = []
    for row in rows[:_MOST_ROWS]:
        begin, end = (_number(value) for value in (*row, None, None, None)[1:3])
        if begin is not None and end is not None and end >= begin:
            found.append((str(row[0]), begin, end))
    first = min((begin for _, begin, _ in found), default=0.0)
    span = max((end for _, _, end in found), default=0.0) - first or 1.0
    scale = WIDTH / span
    return [
        Bar(name, round((begin - first) * scale, 1), round((end - first) * scale, 1), duration_text(end - begin))
        for name, begin, end in found
    ]


def _token_diff(title: str, found: TokenDifference) -> Picture:
    """Both sides with their likeliest tokens, each with its probability as a bar."""
    where = "" if found.position is None else value_text(found.position)
    text = f"token {where}: {found.message or found.agreement}"
    return Picture("token-diff", title, text=text, sides={"expected": _side(found.expected), "got": _side(found.got)})


def _side(side: DiffToken | None) -> list[TokenBar]:
    if side is None:
        return []
    tokens = side.top if any(one.text == side.text for one in side.top) else [side, *side.top]
    made = []
    for one in tokens[:_MOST_TOKENS]:
        share = math.exp(min(0.0, one.logprob)) if one.logprob is not None else None
        made.append(
            TokenBar(
                text=repr(one.text)[1:-1],
                chosen=one.text == side.text,
                logprob=f"{one.logprob:.4f}" if one.logprob is not None else "",
                share=f"{share * 100:.3g} %" if share is not None else "",
                bar=round((share or 0.0) * 60, 1),
            )
        )
    return made


# Small charts of resource samples as inline SVG: a line over the time of an attempt, its steps as bands behind it.


SAMPLES_WIDTH, SAMPLES_HEIGHT = 600, 80
_MOST_POINTS = 150

SamplePoint = tuple[float, float]


@dataclass(frozen=True)
class Band:
    name: str
    x: float
    width: float


@dataclass(frozen=True)
class ResourceChart:
    """Ready for a template: numbers of the SVG's own units, and texts."""

    title: str
    most: str
    end: str
    line: str  # points of a polyline
    area: str  # the same, closed at the bottom
    bands: list[Band]


def resource_charts(observed: Mapping[str, Observation]) -> list[ResourceChart]:
    """Each part has its own: their processes have nothing in common, nor have the clocks of their steps."""
    return [chart for part, one in observed.items() for chart in _charts(f" of the {part}" if part else "", one)]


def _charts(whose: str, observed: Observation) -> list[ResourceChart]:
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
            round((step.started_s - first) / span * SAMPLES_WIDTH, 1),
            round(((step.ended_s if step.ended_s is not None else last) - step.started_s) / span * SAMPLES_WIDTH, 1),
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
        _drawn(f"{title}{whose}", points, form(max(v for _, v in points)), first, span, bands)
        for title, points, form in series
        if len(points) > 2
    ]


def _drawn(
    title: str, points: list[SamplePoint], most: str, first: float, span: float, bands: list[Band]
) -> ResourceChart:
    kept = _thinned_samples(points)
    top = max(value for _, value in kept) or 1.0
    placed = [
        f"{(at - first) / span * SAMPLES_WIDTH:.1f},{SAMPLES_HEIGHT - value / top * (SAMPLES_HEIGHT - 4):.1f}"
        for at, value in kept
    ]
    start, end = placed[0].split(",")[0], placed[-1].split(",")[0]
    area = f"{start},{SAMPLES_HEIGHT} {' '.join(placed)} {end},{SAMPLES_HEIGHT}"
    return ResourceChart(title, most, duration_text(span), " ".join(placed), area, bands)


def _thinned_samples(points: list[SamplePoint]) -> list[SamplePoint]:
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
        metrics = [metric for metric in (nonnegative(gpu.get(key)) for gpu in sample.gpu) if metric is not None]
        if metrics:
            points.append((sample.at_s, sum(metrics) if together is sum else max(metrics)))
    return points


def _two(value: float | None) -> str:
    return f"{value:.2g}" if value is not None else ""
