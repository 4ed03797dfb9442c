"""The geometry of a plot, for the template that draws it as SVG: pages without scripts, print and sparklines.

`static/chart.js` draws the same shapes at the width of the page; a test compares both."""

import math
from collections.abc import Callable, Iterable

import msgspec

from seatrial.report.view.plot import Axis, Band, Curve, Plot, digits_text, label_of, unit_of
from seatrial.report.view.words import clock_text

SPARK_HEIGHT = 20
_CHARACTER = 6.2  # width of a character of a label
_PAD = 5  # room for a dot at the edge
_MOST_DOTS = 60  # points of a line that are drawn as dots, too
_DAY, _MONTH = 86400, 2419200
_TIMES = (1, 5, 15, 60, 300, 900, 3600, 10800, 21600, _DAY, 172800, 604800, 1209600, _MONTH, 3 * _MONTH, 6 * _MONTH)


def _nice(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(raw, 1e-290)))
    return next(step for step in (1, 2, 2.5, 5, 10) if step * power >= raw * 0.999) * power


def _domain(axis: Axis, values: Iterable[float], parts: int = 0) -> tuple[float, float]:
    """The lowest and the highest value of an axis; with `parts` both are at ticks."""
    log = axis.kind == "log"
    known = [value for value in values if not log or value > 0]
    low = min(known, default=float(log)) if axis.low is None else axis.low
    high = max(known, default=low) if axis.high is None else axis.high
    if low == high:
        room = _DAY / 2 if axis.kind == "date" else abs(low) / 2 or 1
        low, high = (low / 2, high * 2) if log else (low - room, high + room)
    if parts and axis.kind == "linear" and not axis.ticks:
        factor, _ = unit_of(max(abs(low), abs(high)), axis.unit)
        step = _nice((high - low) / parts / factor) * factor
        low = math.floor(low / step + 1e-9) * step if axis.low is None else low
        high = math.ceil(high / step - 1e-9) * step if axis.high is None else high
    return low, high


def ticks(axis: Axis, low: float, high: float, parts: int) -> list[tuple[float, str]]:
    if axis.ticks:
        return axis.ticks[:: math.ceil(len(axis.ticks) / max(1, parts))]
    if axis.kind == "log" and high / low > 8:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = max(1, math.ceil((last - first) / max(2, parts)))
        steps = (1, 2, 5) if (last - first) * 3 <= parts else (1,)
        found = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
        return [(at, label_of(at, axis)) for at in found if low * 0.999 <= at <= high * 1.001]
    raw, most = (high - low) / max(2, parts), max(abs(low), abs(high))
    factor, name = unit_of(most, axis.unit)
    dated = axis.kind == "date"
    step = next((time for time in _TIMES if time >= raw), _nice(raw)) if dated else _nice(raw / factor) * factor
    found = [number * step + 0 for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-6) + 1)]
    if dated:
        form = "%b %Y" if step > _MONTH else "%-d %b" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
        return [(at, clock_text(at, "%-d %b" if step < _DAY and at % _DAY == 0 else form)) for at in found]
    digits = max(4, math.ceil(math.log10(max(most / step, 1))) + 1)
    return [(at, digits_text(at / factor, digits) + name if at else "0") for at in found]


def _scale(axis: Axis, low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """Values that a log axis cannot show are drawn at its low end."""

    def place(value: float) -> float:
        return math.log10(value if value > 0 else low) if axis.kind == "log" else value

    first, ratio = place(low), (end - begin) / (place(high) - place(low))
    return lambda value: begin + (place(value) - first) * ratio


class Frame:
    """Where the parts of a plot are. `spark`: without axes and labels, in SPARK_HEIGHT."""

    def __init__(self, plot: Plot, width: float, spark: bool = False) -> None:
        self.plot, self.width, self.spark = plot, width, spark
        self.height = SPARK_HEIGHT if spark else plot.height
        self.top = 3 if spark else 22 if any(mark.label and mark.axis == "x" for mark in plot.marks) else 10
        self.tall = self.height - self.top - (3 if spark else 24)
        parts = max(2, self.height // 44)
        x_ends = _domain(plot.x, (x for curve in plot.curves for x in curve.xs))
        seen = [point.y for curve in plot.curves for point in curve.points]
        ends = [level for band in plot.bands if band.axis == "y" for level in (band.low, band.high)]
        seen += [level for level in ends if level is not None]
        seen += [mark.at for mark in plot.marks if mark.axis == "y"]
        seen += [0.0 for curve in plot.curves if curve.kind == "bars"]
        self.y_low, self.y_high = _domain(plot.y, seen, 0 if spark else parts)
        self.cut = math.inf if plot.y.ticks or plot.y.high is None else plot.y.high  # the largest value that is drawn
        rows = max(1, self.tall // 12) if plot.y.ticks else parts
        self.y_ticks = [] if spark else ticks(plot.y, self.y_low, self.y_high, rows)
        widest = max((len(name) for _, name in self.y_ticks), default=0) * _CHARACTER + 12
        self.left = 0 if spark else min(max(56 if plot.group else 34, widest), width * 0.4)
        self.room = math.floor((self.left - 12) / _CHARACTER + 1e-9)  # characters of a label
        self.wide = width - self.left - (0 if spark else 14)
        self.x_ticks = [] if spark else ticks(plot.x, *x_ends, int(self.wide // 72))
        self.across = _scale(plot.x, *x_ends, _PAD, self.wide - _PAD)
        self.up = _scale(plot.y, self.y_low, self.y_high, self.tall, 0)
        self.row = abs(self.up(1) - self.up(0)) if plot.y.ticks else 0.0

    def ends(self, band: Band) -> tuple[float, float]:
        """Of a band of the y axis: its top and its bottom."""
        high = self.y_high if band.high is None else min(band.high, self.y_high)
        return self.up(high), self.up(self.y_low if band.low is None else max(band.low, self.y_low))

    def paths(self, curve: Curve, colour: str) -> dict[str, str]:
        """The line and the dots of a curve by class."""
        line, pen = "", False
        dots: dict[str, str] = {}
        for point in curve.points:
            if point.y > self.cut:
                pen = False
                continue
            at = f"{pixels(self.across(point.x))} {pixels(self.up(point.y))}"
            line += f"M{at}" if not pen else f"H{at.replace(' ', 'V')}" if curve.kind == "step" else f"L{at}"
            pen = True
            kind = f"dots {point.state} big" if point.state else f"dots {colour}"
            dots[kind] = f"{dots.get(kind, '')}M{at}h0"
        number = len(curve.points)
        dotted = curve.kind == "dots" or number == 1 or (curve.kind == "line" and number <= _MOST_DOTS)
        return ({} if curve.kind == "dots" else {f"line {colour}": line}) | (dots if dotted else {})


def pixels(value: float) -> str:
    return f"{math.floor(value * 10 + 0.5) / 10:.8g}"


def data(plot: Plot) -> str:
    """The plot for the script, in JSON. Points without a text and a colour are pairs, which halves a large report."""
    return msgspec.json.encode(plot).decode().replace(',0.0,"","","",0.0]', "]")  # quotes in a text are escaped
