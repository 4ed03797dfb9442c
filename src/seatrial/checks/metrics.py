"""Reads the metrics of a job from its log, files and profiles, and checks them against fixed limits."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any, Literal

from seatrial.checks.command import ONE_IS_ENOUGH, cut_short
from seatrial.checks.ended import unread
from seatrial.checks.files import entry_count, host_folders, host_in_path
from seatrial.checks.findings import MetricData, metric_data
from seatrial.job import Finding, ObservedStep, Verdict, count
from seatrial.readers.log import LogValue, LogValues, as_number, hosts_text, log_values, value_text
from seatrial.readers.profile import StepTime, entry_error, entry_files, from_profile, profiles
from seatrial.suite.command import Metric

FIRST = 2  # steps always left out, if enough others remain
LEAST_STEPS = 3  # steps that must remain
FAR = 0.10  # a value above the steady median by this share and by SPREADS spreads is warm-up
SPREADS = 6.0
_MAD_TO_SIGMA = 1.4826
Aggregate = Literal["median", "mean", "last", "min", "max"]
_AGGREGATES: dict[Aggregate, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": fmean,
    "last": lambda values: values[-1],
    "min": min,
    "max": max,
}


def warmup(values: Sequence[float]) -> int:
    """How many leading values are warm-up: far above the median of the later half.

    Compilation makes the first step 9 to 100 times as long as the others, and the next ones may be longer too. At most
    half of the values are left out, and at least LEAST_STEPS remain."""
    count = len(values)
    most = min(count // 2, count - LEAST_STEPS)
    if most <= 0:
        return 1 if count == LEAST_STEPS and values[0] > 2 * max(values[1:]) else 0
    steady = values[count // 2 :]
    center = median(steady)
    spread = _MAD_TO_SIGMA * median(abs(value - center) for value in steady)
    limit = center + max(FAR * abs(center), SPREADS * spread)
    far = next((index for index in range(most) if not values[index] > limit), most)
    return max(far, min(FIRST, most))


def value_name(name: str) -> str:
    """The name of a metric's values and of its entry among the files. The space keeps it distinct from other names."""
    return f"metric {name}"


_Measured = tuple[float, str]  # a value and its source


class NotMeasured(Exception):
    """A metric could not be measured; the message is the reason."""


def check_metric(
    train: ObservedStep, files: ObservedStep, name: str, expected: Metric, hosts: int
) -> tuple[Finding, MetricData | None]:
    """Returns the finding, and the metric for the history; None if it was not measured. `hosts` is the number of hosts
    that must each report it in their log; further ones count too."""
    check = f"metric {name}"
    try:
        value, source = _measure(train, files, name, expected, hosts)
    except NotMeasured as error:
        if not expected.required:
            return Finding(train.name, check, Verdict.SKIPPED, message=f"not measured: {error}"), None
        if expected.log is None and (bad := unread(files, train.name, check)):
            return bad, None
        if cut_short(train) or (expected.log is None and cut_short(files)):
            return Finding(train.name, check, Verdict.SKIPPED, message="not measured: the job ended first"), None
        return Finding(train.name, check, Verdict.FAILED, "metric", f"not measured: {error}"), None
    measured_text = f"{value:.6g}{f' {expected.unit}' if expected.unit else ''}"
    finding = Finding(train.name, check, Verdict.PASSED, message=f"{measured_text}, from {source}")
    low = expected.min is not None and value < expected.min
    if low or (expected.max is not None and value > expected.max):
        limit, edge = (expected.min, "least") if low else (expected.max, "most")
        message = f"{measured_text} (expected at {edge} {limit:g}), from {source}"
        finding = Finding(train.name, check, Verdict.FAILED, "metric", message)
    return finding, metric_data(value, expected.unit, expected.better, source)


