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
    """A figure for people: four digits, plain where they are short; more digits where it would look the same as what it
    stands `beside` and is not."""
    text = _digits(value, 4)
    if beside is not None and value != beside:
        for digits in range(4, 18):
            text = _digits(value, digits)
            if text != _digits(beside, digits):
                break
    return f"{text} {unit}" if unit else text


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
