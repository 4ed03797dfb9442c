"""Checks the loss in a log: finite, near a target, like a recorded curve."""

import math
from bisect import bisect
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

import msgspec

from seatrial.checks.command import ONE_IS_ENOUGH, cut_short, dropped, relevant_output, skipped, stopped_by, where
from seatrial.checks.evidence import tidy, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import Finding, ObservedStep, count
from seatrial.kinds.training.model import Loss
from seatrial.readers.log import LogValue, LogValues, as_number, hosts_text, log_values, value_text

SHORT = 80  # characters; longer patterns are not shown
_MOST_POINTS = 200  # points of the curve in a finding
CHECK = "loss curve"
_NO_STEP = "no step numbers in the log; set `pattern` of `steps` to match them"
SURE = 3  # steps needed to detect that a log prints every Nth


def check_loss(
    observed: ObservedStep, expected: Loss, curve: Mapping[int, float] | None = None, hosts: int = 0
) -> list[Finding]:
    """Returns a finding for the loss, and one for the recorded curve. Each of the first `hosts` must report a loss;
    further ones are checked too."""
    if unusable := dropped(observed, "loss", expected.pattern):
        return [unusable]
    losses = log_values(observed, "loss")
    wild = _not_finite(observed, losses)
    if not losses.hosts and wild is None:
        return [_none(observed, expected)]
    if wild and expected.finite:
        judged = _finite(observed, losses, wild)
    elif silent := losses.silent(hosts):
        message = f"{hosts_text(silent)} reported no loss, but {hosts_text(losses.hosts)} did; {ONE_IS_ENOUGH}"
        judged = failed(observed, "loss", "loss", message)
        if early := cut_short(observed):
            judged = skipped(observed, "loss", f"not checked: {early}, before {hosts_text(silent)} reported a loss")
    else:
        judged = _last(observed, losses, expected)
    findings = [msgspec.structs.replace(judged, data={"curve": points(losses)})]
    if curve:
        findings.append(check_curve(observed, losses, expected, curve))
    return findings


def points(losses: LogValues) -> list[list[float | int | None]]:
    """The curve of the first host that reports one, thinned, in a form that `read_curve` accepts."""
    known = [one for one in losses.of(losses.hosts[0]) if one.step is not None] if losses.hosts else []
    every = max(1, math.ceil(len(known) / _MOST_POINTS))
    return [[one.step, one.value if math.isfinite(one.value) else None] for one in known[::every]]


def _none(observed: ObservedStep, expected: Loss) -> Finding:
    if cut_short(observed):
        return skipped(observed, "loss", f"not checked: {cut_short(observed)}")
    near = [line.strip() for line in tidy(observed.output).splitlines() if "loss" in line.lower()]
    hint = "to match the lines below" if near else "if the job prints it differently"
    pattern = repr(expected.pattern) if len(expected.pattern) < SHORT else "the default pattern"
    message = f"no loss in the log: no line matches {pattern}; set `pattern` of `loss` {hint}"
    evidence = with_heading(near[-1], observed.output) if near else relevant_output(observed)
    return failed(observed, "loss", "loss", message, evidence)


def _not_finite(observed: ObservedStep, losses: LogValues) -> LogValue | None:
    """The first value that is not finite, or the one for which the agent stopped the job."""
    stopped = stopped_by(observed)
    readings = (one for host in losses.hosts for one in losses.of(host))
    first = next((one for one in readings if not math.isfinite(one.value)), None)
    if first is None and stopped.get("what") == "value" and stopped.get("name") == "loss":
        value = as_number(stopped.get("value"))
        line, host = stopped.get("line"), stopped.get("host")
        number = math.nan if value is None else value
        return LogValue(number, host if isinstance(host, int) else 0, line=line if isinstance(line, int) else None)
    if first is None:
        return next((LogValue(value, host) for host, value in losses.last.items() if not math.isfinite(value)), None)
    return first


def _finite(observed: ObservedStep, losses: LogValues, wild: LogValue) -> Finding:
    at = [f"at step {wild.step}" if wild.step is not None else "", where(wild.line, wild.host, len(losses.hosts))]
    stopped = stopped_by(observed)
    after = stopped.get("seconds_after") if stopped.get("what") == "value" else None
    ended = f"; stopped {after:.2g} s after that line" if isinstance(after, int | float) else ""
    text = str(stopped.get("text") or "") if stopped.get("what") == "value" else ""
    at_line = ", ".join(filter(None, at))
    message = f"the loss is {value_text(wild.value)}" + (f" ({at_line})" if at_line else "") + ended
    class_ = "nan" if math.isnan(wild.value) else "inf"
    evidence = with_heading(text, observed.output) if text else relevant_output(observed)
    return failed(observed, "loss", class_, message, evidence)


