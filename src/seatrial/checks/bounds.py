"""Checks the metrics of a run against the bounds in its baseline."""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from seatrial.job import (
    METRICS,
    Bound,
    BoundState,
    Finding,
    Metric,
    Settings,
    Verdict,
    differences,
    differences_text,
    flatten_metrics,
    pair_text,
    unit_factor,
    value_text,
)

if TYPE_CHECKING:
    from seatrial.stats.shift import Shift

UNJUDGED = "unjudged"  # class of a metric that has bounds but could not be checked against them

_UPDATE = "run `seatrial baseline update` to compute bounds from five or more runs, or set `unjudged: record`"
_FIX_UNIT = "correct `unit` in the suite, or delete the baseline entry and run `seatrial baseline update`"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def check_bounds(
    metrics: dict[str, Any],
    bounds: Iterable[Bound],
    settings: Settings,
    unbounded: str = "",
    at_s: float = 0.0,
    failed: bool = False,
    record: bool = False,
) -> list[Finding]:
    """Returns a finding per bound, and one if a named baseline has no bounds (`unbounded`: why). `at_s`: when it ran.

    1. Outside on the worse side is `slower`, on the better side `faster`. A value equal to a bound is inside. Inside,
       but with the recent runs part of a lasting shift, is `slower` or `faster` too.
    2. A metric that cannot be checked against its bounds is `invalid`, with the reason: they were computed under other
       conditions, or are too wide to be useful. With `record` it is skipped, like a metric without bounds.
    3. A metric that has bounds but was not measured is a failure, unless the run `failed` anyway.
    """
    observed = {metric.name: metric for metric in flatten_metrics(metrics)}
    findings = [_finding(bound, observed.get(bound.metric), settings, at_s, failed, record) for bound in bounds]
    if unbounded:
        findings.append(_skipped("bounds", f"recorded, not checked: {unbounded}"))
    return findings


def _finding(
    bound: Bound, metric: Metric | None, settings: Settings, at_s: float, failed: bool, record: bool
) -> Finding:
    check = f"bounds {bound.metric}"
    if bound.state is BoundState.DISABLED:
        return _skipped(check, f"disabled: {bound.why}")
    if metric is None:
        if failed:
            return _skipped(check, "not measured: the job ended first")
        message = f"{bound.metric} was not measured ({bound.source or 'the baseline'} has bounds for it)"
        return Finding(METRICS, check, Verdict.FAILED, "absent", message)
    if bound.state is BoundState.RECORDING:
        return _skipped(check, f"recorded, not checked: {bound.why}")
    why, fix = bound.why_not_for(settings), _UPDATE
    factor = unit_factor(metric.unit, bound.unit)
    if factor is None:
        why, fix = f"measured in {metric.unit}, bounds are in {bound.unit}", _FIX_UNIT
    if not why and bound.state is BoundState.UNUSABLE:
        why = bound.why
    if why and record:
        return _skipped(check, f"recorded, not checked: {why}")
    if why:
        return Finding(METRICS, check, Verdict.INVALID, UNJUDGED, f"{bound.metric} was not checked: {why}; {fix}")
    if factor != 1:
        metric = msgspec.structs.replace(metric, value=metric.value * (factor or 1.0), unit=bound.unit)
    return _judged(bound, check, metric, at_s, settings)


def _judged(bound: Bound, check: str, metric: Metric, at_s: float, settings: Settings) -> Finding:
    value, better = metric.value, metric.better or bound.better  # the trial takes precedence over the file
    data: dict[str, Any] = {"value": value, "lower": bound.lower, "upper": bound.upper}
    data |= {"center": bound.center, "runs": bound.runs}
    above = bound.upper is not None and value > bound.upper
    below = bound.lower is not None and value < bound.lower
    message = f"{bound.metric}: {bound_sentence(bound, value, at_s)}"
    if shift := shift_of(bound, [*((one.run, one.value) for one in bound.recent), ("", value)]):
        data["shift"] = {"run": shift.run, "runs": shift.runs, "size": shift.size}
        message = f"{bound.metric} has been {shift.text}; this run alone: {bound_sentence(bound, value, at_s)}"
        above, below = shift.up, not shift.up
    if not above and not below:
        return Finding(METRICS, check, Verdict.PASSED, message=message, data=data)
    if bound.better is None:
        return Finding(METRICS, check, Verdict.FAILED, "bounds", message, data=data)
    changed = differences(bound.under_test, settings.under_test) if bound.under_test else []
    if changed:
        message += f"; changed since then: {differences_text(changed)}"
    if above is (better == "lower"):
        return Finding(METRICS, check, Verdict.SLOWER, "slower", message, data=data)
    advice = "to accept the new level: `seatrial baseline recenter`"
    return Finding(METRICS, check, Verdict.FASTER, "faster", f"{message}; {advice}", data=data)


def shift_of(bound: Bound, runs: Sequence[tuple[str, float]]) -> "Shift | None":
    """The shift that the last of these runs is part of, if the bounds can find one."""
    if not bound.finds_shifts or len(runs) < 2:
        return None
    from seatrial.stats.shift import find_shift

    return find_shift(runs, bound.lower, bound.upper, bound.center)


def bound_sentence(bound: Bound, value: float, at_s: float = 0.0) -> str:
    """`2.61 s is above 2.49 s (41 runs since 3 Oct, 0.5 % false-alarm rate); ...`

    `at_s` is when the metric was measured; dates in the same year are shown without the year."""
    if bound.upper is not None and value > bound.upper:
        text = f"{value_text(value, bound.unit, bound.upper)} is above {value_text(bound.upper, bound.unit, value)}"
    elif bound.lower is not None and value < bound.lower:
        text = f"{value_text(value, bound.unit, bound.lower)} is below {value_text(bound.lower, bound.unit, value)}"
    else:
        span = pair_text(bound.lower, bound.upper, bound.unit, " to ")
        text = f"{value_text(value, bound.unit)} is within {span}"
    text += _provenance(bound, at_s)
    if bound.changed is not None:
        levels = pair_text(bound.changed.before, bound.changed.after, bound.unit)
        text += f"; the level changed at run {bound.changed.run} ({levels}, {short_date(bound.changed.at_s, at_s)})"
    return text


def _provenance(bound: Bound, at_s: float) -> str:
    parts = []
    if bound.runs:
        since = f" since {short_date(bound.since_s, at_s)}" if bound.since_s else ""
        runs = f"{bound.runs} run{'s' if bound.runs != 1 else ''}"
        parts.append(f"{f'{bound.values} values of {runs}' if bound.values else runs}{since}")
        if bound.width_runs is not None:
            width = f"from {bound.width_runs} earlier one{'s' if bound.width_runs != 1 else ''}"
            parts = [f"center from {parts[0]}", f"width of the bounds {width if bound.width_runs else 'set by hand'}"]
    if bound.false_alarm:
        parts.append(f"{bound.false_alarm * 100:.3g} % false-alarm rate")
    return f" ({', '.join(parts)})" if parts else ""


def short_date(at_s: float, now_s: float = 0.0) -> str:
    """`3 Oct`, in UTC; with the year if it differs from that of `now_s`."""
    try:
        then, now = time.gmtime(at_s), time.gmtime(now_s)
    except (OverflowError, ValueError, OSError):  # from a wrong clock
        return "unknown date"
    text = f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]}"
    return text if then.tm_year == now.tm_year else f"{text} {then.tm_year}"


def _skipped(check: str, message: str) -> Finding:
    return Finding(METRICS, check, Verdict.SKIPPED, message=message)
