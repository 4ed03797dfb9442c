"""Whether the metrics of one run are within the bounds that earlier runs gave, and on which side they are not."""

import time
from collections.abc import Iterable
from typing import Any

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

UNJUDGED = "unjudged"  # the class of a metric that has bounds and could not be judged by them

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
    """A finding for each bound, and one that says so where a baseline is named and has none. `at_s`: when it ran.

    1. Out on the worse side is `slower`, out on the better side `faster`; equality is inside.
    2. A metric that has bounds and cannot be judged by them is `invalid`, with its reason: they were made under other
       conditions, or are too wide to find anything. With `record` it is skipped, as one is that has no bounds yet.
    3. A metric that has bounds and was not measured is a failure, unless the run `failed` anyway.
    """
    observed = {metric.name: metric for metric in flatten_metrics(metrics)}
    findings = [_finding(bound, observed.get(bound.metric), settings, at_s, failed, record) for bound in bounds]
    if unbounded:
        findings.append(_skipped("bounds", f"recorded, not judged: {unbounded}"))
    return findings


def _finding(
    bound: Bound, metric: Metric | None, settings: Settings, at_s: float, failed: bool, record: bool
) -> Finding:
    check = f"bounds {bound.metric}"
    if bound.state is BoundState.DISABLED:
        return _skipped(check, f"switched off: {bound.why}")
    if metric is None:
        if failed:
            return _skipped(check, "not measured: the run did not come that far")
        message = f"{bound.metric} was not measured, and {bound.source or 'the baseline'} has bounds for it"
        return Finding(METRICS, check, Verdict.FAILED, "absent", message)
    if bound.state is BoundState.RECORDING:
        return _skipped(check, f"recorded, not judged: {bound.why}")
    why = bound.why_not_for(settings)
    factor = unit_factor(metric.unit, bound.unit)
    if factor is None:
        why = f"it is in {metric.unit}, and the bounds are in {bound.unit}"
    if not why and bound.state is BoundState.UNUSABLE:
        why = bound.why
    if why:
        return _unjudged(check, bound, why, record)
    if factor != 1:
        metric = msgspec.structs.replace(metric, value=metric.value * (factor or 1.0), unit=bound.unit)
    return _judged(bound, check, metric, at_s, settings)


def _unjudged(check: str, bound: Bound, why: str, record: bool) -> Finding:
    if record:
        return _skipped(check, f"recorded, not judged: {why}")
    helps = (
        "`seatrial baseline update` makes others from five runs or more, `unjudged: record` in the trial lets it pass"
    )
    return Finding(METRICS, check, Verdict.INVALID, UNJUDGED, f"{bound.metric} was not judged: {why}; {helps}")


def _judged(bound: Bound, check: str, metric: Metric, at_s: float, settings: Settings) -> Finding:
    value, better = metric.value, metric.better or bound.better  # what the trial says of its metric comes first
    data = {"value": value, "lower": bound.lower, "upper": bound.upper, "center": bound.center, "runs": bound.runs}
    above = bound.upper is not None and value > bound.upper
    below = bound.lower is not None and value < bound.lower
    message = f"{bound.metric}: {bound_sentence(bound, value, at_s)}"
    if not above and not below:
        return Finding(METRICS, check, Verdict.PASSED, message=message, data=data)
    if bound.better is None:
        return Finding(METRICS, check, Verdict.FAILED, "bounds", message, data=data)
    changed = differences(bound.under_test, settings.under_test) if bound.under_test else []
    if changed:
        message += f"; since then, under test: {differences_text(changed)}"
    if above is (better == "lower"):
        return Finding(METRICS, check, Verdict.SLOWER, "slower", message, data=data)
    advice = "if that is meant to last, `seatrial baseline recenter` follows it"
    return Finding(METRICS, check, Verdict.FASTER, "faster", f"{message}: {advice}", data=data)


def bound_sentence(bound: Bound, value: float, at_s: float = 0.0) -> str:
    """`2.61 s is above 2.49 s (41 runs since 3 Oct, one in 200 good runs with normal noise would be); ...`

    `at_s` is when the metric was taken; days of that year are given without it."""
    inside = False
    if bound.upper is not None and value > bound.upper:
        text = f"{value_text(value, bound.unit, bound.upper)} is above {value_text(bound.upper, bound.unit, value)}"
    elif bound.lower is not None and value < bound.lower:
        text = f"{value_text(value, bound.unit, bound.lower)} is below {value_text(bound.lower, bound.unit, value)}"
    else:
        span = pair_text(bound.lower, bound.upper, bound.unit, " to ")
        text = f"{value_text(value, bound.unit)} is within {span}"
        inside = True
    text += _provenance(bound, at_s, inside)
    if bound.changed is not None:
        levels = pair_text(bound.changed.before, bound.changed.after, bound.unit)
        text += f"; the level changed at run {bound.changed.run} ({levels}, {short_date(bound.changed.at_s, at_s)})"
    return text


def _provenance(bound: Bound, at_s: float, inside: bool) -> str:
    parts = []
    if bound.runs:
        since = f" since {short_date(bound.since_s, at_s)}" if bound.since_s else ""
        runs = f"{bound.runs} run{'s' if bound.runs != 1 else ''}"
        parts.append(f"{f'{bound.values} values of {runs}' if bound.values else runs}{since}")
        if bound.width_runs is not None:
            width = f"of {bound.width_runs} earlier one{'s' if bound.width_runs != 1 else ''}"
            parts = [f"centered on {parts[0]}", f"width {width if bound.width_runs else 'by hand'}"]
    if bound.false_alarm:
        parts.append(
            f"one in {1 / bound.false_alarm:,.0f} good runs with normal noise would {'not ' if inside else ''}be"
        )
    return f" ({', '.join(parts)})" if parts else ""


def short_date(at_s: float, now_s: float = 0.0) -> str:
    """`3 Oct`; with the year when it is not that of `now_s`. In universal time, as all dates here."""
    try:
        then, now = time.gmtime(at_s), time.gmtime(now_s)
    except (OverflowError, ValueError, OSError):  # of a clock that was wrong
        return "no date"
    text = f"{then.tm_mday} {_MONTHS[then.tm_mon - 1]}"
    return text if then.tm_year == now.tm_year else f"{text} {then.tm_year}"


def _skipped(check: str, message: str) -> Finding:
    return Finding(METRICS, check, Verdict.SKIPPED, message=message)
