"""A drawn chart as pure data, with the text of its values.

The server renders it as SVG, and the page's script draws it again from the same data."""

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from seatrial.report.view.words import clock_text, one_line

MOST_POINTS = 2_000  # drawn per curve
_LARGEST = 1e300  # larger values would overflow in differences
_UNITS: dict[str, tuple[tuple[float, str, float], ...]] = {  # factor, name, and the least value
    "s": ((3600, " h", 7200), (60, " min", 120), (1, " s", 1), (1e-3, " ms", 1e-3), (1e-6, " µs", 0)),
    "B": ((2**40, " TiB", 2**40), (2**30, " GiB", 2**30), (2**20, " MiB", 2**20), (2**10, " KiB", 2**10), (1, " B", 0)),
    "": ((1e12, "T", 1e12), (1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e5), (1, "", 0)),
}


class Point(NamedTuple):
    x: float
    y: float
    end: float = 0.0  # right edge of a bar
    text: str = ""
    link: str = ""
    state: str = ""  # class for the colour: a verdict
    heat: float = 0.0  # from 0 to 1


class Curve(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["line", "step", "dots", "bars", "lane", "heat"]
    points: list[Point]

    @property
    def bars(self) -> bool:
        return self.kind in ("bars", "lane", "heat")

    @property
    def xs(self) -> list[float]:
        return [x for point in self.points for x in (point[:3:2] if self.bars else point[:1])]


class Axis(msgspec.Struct, frozen=True, omit_defaults=True):
    unit: str = ""
    kind: Literal["linear", "log", "date"] = "linear"
    label: str = ""
    low: float | None = None  # from the values if None
    high: float | None = None  # values above are named at the edge
    ticks: list[tuple[float, str]] = []  # names of rows; computed from the values if empty


class Band(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of an axis. A band of the y axis may be open."""

    low: float | None
    high: float | None
    axis: Literal["x", "y"] = "y"
    label: str = ""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float
    label: str = ""
    axis: Literal["x", "y"] = "x"
    kind: Literal["change", "bound", "edge"] = "change"


class Plot(msgspec.Struct, frozen=True, omit_defaults=True):
    """`group`: plots with the same group share crosshair and zoom. `log`: the axis with a switch for a log scale."""

    title: str
    curves: list[Curve]
    x: Axis = Axis()
    y: Axis = Axis()
    bands: list[Band] = []
    marks: list[Mark] = []
    height: int = 190
    note: str = ""
    group: str = ""
    log: Literal["", "x", "y"] = ""
    legend: bool = True


def curve(name: str, points: Iterable[tuple[Any, ...]], kind: Any = "line") -> Curve:
    """Drops points that are not finite numbers, and thins the others."""
    known = []
    for x, y, *rest in points:
        if number_of(x) is not None and number_of(y) is not None and (not rest or number_of(rest[0]) is not None):
            end = [_rounded(rest[0]), *rest[1:]] if rest else ()
            known.append(Point(_rounded(x), _rounded(y), *end))
    return Curve(one_line(name), kind, (_longest if kind in ("bars", "lane", "heat") else _thinned)(known))


def _rounded(value: float) -> float:
    """To the precision of a drawing, and of the seconds of a date."""
    if value in (0, 1):
        return float(value)
    size = abs(value)
    return float(f"{value:.7g}" if size < 1e8 else f"{value:.10g}") if size > 1e-290 else 0.0


def number_of(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return float(value)


def _thinned(points: list[Point]) -> list[Point]:
    """The ends, and the lowest and the highest point of each section between them."""
    if len(points) <= MOST_POINTS:
        return points
    section = math.ceil(len(points) / (MOST_POINTS // 2 - 1))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), section):
        places = range(start, min(start + section, len(points)))
        kept |= {pick(places, key=lambda place: points[place].y) for pick in (min, max)}
    return [points[place] for place in sorted(kept)]


def _longest(points: list[Point]) -> list[Point]:
    places = sorted(range(len(points)), key=lambda place: points[place].x - points[place].end)[:MOST_POINTS]
    return [points[place] for place in sorted(places)]


def digits_text(value: float, digits: int = 3) -> str:
    value = value * (1 + 1e-12) + 0  # decides ties as the script does
    if value and not 1e-4 <= abs(value) < 1e7:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        return f"{float(mantissa):.{digits}g}e{int(power)}"
    whole = abs(value) >= 10**digits
    return f"{math.floor(value + 0.5):,}" if whole else f"{float(f'{value:.{digits}g}'):,.{digits + 1}g}"


def unit_of(value: float, unit: str) -> tuple[float, str]:
    """The factor and the name of the unit for values of this size."""
    if unit not in _UNITS:
        return 1.0, unit if unit.startswith("/") else f" {unit}"
    return next((factor, name) for factor, name, least in _UNITS[unit] if abs(value or 1) >= least)


def label_of(value: float, axis: Axis) -> str:
    if axis.kind == "date":
        return clock_text(value, "%-d %b %Y %H:%M UTC")
    factor, name = unit_of(value, axis.unit)
    return digits_text(value / factor) + name
