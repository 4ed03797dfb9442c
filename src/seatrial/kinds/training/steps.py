"""How many steps a training job made, and how long one took: from the words of its log, from when its lines came, or
from a profile. The first steps compile; they are left out, by what the values themselves say."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from seatrial.checks.command import cut_short, dropped, relevant_output, skipped
from seatrial.checks.findings import Threshold, failed, passed
from seatrial.checks.metrics import FIRST, warmup
from seatrial.job import Finding, ObservedStep
from seatrial.job import count as in_words
from seatrial.readers.log import LogValue, LogValues, log_values
from seatrial.readers.profile import StepTime

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def times_broken(observed: ObservedStep) -> bool:
    """Whether a time that the log reports is no number. Those of the first steps, which are left out, do not count."""
    taken = log_values(observed, "step_time")
    wild = (not math.isfinite(one.value) for readings in taken.by_host.values() for one in readings[FIRST:])
    return any(wild) or any(taken.unread.values())


def from_log(observed: ObservedStep, unit: str = "s") -> StepTime | None:
    """From what the log says of each step."""
    return _slowest(
        {
            writer: [one.value * SECONDS[unit] for one in readings if math.isfinite(one.value) and one.value > 0]
            for writer, readings in _by_writer(log_values(observed, "step_time"))
        },
        "the log",
    )


def from_lines(observed: ObservedStep) -> StepTime | None:
    """From when the lines of steps came, by the agent's one clock; None where a buffer let them come in heaps."""
    taken = {}
    for writer, readings in _by_writer(log_values(observed, "step")):
        # From the first line of a step to the first of the next: ranks that name themselves nowhere each write one.
        first = [
            one for before, one in pairwise([None, *readings]) if one and not (before and before.value == one.value)
        ]
        values = [value for one, after in pairwise(first) if (value := _between(one, after)) is not None]
        if values and sum(value <= 0 for value in values) <= len(values) // 10:
            taken[writer] = values
    return _slowest(taken, "the times at which the lines of steps came")


def check_steps(
    observed: ObservedStep, pattern: str, count: Threshold | None, last: Threshold | None, hosts: int = 0
) -> list[Finding]:
    """How many steps the log reports, and how far it came, each if asked for. The host with the fewest is judged: one
    of the first `hosts` that reports none made none; of others, those that report any count."""
    if count is None and last is None:
        return []
    if given_up := dropped(observed, "steps", pattern):
        return [given_up]
    findings = []
    steps = log_values(observed, "step")
    asked = sorted({*steps.hosts, *range(hosts)})
    if count is not None:
        have, place = _least({host: _made(steps, host) for host in asked}, 0)
        findings.append(_judged(observed, "steps", count, have, f"{in_words(round(have), 'step')}{place}"))
    if last is not None:
        highest = {
            host: max((one.value for one in steps.of(host) if math.isfinite(one.value)), default=-1) for host in asked
        }
        reached, place = _least(highest, -1)
        message = f"the last is step {reached:.0f}{place}" if reached >= 0 else f"no step at all{place}"
        findings.append(_judged(observed, "last step", last, reached, message))
    return findings


def _least(by_host: dict[int, float], none: float) -> tuple[float, str]:
    """What the host with the least has, and in words which one that is."""
    host = min(by_host, key=lambda host: by_host[host], default=0)
    return by_host.get(host, none), f" on host {host}" if len(set(by_host.values())) > 1 else ""


def _made(steps: LogValues, host: int) -> int:
    """Steps that a host reported: those of the rank that reports most, for its ranks make the same ones."""
    by_rank = steps.by_rank(host)
    if steps.thinned(host):
        return steps.counts[host] // max(1, len(by_rank))
    return max((_distinct([one.value for one in readings]) for readings in by_rank.values()), default=0)


def _distinct(numbers: Sequence[float]) -> int:
    """Steps that differ. One that comes again is a new one only where the count began anew, at its first number or
    below, as many programs do in each epoch; else it is a progress bar, or a rank that does not name itself."""
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


def _judged(observed: ObservedStep, check: str, wanted: Threshold, have: float, message: str) -> Finding:
    if wanted.met_by(have):
        return passed(observed, check, f"{message}, asked for {wanted.text}")
    if cut_short(observed):
        return skipped(observed, check, f"not known: {cut_short(observed)} ({message})")
    return failed(observed, check, "steps", f"{message}, and should be {wanted.text}", relevant_output(observed))


def _between(one: LogValue, after: LogValue) -> float | None:
    """Seconds of a step between two lines of steps, which may be several steps apart."""
    if one.at_s is None or after.at_s is None or after.value <= one.value:
        return None
    return (after.at_s - one.at_s) / (after.value - one.value)


Writer = tuple[int, int | None]  # host and rank


def _by_writer(values: LogValues) -> Iterator[tuple[Writer, list[LogValue]]]:
    for host in values.by_host:
        for rank, readings in values.by_rank(host).items():
            yield (host, rank), readings


def _slowest(taken: dict[Writer, list[float]], source: str) -> StepTime | None:
    """Of one process: what several of them print is not mixed."""
    best: StepTime | None = None
    several = len({host for host, _ in taken}) > 1
    for (host, rank), values in taken.items():
        left_out = warmup(values)
        kept = values[left_out:]
        if kept and (best is None or median(kept) > best.seconds):
            place = f" of host {host}" if several else ""
            place += f" of rank {rank}" if rank is not None else ""
            best = StepTime(median(kept), len(kept), left_out, source + place)
    return best
