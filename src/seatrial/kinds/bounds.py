"""Parses bounds on metrics in a suite: `ttft.p99: 500ms`, `failed: 0`, `goodput: ">=95%"`."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from seatrial.job.metric import FixedBound
from seatrial.job.units import parse_duration
from seatrial.kinds.arrivals_model import parse_rate

_OPERATORS = ("<=", ">=", "<", ">")


class KnownMetrics(msgspec.Struct, frozen=True):
    """The metrics that bounds may name."""

    of: str  # what they belong to, for errors: "a load"
    durations: Collection[str]  # with parts such as p99
    counts: Mapping[str, str]  # single numbers -> default operator
    parts: re.Pattern[str]
    choice: str  # valid parts, for errors, with {} for the metric


def parse_bound(name: str, value: Any, known: KnownMetrics) -> FixedBound:
    """Raises ValueError with a message for the author of the suite."""
    metrics = [*known.counts, *known.durations]
    metric = max((one for one in metrics if f"{name}.".startswith(f"{one}.")), key=len, default="")
    part = name.removeprefix(metric).removeprefix(".")
    if not metric:
        there = ", ".join([*known.counts, *(f"{one}.p99" for one in known.durations)])
        raise ValueError(f"unknown metric {name!r} of {known.of}; known: {there}")
    if metric in known.counts and part:
        raise ValueError(f"{metric!r} is a single number and has no {part!r}")
    if metric not in known.counts and not known.parts.fullmatch(part):
        raise ValueError(f"invalid metric {name!r}; use {known.choice.format(metric)}")
    text = str(value).strip()
    operator = next((one for one in _OPERATORS if text.startswith(one)), "")
    number = _number(name, metric in known.counts, text.removeprefix(operator).strip())
    return FixedBound(metric, part, operator or known.counts.get(metric, "<="), number, text)


def _number(name: str, count: bool, written: str) -> float:
    try:
        if not count:
            return parse_duration(float(written) if re.fullmatch(r"\d+(\.\d+)?", written) else written)
        share = written.endswith("%")
        number = parse_rate(written) if "/" in written else float(written.rstrip("%")) / (100 if share else 1)
        if not math.isfinite(number):  # a comparison with nan is never true
            raise ValueError(written)
        return number
    except ValueError:
        unit = "a number, a rate such as 4/s or a share such as 95%" if count else "a duration such as 500ms or 30s"
        raise ValueError(f"invalid bound {written!r} of {name!r}; use {unit}") from None
