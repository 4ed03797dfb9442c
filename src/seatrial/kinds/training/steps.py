"""Number of training steps and step time, from values in the log or from the times at which its lines came.

The first steps include compilation; they are detected and left out."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from seatrial.checks.command import cut_short, dropped, relevant_output, skipped
from seatrial.checks.findings import failed, passed
from seatrial.checks.metrics import FIRST, warmup
from seatrial.job import Finding, ObservedStep
from seatrial.job import count as in_words
from seatrial.readers.log import LogValue, LogValues, log_values
from seatrial.readers.profile import StepTime
from seatrial.suite import Requirement

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def times_broken(observed: ObservedStep) -> bool:
    """Whether a step time in the log is not a number, ignoring the first steps."""
    taken = log_values(observed, "step_time")
    wild = (not math.isfinite(one.value) for readings in taken.by_host.values() for one in readings[FIRST:])
    return any(wild) or any(taken.unread.values())


def from_log(observed: ObservedStep, unit: str = "s") -> StepTime | None:
    """The step time from the times in the log."""
    return _slowest(
        {
            writer: [one.value * SECONDS[unit] for one in readings if math.isfinite(one.value) and one.value > 0]
            for writer, readings in _by_writer(log_values(observed, "step_time"))
        },
        "the log",
    )


def from_lines(observed: ObservedStep) -> StepTime | None:
    """The step time from when step lines came, by the agent's clock; None if buffering made them come in bursts."""
    taken = {}
    for writer, readings in _by_writer(log_values(observed, "step")):
        # From the first line of a step to the first of the next: ranks without a name may each write one.
        first = [
            one for before, one in pairwise([None, *readings]) if one and not (before and before.value == one.value)
        ]
        values = [value for one, after in pairwise(first) if (value := _between(one, after)) is not None]
        if values and sum(value <= 0 for value in values) <= len(values) // 10:
            taken[writer] = values
    return _slowest(taken, "the times of step lines")


def check_steps(
    observed: ObservedStep, pattern: str, count: Requirement | None, last: Requirement | None, hosts: int = 0
) -> list[Finding]:
    """Checks the number of steps and the last step, each if required, on the host with the fewest. Each of the first
    `hosts` counts, even if it reports none; further hosts count if they report any."""
    if count is None and last is None:
        return []
    if unusable := dropped(observed, "steps", pattern):
        return [unusable]
    findings = []
    steps = log_values(observed, "step")
    asked = sorted({*steps.hosts, *range(hosts)})
    if count is not None:
        have, on_host = _least({host: _made(steps, host) for host in asked}, 0)
        findings.append(_judged(observed, "steps", count, have, f"{in_words(round(have), 'step')}{on_host}"))
    if last is not None:
        highest = {
            host: max((one.value for one in steps.of(host) if math.isfinite(one.value)), default=-1) for host in asked
        }
        reached, on_host = _least(highest, -1)
        message = f"last step {reached:.0f}{on_host}" if reached >= 0 else f"no steps{on_host}"
        findings.append(_judged(observed, "last step", last, reached, message))
    return findings


def _least(by_host: dict[int, float], none: float) -> tuple[float, str]:
    """The lowest value, and ` on host N`."""
    host = min(by_host, key=lambda host: by_host[host], default=0)
    return by_host.get(host, none), f" on host {host}" if len(set(by_host.values())) > 1 else ""


def _made(steps: LogValues, host: int) -> int:
    """Number of steps that a host reported: its ranks make the same steps, so the highest count of any rank."""
    by_rank = steps.by_rank(host)
    if steps.thinned(host):
        return steps.counts[host] // max(1, len(by_rank))
    return max((_distinct([one.value for one in readings]) for readings in by_rank.values()), default=0)


def _distinct(numbers: Sequence[float]) -> int:
    """Number of distinct steps. A repeated number is a new step only if the count restarted at its first number or
    below, as many programs do in each epoch; else it is a progress bar, or a rank without a name."""
    made, highest, first = 0, -math.inf, math.inf
    before = math.nan
    for number in filter(math.isfinite, numbers):
        if number != before and number <= first and made:
            highest = -math.inf
        if number > highest:
            made += 1
            highest = number
        first = min(first, number)
        before = number
    return made


def _judged(observed: ObservedStep, check: str, wanted: Requirement, have: float, message: str) -> Finding:
    if wanted.met_by(have):
        return passed(observed, check, f"{message} (expected {wanted.text})")
    if cut_short(observed):
        return skipped(observed, check, f"not checked: {cut_short(observed)} ({message})")
    return failed(observed, check, "steps", f"{message} (expected {wanted.text})", relevant_output(observed))


def _between(one: LogValue, after: LogValue) -> float | None:
    """Seconds per step between two step lines, which may be several steps apart."""
    if one.at_s is None or after.at_s is None or after.value <= one.value:
        return None
    return (after.at_s - one.at_s) / (after.value - one.value)


Writer = tuple[int, int | None]  # host and rank


def _by_writer(values: LogValues) -> Iterator[tuple[Writer, list[LogValue]]]:
    for host in values.by_host:
        for rank, readings in values.by_rank(host).items():
            yield (host, rank), readings


def _slowest(taken: dict[Writer, list[float]], source: str) -> StepTime | None:
    """The step time of the slowest process; values of several processes are not mixed."""
    best: StepTime | None = None
    several = len({host for host, _ in taken}) > 1
    for (host, rank), values in taken.items():
        left_out = warmup(values)
        kept = values[left_out:]
        if kept and (best is None or median(kept) > best.seconds):
            on_host = f" of host {host}" if several else ""
            on_host += f" of rank {rank}" if rank is not None else ""
            best = StepTime(median(kept), len(kept), left_out, source + on_host)
    return best
