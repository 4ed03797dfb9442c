"""The figures of a training job: where each was read, whether it is there, and whether it is within fixed limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.check.files import entry_files
from seatrial.check.log import cut_short
from seatrial.check.profile import profiles
from seatrial.check.reading import as_number, told
from seatrial.check.step_time import Aggregate, StepTime, aggregated, from_profile, warmup
from seatrial.job import Better, Finding, StepSeen, Verdict

TRAIN = "train"


@dataclass(frozen=True)
class MetricExpected:
    """A figure and its source: `entry` and `key` of a JSON file, `log`, a name that the log's values go by, or
    `profile`, an entry of files."""

    name: str
    entry: str = ""
    key: str = ""
    log: str = ""
    profile: str = ""
    match: str = ""  # the glob or the pattern, for people
    unit: str = ""
    better: Better | None = None
    least: float | None = None
    most: float | None = None
    aggregate: Aggregate | None = None
    warmup: int | None = None  # None: found from the values
    required: bool = True


@dataclass(frozen=True)
class Measured:
    value: float
    source: str


class NotMeasured(Exception):
    """A figure is not there; its text says why."""


def check_metric(train: StepSeen, files: StepSeen, expected: MetricExpected) -> tuple[Finding | None, dict[str, Any]]:
    """The finding, and the figure for the history: nothing where there is none. One that need not be there, and is not
    judged, needs no finding."""
    check = f"metric {expected.name}"
    try:
        measured = _measure(train, files, expected)
    except NotMeasured as error:
        if not expected.required:
            return Finding(TRAIN, check, Verdict.SKIPPED, message=f"not measured: {error}"), {}
        if cut_short(train) or (not expected.log and cut_short(files)):
            return Finding(TRAIN, check, Verdict.SKIPPED, message="not measured: it did not come that far"), {}
        return Finding(TRAIN, check, Verdict.FAILED, "metric", f"not measured: {error}"), {}
    told_value = f"{measured.value:.6g}{f' {expected.unit}' if expected.unit else ''}"
    finding = Finding(TRAIN, check, Verdict.PASSED, message=f"{told_value}, from {measured.source}")
    low = expected.least is not None and measured.value < expected.least
    if low or (expected.most is not None and measured.value > expected.most):
        limit, word = (expected.least, "least") if low else (expected.most, "most")
        message = f"{told_value}, and should be at {word} {limit:g} (from {measured.source})"
        finding = Finding(TRAIN, check, Verdict.FAILED, "metric", message)
    return finding, figure(measured.value, expected.unit, expected.better, measured.source)


def figure(value: float, unit: str, better: Better | None, source: str) -> dict[str, Any]:
    """A figure as the history takes it."""
    made: dict[str, Any] = {"value": value, "unit": unit, "source": source}
    return {**made, "better": better} if better else made


def step_time_figure(taken: StepTime) -> dict[str, Any]:
    left_out = f", {taken.warmup} first left out" if taken.warmup else ""
    return figure(taken.seconds, "s", "lower", f"{taken.source} (median of {taken.count}{left_out})")


def _measure(train: StepSeen, files: StepSeen, expected: MetricExpected) -> Measured:
    if expected.entry:
        return _from_files(files, expected)
    if expected.log:
        return _from_log(train, expected)
    opened = profiles(files, expected.profile)
    taken = from_profile(opened)
    if taken is None:
        raise NotMeasured(f"no profile of {expected.profile!r} could be read" if not opened else "no step is marked")
    return Measured(taken.seconds, f"{taken.source} (median of {taken.count})")


def _from_files(files: StepSeen, expected: MetricExpected) -> Measured:
    """Of one host's file, or of several: then the worst one, for all hosts wait for it."""
    found = entry_files(files, expected.entry)
    if not found:
        raise NotMeasured(f"no file matches {expected.match!r}")
    broken = [f"{one.get('path')}: {one['error']}" for one in found if one.get("error")]
    if broken:
        raise NotMeasured(broken[0])
    values, lacking = [], []
    for one in found:
        value = _value(one, expected.key)
        if value is None:
            lacking.append(str(one.get("path")))
        else:
            values.append(value)
    if lacking:
        raise NotMeasured(f"{lacking[0]} has no number at {expected.key!r}")
    how: Aggregate = expected.aggregate or ("min" if expected.better == "higher" else "max")
    where = str(found[0].get("path")) if len(found) == 1 else f"{len(found)} files {expected.match} ({how})"
    return Measured(_finite(aggregated(values, how)), f"{expected.key} of {where}")


def _value(one: dict[str, Any], key: str) -> float | None:
    values = one.get("values")
    value = values.get(key) if isinstance(values, dict) else None
    return None if isinstance(value, str) and not _is_number(value) else as_number(value)


def _is_number(text: str) -> bool:
    return text in ("nan", "inf", "-inf")


def _from_log(train: StepSeen, expected: MetricExpected) -> Measured:
    taken = told(train, expected.log)
    if not taken.hosts:
        raise NotMeasured(f"no line matches {expected.match!r}")
    how: Aggregate = expected.aggregate or "median"
    by_host: list[tuple[float, int, int]] = []
    for host in taken.hosts:
        values = [one.value for one in taken.of(host) if math.isfinite(one.value)]
        left_out = _warmup(values, expected)
        if how == "last":
            by_host.append((taken.last[host], 1, 0))
        elif values[left_out:]:
            by_host.append((aggregated(values[left_out:], how), len(values) - left_out, left_out))
    if not by_host:
        raise NotMeasured("what the log tells are no numbers")
    pick = min if expected.better == "higher" else max
    value, count, left_out = pick(by_host)
    first = f", {left_out} first left out" if left_out else ""
    return Measured(_finite(value), "the log (last value)" if how == "last" else f"the log ({how} of {count}{first})")


def _warmup(values: Sequence[float], expected: MetricExpected) -> int:
    """A rate begins low where a time begins high."""
    if expected.warmup is not None:
        return min(expected.warmup, max(len(values) - 1, 0))
    if expected.better == "higher":
        return warmup([1 / value for value in values]) if all(value > 0 for value in values) else 0
    return warmup(values)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise NotMeasured(f"it is {value}")
    return value
