"""What users write of bounds on figures: `ttft.p99: 500ms`, `failed: 0`, `goodput: ">=95%"`."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from seatrial.job.bound import FixedBound
from seatrial.job.units import parse_duration
from seatrial.trial.arrivals import parse_rate

_OPERATORS = ("<=", ">=", "<", ">")


class KnownFigures(msgspec.Struct, frozen=True):
    """Which figures there are to bound."""

    of: str  # what they are figures of
    durations: Collection[str]  # each has several parts
    counts: Mapping[str, str]  # each is one number; the operator where none is written
    parts: re.Pattern[str]
    choice: str  # which parts to write, with {} for the figure


def parse_bound(name: str, value: Any, known: KnownFigures) -> FixedBound:
    """Raises ValueError, for whoever wrote it."""
    figures = [*known.counts, *known.durations]
    figure = max((one for one in figures if f"{name}.".startswith(f"{one}.")), key=len, default="")
    part = name.removeprefix(figure).removeprefix(".")
    if not figure:
        there = ", ".join([*known.counts, *(f"{one}.p99" for one in known.durations)])
        raise ValueError(f"{name!r} is no figure of {known.of}; there are {there}")
    if figure in known.counts and part:
        raise ValueError(f"{figure!r} is one figure, and has no {part!r}")
    if figure not in known.counts and not known.parts.fullmatch(part):
        raise ValueError(f"{name!r} does not say which of them: write {known.choice.format(figure)}")
    text = str(value).strip()
    operator = next((one for one in _OPERATORS if text.startswith(one)), "")
    number = _number(name, figure in known.counts, text.removeprefix(operator).strip())
    return FixedBound(figure, part, operator or known.counts.get(figure, "<="), number, text)


def _number(name: str, count: bool, written: str) -> float:
    try:
        if not count:
            return parse_duration(float(written) if re.fullmatch(r"\d+(\.\d+)?", written) else written)
        if written.endswith("%"):
            return float(written[:-1]) / 100
        return parse_rate(written) if "/" in written else float(written)
    except ValueError:
        unit = "a number, a rate such as 4/s or a share such as 95%" if count else "a duration such as 500ms or 30s"
        raise ValueError(f"the bound of {name!r} is {unit}, not {written!r}") from None