def check_reading(
    ran: ObservedStep, files: ObservedStep, entry: str, reader: str, match: str
) -> tuple[list[Finding], dict[str, MetricData]]:
    """Returns the finding of a reader and its metrics. `match`: the glob of its file; empty if it reads the output."""
    check = f"read {reader}"
    found = entry_files(files, entry)
    if ran.outcome is None or cut_short(ran):  # partial output would be taken for complete
        return [Finding(ran.name, check, Verdict.SKIPPED, message="not read: the command did not finish")], {}
    if ran.unseen or files.unseen:
        why = f"not read: {ran.unseen or files.unseen}"
        return [Finding(ran.name, check, Verdict.INVALID, "unjudged", why)], {}
    if bad := unread(files, ran.name, check):
        return [bad], {}
    made: dict[str, MetricData] = {}
    error = entry_error(files, entry)
    problem = ""
    if not found and error:
        problem = f"{match or 'output'}: {error}"
    elif not found and match:
        problem = f"no file matches {match!r}"
    elif not found:
        problem = "output was not kept: more than 64 MiB, or the disk was full"
    elif len(found) > 1:
        problem = f"{len(found)} files match {match!r} (expected one); make the glob match only one"
    elif not match and not found[0].get("bytes"):
        problem = "output is empty"
    elif found[0].get("error"):
        problem = f"{found[0].get('path') if match else 'output'}: {found[0]['error']}"
    if problem:
        return [Finding(ran.name, check, Verdict.FAILED, "unreadable", problem, ran.output)], {}
    if taken := from_profile(profiles(files, entry)):
        return [Finding(ran.name, check, Verdict.PASSED, message=taken.source)], {"step_time": step_time_metric(taken)}
    reading = found[0].get("reading")
    read: dict[str, Any] = reading if isinstance(reading, dict) else {"why": "no steps are marked", "verdict": "failed"}
    not_finite: list[str] = []
    for name, metric in (read.get("metrics") or {}).items():
        value = as_number(metric.get("value"))
        if value is None or not math.isfinite(value):
            not_finite.append(f"{name} is {metric.get('value')}")
            continue
        better = metric.get("better") if metric.get("better") in ("lower", "higher") else None
        made[name] = metric_data(value, str(metric.get("unit") or ""), better, f"{reader} of {match or 'the output'}")
    why = str(read.get("why") or "")
    if read.get("verdict") == "failed":
        why = why or "the reader reported a failure"
        return [Finding(ran.name, check, Verdict.FAILED, "read", why, ran.output)], made
    if not_finite:
        why = f"{', '.join(not_finite[:5])} (expected a finite number)"
        return [Finding(ran.name, check, Verdict.FAILED, "read", why, ran.output)], made
    if read.get("verdict") == "unjudged" or not made:
        return [Finding(ran.name, check, Verdict.INVALID, "unjudged", why or "no metrics found", ran.output)], made
    return [Finding(ran.name, check, Verdict.PASSED, message=why or f"{count(len(made), 'metric')}")], made


def step_time_metric(taken: StepTime) -> MetricData:
    left_out = f", first {taken.warmup} left out" if taken.warmup else ""
    return metric_data(taken.seconds, "s", "lower", f"{taken.source} (median of {taken.count}{left_out})")


def _measure(train: ObservedStep, files: ObservedStep, name: str, expected: Metric, hosts: int) -> _Measured:
    if expected.file is not None:
        return _from_files(files, value_name(name), expected, expected.file)
    if expected.log is not None:
        return _from_log(train, value_name(name), expected, expected.log, hosts)
    opened = profiles(files, expected.profile or "")
    taken = from_profile(opened)
    if taken is None:
        raise NotMeasured(f"no profile of {expected.profile!r} could be read" if not opened else "no steps are marked")
    return taken.seconds, f"{taken.source} (median of {taken.count})"


