"""The metrics in a cell's metrics: numbers with a unit, a direction and a source."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

import msgspec

from seatrial.job.conditions import Settings, differences_text, other_conditions
from seatrial.job.reading import JsonObject

# Between which metrics one new run is in order, and where that comes from.


Better = Literal["lower", "higher"]


class FixedBound(msgspec.Struct, frozen=True):
    """A bound that a person wrote, of one metric: `ttft.p99: 500ms`, `failed: 0`."""

    metric: str
    part: str  # p99 and the like; empty for what is one number
    operator: str  # <=, >=, <, >
    value: float
    text: str  # as it was written

    @property
    def name(self) -> str:
        return f"{self.metric}.{self.part}" if self.part else self.metric

    def met_by(self, value: float) -> bool:
        compare = {"<=": value <= self.value, ">=": value >= self.value, "<": value < self.value}
        return compare.get(self.operator, value > self.value)


class BoundState(StrEnum):
    USABLE = "usable"
    RECORDING = "recording"  # too few runs so far: metrics are kept, not judged
    UNUSABLE = "unusable"  # so wide that it would find nothing
    DISABLED = "disabled"  # switched off by hand, with a reason


class Level(msgspec.Struct, frozen=True):
    """The last change of the level that a metric had before: the first run after it, and both levels."""

    run: str
    at_s: float
    before: float
    after: float


class Bound(msgspec.Struct, frozen=True):
    """A bound for one metric of one cell. A side that is None is open."""

    metric: str
    lower: float | None = None
    upper: float | None = None
    better: Better | None = "lower"  # None: neither side is, and out of it is a failure
    unit: str = ""
    center: float | None = None
    runs: int = 0  # that it was made from
    since_s: float | None = None  # wall time of the first of them
    false_alarm: float | None = None  # the share of single good runs with normal noise that would be out of it
    state: BoundState = BoundState.USABLE
    why: str = ""  # of a state that is not usable
    fingerprint: str = ""  # of the conditions that it was made under; empty: not known, and so not compared
    changed: Level | None = None
    source: str = ""  # where it stands: file:line
    values: int = msgspec.field(default=0, name="figures")  # in those runs, where one gave several; 0: one of each
    width_runs: int | None = (
        None  # of a moved one: `runs` are of its center, the width is of so many before; 0: by hand
    )
    conditions: dict[str, str] = {}  # that it was made under
    under_test: dict[str, str] = {}  # in the newest run that it is made from

    @property
    def settings(self) -> Settings:
        return Settings(self.conditions, self.under_test)

    def why_not_for(self, settings: Settings) -> str:
        """Why a metric that was taken with these settings cannot be judged by it; empty when it can."""
        if not self.fingerprint or self.fingerprint in (settings.fingerprint, settings.former):
            return ""
        if not self.conditions:
            return (
                "the bounds are of other conditions, or of Seatrial 0.1 and another configuration; they have only the "
                f"fingerprint {self.fingerprint}, so which ones is not known"
            )
        other = other_conditions(self.settings, settings)
        return f"the bounds are of other conditions: {differences_text(other)}" if other else ""


METRICS = "figures"  # the step of findings about bounds, which every kind has
IN_SHORT = "in short"  # the check of a finding whose message is the metrics that matter, for a cell that passed


class Metric(msgspec.Struct, frozen=True):
    name: str  # dotted, for one inside a group
    value: float
    unit: str = ""
    better: Better | None = None  # None: neither way is better
    source: str = ""  # where it was read


def flatten_metrics(metrics: JsonObject, prefix: str = "") -> Iterator[Metric]:
    """A metric is a number, or a mapping with a `value`; other mappings are groups of metrics.

    What is not a finite number has no place in a series and is left to results.json."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if _is_number(value.get("value")):
                better = value.get("better") if value.get("better") in ("lower", "higher") else None
                yield Metric(
                    name, float(value["value"]), str(value.get("unit") or ""), better, str(value.get("source") or "")
                )
            elif "value" not in value:
                yield from flatten_metrics(value, f"{name}.")
        elif _is_number(value):
            yield Metric(name, float(value))


def value_text(value: float, unit: str = "", beside: float | None = None) -> str:
    """A metric for people: four digits, plain where they are short, and milliseconds for less than 0.1 s; more digits
    where it would look the same as what it stands `beside` and is not."""
    factor, unit, digits = _scale(unit, value, beside)
    text = _digits(value * factor, digits)
    return f"{text} {unit}" if unit else text


def pair_text(
    first: float | None, second: float | None, unit: str, between: str = " → ", none: str = "anything"
) -> str:
    """Two metrics in one unit, which is there once: `10.7 → 41.1 ms`."""
    factor, unit, digits = _scale(unit, first, second)
    texts = [none if value is None else _digits(value * factor, digits) for value in (first, second)]
    return f"{between.join(texts)} {unit}".rstrip() if second is not None else between.join(texts)


def _scale(unit: str, one: float | None, other: float | None) -> tuple[float, str, int]:
    """What the metrics are multiplied by, the unit that they then have, and how many digits they need: enough to tell
    them apart."""
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
