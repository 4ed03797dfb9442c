"""Metrics: numbers with a unit, a direction and a source; their bounds; their texts."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

import msgspec

from seatrial.job.conditions import Settings, differences_text, other_conditions
from seatrial.job.reading import JsonObject

Better = Literal["lower", "higher"]


class FixedBound(msgspec.Struct, frozen=True):
    """A bound of one metric in a suite: `ttft.p99: 500ms`, `failed: 0`."""

    metric: str
    part: str  # such as p99; empty for a single number
    operator: str  # <=, >=, <, >
    value: float
    text: str  # as written

    @property
    def name(self) -> str:
        return f"{self.metric}.{self.part}" if self.part else self.metric

    @property
    def expected(self) -> str:
        return self.text if self.text[:1] in ("<", ">") else f"{self.operator} {self.text}"

    def met_by(self, value: float) -> bool:
        compare = {"<=": value <= self.value, ">=": value >= self.value, "<": value < self.value}
        return compare.get(self.operator, value > self.value)


class BoundState(StrEnum):
    USABLE = "usable"
    RECORDING = "recording"  # too few runs so far: metrics are recorded, not checked
    UNUSABLE = "unusable"  # too wide to find anything
    DISABLED = "disabled"  # turned off by a user, with a reason


class Level(msgspec.Struct, frozen=True):
    """The last change of a metric's level: the first run after it, and both levels."""

    run: str
    at_s: float
    before: float
    after: float


class RecentRun(msgspec.Struct, frozen=True, array_like=True):
    """The value of a metric in an earlier run."""

    run: str
    value: float


class Bound(msgspec.Struct, frozen=True):
    """The bounds of one metric of one cell. None means no bound on that side."""

    metric: str
    lower: float | None = None
    upper: float | None = None
    better: Better | None = "lower"  # None: neither; out of bounds is a failure
    unit: str = ""
    center: float | None = None
    runs: int = 0  # number of runs that it was computed from
    since_s: float | None = None  # wall time of the first of them
    false_alarm: float | None = None  # share of good runs with normal noise that would be out of bounds
    state: BoundState = BoundState.USABLE
    why: str = ""  # the reason, if the state is not usable
    fingerprint: str = ""  # of the conditions of its runs; empty: unknown, so not compared
    changed: Level | None = None
    source: str = ""  # its position: file:line
    values: int = msgspec.field(default=0, name="figures")  # number of values if runs have several; 0: one per run
    # After a recenter: `runs` are those of the center, the width is from this many earlier runs; 0: set by a user.
    width_runs: int | None = None
    conditions: dict[str, str] = {}  # of its runs
    under_test: dict[str, str] = {}  # of the newest of its runs
    recent: tuple[RecentRun, ...] = ()  # the last runs under its conditions, in its unit, when the run was planned

    @property
    def settings(self) -> Settings:
        return Settings(self.conditions, self.under_test)

    @property
    def finds_shifts(self) -> bool:
        """Whether several runs on one side add up: only if the width was computed from the noise of runs."""
        computed = self.false_alarm is not None and self.width_runs != 0
        return computed and self.state is BoundState.USABLE and self.better is not None

    def why_not_for(self, settings: Settings) -> str:
        """Why a metric measured with these settings cannot be checked against it; empty if it can."""
        if not self.fingerprint or self.fingerprint in (settings.fingerprint, settings.former):
            return ""
        if not self.conditions:
            known = f"only their fingerprint {self.fingerprint} is known"
            return f"the bounds are for other conditions, or from Seatrial 0.1 for another configuration; {known}"
        other = other_conditions(self.settings, settings)
        return f"the bounds are for other conditions: {differences_text(other)}" if other else ""


METRICS = "figures"  # step of findings about bounds, for every kind
IN_SHORT = "in short"  # check of a finding with the main metrics of a cell that passed


class Metric(msgspec.Struct, frozen=True):
    name: str  # dotted, for one inside a group
    value: float
    unit: str = ""
    better: Better | None = None  # None: neither
    source: str = ""  # where it was read from


def flatten_metrics(metrics: JsonObject, prefix: str = "") -> Iterator[Metric]:
    """A metric is a number, or a mapping with a `value`; other mappings are groups of metrics.

    Skips values that are not finite numbers; they are only in results.json."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if _is_number(value.get("value")):
                better = value.get("better") if value.get("better") in ("lower", "higher") else None
                unit, source = str(value.get("unit") or ""), str(value.get("source") or "")
                yield Metric(name, float(value["value"]), unit, better, source)
            elif "value" not in value:
                yield from flatten_metrics(value, f"{name}.")
        elif _is_number(value):
            yield Metric(name, float(value))


def value_text(value: float, unit: str = "", beside: float | None = None) -> str:
    """A metric as text: four digits, and milliseconds below 0.1 s; more digits if it would otherwise look equal to the
    different value `beside` it."""
    factor, unit, digits = _scale(unit, value, beside)
    text = _digits(value * factor, digits)
    return f"{text} {unit}" if unit else text


def pair_text(
    first: float | None, second: float | None, unit: str, between: str = " → ", none: str = "anything"
) -> str:
    """Two metrics with one unit: `10.7 → 41.1 ms`."""
    factor, unit, digits = _scale(unit, first, second)
    texts = [none if value is None else _digits(value * factor, digits) for value in (first, second)]
    return f"{between.join(texts)} {unit}".rstrip() if second is not None else between.join(texts)


def _scale(unit: str, one: float | None, other: float | None) -> tuple[float, str, int]:
    """The factor, the unit after scaling, and the number of digits needed to tell the values apart."""
    values = [value for value in (one, other) if value is not None]
    largest = max(map(abs, values), default=0.0)
    factor, digits = 1.0, 4
    if unit == "s" and 1e-6 <= largest < 0.1:
        factor, unit, digits = 1e3, "ms", 3 if largest >= 1e-3 else 2
    while len(set(values)) == 2 and digits < 17 and len({_digits(value * factor, digits) for value in values}) == 1:
        digits += 1
    return factor, unit, digits


def _digits(value: float, digits: int) -> str:
    if 1e4 <= abs(value) < 1e15:
        whole = max(0, digits - len(f"{abs(value):.0f}"))
        return f"{value:,.{whole}f}"
    return f"{value:.{digits}g}"


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return abs(float(value)) < float("inf")
    except OverflowError:
        return False
