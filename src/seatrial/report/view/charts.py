"""Plots of one cell: the charts of its kind, and its resource samples.

Rows come from a run folder and are not trusted. Values that are not finite numbers are not drawn."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import Any, Literal

from seatrial.job import Chart, Distribution, Observation, Sample, Series, Timeline
from seatrial.report.view.notebook import nonnegative
from seatrial.report.view.plot import Axis, Band, Curve, Mark, Plot, Point, curve, label_of, number_of
from seatrial.report.view.words import duration_text, one_line

_MOST_LANES = 200
_MOST_CURVES = 6  # of one quantity; more are a heat map
_HEAT_COLUMNS = 120
_SHARES = [Mark(50, "p50", "y", "edge"), Mark(99, "p99", "y", "edge")]


def is_share(chart: object) -> bool:
    """Whether the chart is a distribution function: which share of values is at most x."""
    return isinstance(chart, Series) and chart.columns[1:] == ["share"]


def share_plot(charts: Sequence[Series]) -> Plot:
    """Distribution functions, which share a plot, named by how their titles differ."""
    titles = [one_line(chart.title) for chart in charts]
    start = commonprefix(titles) if len(titles) > 1 else ""  # noqa: RUF071
    curves = [
        curve(title.removeprefix(start), ((x, 100 * y) for x, y in _points(chart, 1)), "step")
        for chart, title in zip(charts, titles, strict=True)
    ]
    x = Axis(_unit(charts[0], charts[0].columns[0]), "log", "time")
    title = start.strip().removesuffix(" to") or titles[0]
    return Plot(title, curves, x, Axis("%", low=0, high=105), [], _SHARES, 280, log="x")


def series_plots(chart: Series, levels: Mapping[str, float] = {}) -> list[Plot]:
    """One plot for each unit. `levels` are more bounds by column."""
    bounds = {**levels, **chart.bounds}
    columns: dict[str, list[Curve]] = {}
    for place, name in enumerate(chart.columns[1:], 1):
        made = curve(name, _points(chart, place))
        if made.points:
            columns.setdefault(_unit(chart, name), []).append(made)
    over = [at for row in chart.rows if (at := _field(row, 0)) is not None]
    ends = (min(over), max(over)) if over and chart.units.get(chart.columns[0]) == "s" else (None, None)
    plots = []
    for unit, curves in columns.items():
        title = chart.title if len(columns) == 1 else ", ".join(one.name for one in curves)
        x = Axis(_unit(chart, chart.columns[0]), "linear", one_line(chart.columns[0]), *ends)
        start = commonprefix([one.name for one in curves])  # noqa: RUF071
        heat = len(curves) > _MOST_CURVES and start
        plots.append(_heat(title, curves, start, x, Axis(unit)) if heat else _over(title, curves, x, unit, bounds))
    return plots


def _over(title: str, curves: list[Curve], x: Axis, unit: str, bounds: Mapping[str, float]) -> Plot:
    values = [point.y for one in curves for point in one.points]
    levels = {one.name: bounds[one.name] for one in curves if number_of(bounds.get(one.name)) is not None}
    # Compiling takes as long as many steps: the first steps do not set the scale of the others.
    rest = max((point.y for one in curves for point in one.points[3:]), default=math.inf)
    high = 1.15 * rest if not x.unit and max(values) > 3 * rest > 0 else None
    # Times under load grow by powers of ten.
    wide = high is None and bool(levels) and min(values) > 0 and max(values) > 20 * min(values)
    near = {name: level for name, level in levels.items() if wide or level <= 2 * min(rest, max(values))}
    y = Axis(unit, "log" if wide else "linear", high=high and max([high, *(1.1 * level for level in near.values())]))
    marks = [Mark(level, f"bound {label_of(level, y)}", "y", "bound") for level in near.values()]
    log: Literal["", "y"] = "y" if high is None and min(values) >= 0 else ""
    notes = [f"by {x.label}"] if not x.unit and x.label not in title else []
    notes += [f"bound of {name} {label_of(level, y)}" for name, level in levels.items() if name not in near]
    return Plot(one_line(title), curves, x, y, [], marks, note=", ".join(notes), group=f"x {x.label}", log=log)


def _heat(title: str, curves: list[Curve], start: str, x: Axis, y: Axis) -> Plot:
    """One row per curve; each field is the highest value of its columns."""
    values = [point.y for one in curves for point in one.points]
    first, low, high = min(one.points[0].x for one in curves), min(values), max(values)
    width = max((max(one.points[-1].x for one in curves) - first) / _HEAT_COLUMNS, 0.0 if x.unit else 1.0) or 1.0
    fields: dict[tuple[int, int], float] = {}
    for row, one in enumerate(curves):
        for point in one.points:
            place = row, int((point.x - first) // width)
            fields[place] = max(point.y, fields.get(place, point.y))
    points = []
    for (row, column), value in fields.items():
        begin, text = first + column * width, f"{curves[row].name}: {label_of(value, y)}"
        points.append(Point(begin, row, begin + width, text, heat=round((value - low) / (high - low or 1), 2)))
    note = f"by {x.label}, pale {label_of(low, y)} to solid {label_of(high, y)}"
    return _lanes(title, [curve(start, points, "heat")], x, [one.name.removeprefix(start) for one in curves], note=note)


def distribution_plot(chart: Distribution) -> Plot:
    """One lane per row, from the smallest to the largest quantile, with a dot at each."""
    wanted = {name: place for place, name in enumerate(chart.columns) if place and (name[:1] == "p" or name == "max")}
    x = Axis(next((_unit(chart, name) for name in wanted), ""), "log")
    lanes: list[Point] = []
    dots: dict[str, list[Point]] = {name: [] for name in wanted}
    rows = [row or [""] for row in chart.rows[:_MOST_LANES]]
    for number, row in enumerate(rows):
        values = {name: _field(row, place) for name, place in wanted.items()}
        known = {name: value for name, value in values.items() if value is not None and value >= 0}
        for name, value in known.items():
            dots[name].append(Point(value, number, text=f"{row[0]}\n{name} {label_of(value, x)}"))
        if known:
            lanes.append(Point(min(known.values()), number, max(known.values()), str(row[0]), state="range"))
    curves = [curve("range", lanes, "lane"), *(curve(name, points, "dots") for name, points in dots.items() if points)]
    return _lanes(chart.title, curves, x, [str(row[0]) for row in rows], log="x")


def timeline_plot(chart: Timeline) -> Plot:
    points: list[Point] = []
    names: list[str] = []
    for row in chart.rows[:_MOST_LANES]:
        begin, end = _field(row, 1), _field(row, 2)
        if begin is not None and end is not None and end >= begin:
            points.append(Point(begin, len(names), end, f"{row[0]}\n{duration_text(end - begin)}"))
            names.append(str(row[0]))
    return _lanes(chart.title, [curve("", points, "lane")], Axis("s"), names)


def _lanes(title: str, curves: list[Curve], x: Axis, names: Sequence[str], **more: Any) -> Plot:
    """Rows with names, from top to bottom."""
    ticks = [(float(place), one_line(name)) for place, name in enumerate(names)] or [(0.0, "")]
    rows = Axis(low=len(ticks) - 0.5, high=-0.5, ticks=ticks)
    return Plot(one_line(title), curves, x, rows, height=34 + 24 * len(ticks), **more)


def _points(chart: Chart, place: int) -> Iterable[tuple[float, float]]:
    pairs = ((_field(row, 0), _field(row, place)) for row in chart.rows)
    return ((x, y) for x, y in pairs if x is not None and y is not None)


def _field(row: Sequence[Any], place: int) -> float | None:
    return number_of(row[place]) if len(row) > place else None


def _unit(chart: Chart, name: str) -> str:
    unit = one_line(chart.units.get(name, ""))
    return "/s" if unit == "1/s" else unit


# Resources over the time of an attempt, with its steps as bands.


def resource_plots(part: str, observed: Observation) -> list[Plot]:
    """The plots of a part. Parts have different processes and clocks."""
    steps = [(step, step.started_s) for step in observed.steps if step.started_s is not None]
    samples = sorted((sample for step, _ in steps for sample in step.samples), key=lambda sample: sample.at_s)
    if len(samples) < 3:
        return []
    first = min(began for _, began in steps)
    last = max([samples[-1].at_s, *(step.ended_s for step, _ in steps if step.ended_s is not None)])
    bands = [
        Band(began - first, (step.ended_s if step.ended_s is not None else last) - first, "x", one_line(step.name))
        for step, began in steps
        if len(steps) > 1
    ]
    memory = [(sample.at_s, float(sample.memory_bytes)) for sample in samples if sample.memory_bytes is not None]
    series = {
        ("Memory", "B"): memory,
        ("CPU cores", ""): _rates(samples),
        ("GPU memory", "B"): _gpu(samples, "memory_bytes", sum),
        ("GPU utilization", "%"): _gpu(samples, "utilization", max),
    }
    suffix = f" of the {'client' if part == 'driver' else part}" if part else ""
    made = []
    for (title, unit), points in series.items():
        if len(points) > 2:
            x, y = Axis("s", low=0, high=last - first, label="time"), Axis(unit, low=0)
            note = f"peak {label_of(max(value for _, value in points), y)}"
            drawn = curve(title, ((at - first, value) for at, value in points))
            made.append(Plot(f"{title}{suffix}", [drawn], x, y, bands, height=130, note=note, group=f"part {part}"))
    return made


def _rates(samples: Iterable[Sample]) -> list[tuple[float, float]]:
    """CPU seconds per second between samples. A falling counter means a new process tree: no rate there."""
    known = [(sample.at_s, sample.cpu_s) for sample in samples if sample.cpu_s is not None]
    pairs = [(*earlier, *later) for earlier, later in pairwise(known)]
    return [(at, (used - before) / (at - was)) for was, before, at, used in pairs if at > was and used >= before]


def _gpu(samples: Iterable[Sample], key: str, together: Callable[[list[float]], float]) -> list[tuple[float, float]]:
    points = []
    for sample in samples:
        metrics = [metric for metric in (nonnegative(gpu.get(key)) for gpu in sample.gpu) if metric is not None]
        if metrics:
            points.append((sample.at_s, together(metrics)))
    return points