def _from_files(files: ObservedStep, entry: str, expected: Metric, match: str) -> _Measured:
    """The value from one file; of several hosts the worst, because all hosts wait for the slowest."""
    found = entry_files(files, entry)
    if not found:
        raise NotMeasured(f"no file matches {match!r}")
    broken = [f"{one.get('path')}: {one['error']}" for one in found if one.get("error")]
    if broken:
        raise NotMeasured(broken[0])
    if (total := entry_count(files, entry)) > len(found):
        raise NotMeasured(f"{total:,} files match {match!r}, but only {len(found):,} were read")
    placed = {host_in_path(str(one.get("path"))) for one in found} - {""}
    if placed and (without := sorted(host_folders(files) - placed)):
        raise NotMeasured(f"no file matches {match!r} in the folder of host {without[0]}")
    values = []
    for one in found:
        value = _value(one, expected.key or "")
        if value is None:
            raise NotMeasured(f"{one.get('path')} has no number at {expected.key!r}")
        if not math.isfinite(value):
            raise NotMeasured(f"{expected.key!r} of {one.get('path')} is {value_text(value)}")
        values.append(value)
    how: Aggregate = expected.aggregate or ("min" if expected.better == "higher" else "max")
    where = str(found[0].get("path")) if len(found) == 1 else f"{len(found)} files {match} ({how})"
    return _one_of(values, how), f"{expected.key} of {where}"


def _one_of(values: Sequence[float], how: Aggregate) -> float:
    """Raises NotMeasured if the result overflows."""
    try:
        value = _AGGREGATES[how](values)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise NotMeasured(f"the {how} of {len(values)} values is too large for a floating-point number")
    return value


def _value(one: dict[str, Any], key: str) -> float | None:
    values = one.get("values")
    value = values.get(key) if isinstance(values, dict) else None
    return None if isinstance(value, str) and value not in ("nan", "inf", "-inf") else as_number(value)


def _from_log(train: ObservedStep, name: str, expected: Metric, match: str, hosts: int) -> _Measured:
    """Aggregates per host (and per rank, if lines name it) and returns the worst. A value that is not a number is never
    ignored: the metric counts as not measured."""
    taken = log_values(train, name)
    if not taken.hosts:
        raise NotMeasured(f"no line matches {match!r}")
    if silent := taken.silent(hosts):
        raise NotMeasured(f"no line of {hosts_text(silent)} matches {match!r}; {ONE_IS_ENOUGH}")
    how: Aggregate = expected.aggregate or "median"
    by_host: list[tuple[float, int, int]] = []
    for host in taken.hosts:
        if odd := no_numbers(taken, host):
            raise NotMeasured(odd + (f" (host {host})" if len(taken.hosts) > 1 else ""))
        if how == "last":
            by_host.append((taken.last[host], 1, 0))
            continue
        for readings in taken.by_rank(host).values():
            values = [one.value for one in readings]
            if expected.warmup is not None:
                left_out = min(expected.warmup, max(len(values) - 1, 0))
            elif expected.better == "higher":  # during warm-up rates are low, times are high
                left_out = warmup([1 / value for value in values]) if all(value > 0 for value in values) else 0
            else:
                left_out = warmup(values)
            by_host.append((_one_of(values[left_out:], how), len(values) - left_out, left_out))
    if not by_host:
        raise NotMeasured("no values were kept")
    pick = min if expected.better == "higher" else max
    value, count, left_out = pick(by_host)
    first = f", first {left_out} left out" if left_out else ""
    return value, "the log (last value)" if how == "last" else f"the log ({how} of {count}{first})"


def no_numbers(taken: LogValues, host: int) -> str:
    """`2 of 9 values are not numbers: nan`; empty if all values of the host are numbers."""
    wild = [one for one in taken.of(host) if not math.isfinite(one.value)]
    if not wild and not math.isfinite(taken.last.get(host, 0.0)) and not taken.unread.get(host):
        wild = [LogValue(taken.last[host], host)]
    unread = taken.unread.get(host, 0)
    if not wild and not unread:
        return ""
    kinds = [*dict.fromkeys(value_text(one.value) for one in wild), *(["other text"] if unread else [])]
    count = len(wild) + unread
    of = max(taken.counts.get(host, 0), count)
    return f"{count} of {of} values {'is not a number' if count == 1 else 'are not numbers'}: {', '.join(kinds)}"
