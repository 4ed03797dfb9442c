"""What users write of bounds on metrics: `ttft.p99: 500ms`, `failed: 0`, `goodput: ">=95%"`."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from seatrial.job.metric import FixedBound
from seatrial.job.units import parse_duration
from seatrial.kinds.arrivals import parse_rate

_OPERATORS = ("<=", ">=", "<", ">")


class KnownMetrics(msgspec.Struct, frozen=True):
    """Which metrics there are to bound."""

    of: str  # what they are metrics of
    durations: Collection[str]  # each has several parts
    counts: Mapping[str, str]  # each is one number; the operator where none is written
    parts: re.Pattern[str]
    choice: str  # which parts to write, with {} for the metric


def parse_bound(name: str, value: Any, known: KnownMetrics) -> FixedBound:
    """Raises ValueError, for whoever wrote it."""
    metrics = [*known.counts, *known.durations]
    metric = max((one for one in metrics if f"{name}.".startswith(f"{one}.")), key=len, default="")
    part = name.removeprefix(metric).removeprefix(".")
    if not metric:
        there = ", ".join([*known.counts, *(f"{one}.p99" for one in known.durations)])
        raise ValueError(f"{name!r} is no metric of {known.of}; there are {there}")
    if metric in known.counts and part:
        raise ValueError(f"{metric!r} is one metric, and has no {part!r}")
    if metric not in known.counts and not known.parts.fullmatch(part):
        raise ValueError(f"{name!r} does not say which of them: write {known.choice.format(metric)}")
    text = str(value).strip()
    operator = next((one for one in _OPERATORS if text.startswith(one)), "")
    number = _number(name, metric in known.counts, text.removeprefix(operator).strip())
    return FixedBound(metric, part, operator or known.counts.get(metric, "<="), number, text)


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
