"""The figures in a cell's metrics: numbers with a unit, a direction and a source."""

from collections.abc import Iterator
from typing import Any

import msgspec

from seatrial.job.bound import Better

FIGURES = "figures"  # the step of findings about bounds, which every kind has
IN_SHORT = "in short"  # the check of a finding whose message is the figures that matter, for a cell that passed


class Figure(msgspec.Struct, frozen=True):
    name: str  # dotted, for one inside a group
    value: float
    unit: str = ""
    better: Better | None = None  # None: neither way is better
    source: str = ""  # where it was read


def figures(metrics: dict[str, Any], prefix: str = "") -> Iterator[Figure]:
    """A figure is a number, or a mapping with a `value`; other mappings are groups of figures.

    What is not a finite number has no place in a series and is left to results.json."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if _is_number(value.get("value")):
                better = value.get("better") if value.get("better") in ("lower", "higher") else None
                yield Figure(
                    name, float(value["value"]), str(value.get("unit") or ""), better, str(value.get("source") or "")
                )
            elif "value" not in value:
                yield from figures(value, f"{name}.")
        elif _is_number(value):
            yield Figure(name, float(value))


def figure_text(value: float, unit: str = "", beside: float | None = None) -> str:
    """A figure for people: four digits, plain where they are short, and milliseconds for less than 0.1 s; more digits
    where it would look the same as what it stands `beside` and is not."""
    factor, unit, digits = _scale(unit, value, beside)
    text = _digits(value * factor, digits)
    return f"{text} {unit}" if unit else text


def pair_text(
    first: float | None, second: float | None, unit: str, between: str = " → ", none: str = "anything"
) -> str:
    """Two figures in one unit, which is there once: `10.7 → 41.1 ms`."""
    factor, unit, digits = _scale(unit, first, second)
    texts = [none if value is None else _digits(value * factor, digits) for value in (first, second)]
    return f"{between.join(texts)} {unit}".rstrip() if second is not None else between.join(texts)


def _scale(unit: str, one: float | None, other: float | None) -> tuple[float, str, int]:
    """What the figures are multiplied by, the unit that they then have, and how many digits they need: enough to tell
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