def _last(observed: ObservedStep, losses: LogValues, expected: Loss) -> Finding:
    """The last value of each host."""
    on_host = {host: f" on host {host}" if len(losses.hosts) > 1 else "" for host in losses.hosts}
    shown = ", ".join(f"{value_text(losses.last[host])}{on_host[host]}" for host in losses.hosts[:8])
    if expected.target is None:
        return passed(observed, "loss", f"final loss {shown} ({sum(losses.counts.values())} values)")
    target = expected.target
    off = [host for host in losses.hosts if not expected.near(losses.last[host], target)]
    if not off:
        return passed(observed, "loss", f"final loss {shown} (expected {target:.6g} ± {expected.width})")
    if cut_short(observed):
        return skipped(observed, "loss", f"not checked: {cut_short(observed)} at loss {shown}")
    value = losses.last[off[0]]
    message = f"final loss {value:.6g}{on_host[off[0]]} (expected {target:.6g} ± {expected.width})"
    return failed(observed, "loss", "loss", message, relevant_output(observed))


def check_curve(observed: ObservedStep, losses: LogValues, expected: Loss, recorded: Mapping[int, float]) -> Finding:
    """Checks the loss against the recorded curve.

    1. Steps that are in both are compared, always including the last one of a long log.
    2. Each host must reach the end of the curve and log each of its steps, except those between two lines of a log that
       prints every Nth step. Otherwise a run that skips bad steps would pass.
    """
    by_host = {host: [one for one in losses.of(host) if one.step is not None] for host in losses.hosts}
    logged_steps = [one for readings in by_host.values() for one in readings]
    common = [one for one in logged_steps if one.step in recorded]
    if not common:
        why = "the log has none of the recorded steps; if that is intended, record a new curve"
        why = why if logged_steps else _NO_STEP
        return failed(observed, CHECK, "loss", f"cannot compare the curve: {why}", relevant_output(observed))
    if off := [one for one in common if not expected.near(one.value, recorded[one.step or 0])]:
        first = min(off, key=lambda one: one.step or 0)
        message = (
            f"{len(off)} of {count(len(common), 'step')} differ from the recorded curve, first step {first.step}: "
            f"{value_text(first.value)} (expected {recorded[first.step or 0]:.6g} ± {expected.width})"
        )
        return failed(observed, CHECK, "loss", message)
    for host, readings in by_host.items():
        on_host = f" on host {host}" if len(by_host) > 1 else ""
        if lacks := _lacks(observed, readings, losses.thinned(host), recorded, on_host):
            return failed(observed, CHECK, "loss", lacks, relevant_output(observed))
    compared = len({one.step for one in common})
    part = "; only some of the values were kept" if any(map(losses.thinned, by_host)) else ""
    steps = f"{compared:,} of {count(len(recorded), 'step')} of the recorded curve"
    message = f"compared {steps}: all within {expected.width}{part}"
    return passed(observed, CHECK, message)


def _lacks(
    observed: ObservedStep, readings: list[LogValue], thinned: bool, recorded: Mapping[int, float], on_host: str
) -> str:
    """Which part of the recorded curve a host's log lacks; of a job that ended early, only up to its last step."""
    logged_steps = sorted({one.step for one in readings if one.step is not None})
    if not logged_steps:
        return f"cannot compare the curve{on_host}: {_NO_STEP}"
    # The log prints every Nth step; 1 if unknown.
    between = [high - low for low, high in pairwise(logged_steps)]
    every = int(median(between)) if len(logged_steps) >= SURE else 1
    reached, wanted = logged_steps[-1], max(recorded)
    if reached + every - 1 < wanted and not cut_short(observed):
        return f"the log{on_host} ends at step {reached}, before the end of the recorded curve (step {wanted})"
    if thinned:
        return ""
    there = set(logged_steps)
    lacking = [
        step for step in recorded if step <= reached and step not in there and _left_out(step, logged_steps, every)
    ]
    if not lacking:
        return ""
    here = sum(step in there for step in recorded)
    steps = f"{here:,} of {count(len(recorded), 'step')} of the recorded curve"
    return f"the log{on_host} has only {steps}; first missing: step {min(lacking)}"


def _left_out(step: int, logged_steps: list[int], every: int) -> bool:
    """Whether a missing step before the end of the log should have been logged."""
    at = bisect(logged_steps, step)
    if at == 0:  # a log of every tenth step may start at 10
        return logged_steps[0] - step > every or every == 1
    return logged_steps[at] - logged_steps[at - 1] > every
