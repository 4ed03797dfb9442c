"""Charts of a cell in SVG units: typed data of its kind, and resource samples.

Rows come from a run folder and are not trusted. Values that are not finite numbers are not drawn, only listed in the
table."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    path: str  # points of a polyline; a single point is drawn as a dot
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
    """A chart for the template macro of its kind."""

    kind: str
    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    numeric: list[bool] = field(default_factory=list)  # which columns have only numbers
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
            where = "" if chart.data.position is None else value_text(chart.data.position)
            text = f"token {where}: {chart.data.message or chart.data.agreement}"
            sides = {"expected": _side(chart.data.expected), "got": _side(chart.data.got)}
            return Picture("token-diff", chart.title, text=text, sides=sides)
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
        left_out=f"and {count(more, 'more row')} in results.json" if more > 0 else "",
        bars=_quantiles(chart) if isinstance(chart, Distribution) else [],
    )


def _columns(chart: Chart) -> list[str]:
    """Column heads with units, except seconds, whose unit is in the rows."""
    return [f"{name}, {chart.units[name]}" if chart.units.get(name, "s") != "s" else name for name in chart.columns]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _shown(value: Any, unit: str = "") -> str:
    """The value as text. Seconds have their unit, which differs between rows; other units are in the column head."""
    number = _number(value)
    if number is not None:
        return value_text(number, unit if unit == "s" else "")
    return "" if value is None else str(value)


def _is_numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    found = [row[place] for row in rows if len(row) > place and row[place] is not None]
    return bool(found) and all(_number(value) is not None for value in found)


def _curves(chart: Series) -> list[Curve]:
    """One curve per column except the first, because units differ."""
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
    """Fewer points: the minimum and maximum of each section, so that peaks stay visible."""
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
    """One line per row, from the smallest to the largest quantile, with a mark at each."""
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
        texts = {title: f"{title} {value_text(number, unit)}" for title, number in marks}
        placed = [(round(number * scale, 1), texts[title]) for title, number in marks]
        spread = [texts[title] for title in ("p50", "p99", "max") if title in texts] or list(texts.values())[:2]
        bars.append(Bar(name, min(placed)[0], max(placed)[0], ", ".join(spread), placed))
    return bars


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


def _side(side: DiffToken | None) -> list[TokenBar]:
    """The most likely tokens, with their probability as a bar."""
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


# Resource charts: a line over the time of an attempt, with its steps as bands.


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
    """A chart for the template, in SVG units."""

    title: str
    most: str
    end: str
    line: str  # points of a polyline
    area: str  # the same, closed at the bottom
    bands: list[Band]


def resource_charts(observed: Mapping[str, Observation]) -> list[ResourceChart]:
    """The charts of each part. Parts have different processes and clocks."""
    return [chart for part, one in observed.items() for chart in _charts(part, one)]


def _charts(part: str, observed: Observation) -> list[ResourceChart]:
    steps = [(step, step.started_s) for step in observed.steps if step.started_s is not None]
    samples = sorted((sample for step, _ in steps for sample in step.samples), key=lambda sample: sample.at_s)
    if len(samples) < 3:
        return []
    first = min(began for _, began in steps)
    last = max([samples[-1].at_s, *(step.ended_s for step, _ in steps if step.ended_s is not None)])
    scale = SAMPLES_WIDTH / max(last - first, 1e-9)
    bands = [
        Band(
            f"{one_line(step.name)}: {duration_text(step.seconds) or 'not finished'}",
            round((began - first) * scale, 1),
            round(((step.ended_s if step.ended_s is not None else last) - began) * scale, 1),
        )
        for step, began in steps
    ]
    memory = [(sample.at_s, float(sample.memory_bytes)) for sample in samples if sample.memory_bytes is not None]
    series: list[tuple[str, list[SamplePoint], Callable[[float], str]]] = [
        ("Memory", memory, size_text),
        ("CPU cores", _rates(samples), "{:.2g}".format),
        ("GPU memory", _gpu(samples, "memory_bytes", sum), size_text),
        ("GPU utilization, %", _gpu(samples, "utilization", max), "{:.2g}".format),
    ]
    suffix = f" of the {'client' if part == 'driver' else part}" if part else ""
    made = []
    for title, points, form in series:
        if len(points) > 2:
            stretch = -(-len(points) // _MOST_POINTS)  # keep the maximum of each section
            stretches = [points[start : start + stretch] for start in range(0, len(points), stretch)]
            kept = [max(some, key=lambda point: point[1]) for some in stretches]
            most = max(value for _, value in kept)
            height = (SAMPLES_HEIGHT - 4) / (most or 1.0)
            placed = [(f"{(at - first) * scale:.1f}", f"{SAMPLES_HEIGHT - value * height:.1f}") for at, value in kept]
            line = " ".join(",".join(point) for point in placed)
            area = f"{placed[0][0]},{SAMPLES_HEIGHT} {line} {placed[-1][0]},{SAMPLES_HEIGHT}"
            made.append(ResourceChart(f"{title}{suffix}", form(most), duration_text(last - first), line, area, bands))
    return made


def _rates(samples: Iterable[Sample]) -> list[SamplePoint]:
    """CPU seconds per second between samples. A falling counter means a new process tree: no rate there."""
    known = [(sample.at_s, sample.cpu_s) for sample in samples if sample.cpu_s is not None]
    pairs = [(*earlier, *later) for earlier, later in pairwise(known)]
    return [(at, (used - before) / (at - was)) for was, before, at, used in pairs if at > was and used >= before]


def _gpu(samples: Iterable[Sample], key: str, together: Callable[[list[float]], float]) -> list[SamplePoint]:
    points = []
    for sample in samples:
        metrics = [metric for metric in (nonnegative(gpu.get(key)) for gpu in sample.gpu) if metric is not None]
        if metrics:
            points.append((sample.at_s, together(metrics)))
    return points
