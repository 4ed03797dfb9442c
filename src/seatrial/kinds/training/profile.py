"""Checks profiles: events, devices, steps, and agreement with the log."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median

from seatrial.checks.files import all_good, host_in_path
from seatrial.job import Finding, ObservedStep, Verdict, count
from seatrial.kinds.training.steps import SECONDS
from seatrial.readers.log import log_values
from seatrial.readers.profile import DeviceEvents, Profile, from_profile, profiles
from seatrial.suite import Requirement
from seatrial.suite.command import Files

STEPS = 3  # default minimum number of steps in a profile
MOST_NUMBERED = 8


def check_profile(files: ObservedStep, train: ObservedStep, name: str, expected: Files, log_unit: str) -> list[Finding]:
    """Returns a finding per rule, over all profiles of the entry. Whether they could be parsed is the finding `valid`.
    `log_unit` is the unit of step times in the log."""
    step = f"files {name}"
    opened = profiles(files, name)
    if not opened:
        return []
    total = sum(profile.events for _, profile in opened)
    findings = [_all(step, "profile", opened, _damage, f"{total:,} events")]
    first = opened[0][1]
    by_source = f"{count(len(first.steps), 'step')}, by {first.step_source}"
    findings.append(_all(step, "steps", opened, lambda one: _wrong_steps(one, expected.steps), by_source))
    if expected.device is not None:
        wrong_device = partial(_wrong_device, device=expected.device, devices=expected.devices)
        findings.append(_all(step, "device", opened, wrong_device, f"all have {expected.device} events"))
    if (window := expected.window) is not None and not any(_numbers(profile) for _, profile in opened):
        message = "not checked: the steps of the profile have no numbers"
        findings.append(Finding(step, "window", Verdict.SKIPPED, message=message))
    elif window is not None:
        good = f"steps {window[0]} to {window[1]}"
        findings.append(_all(step, "window", opened, lambda one: _outside(one, window), good))
    if expected.agrees is not None:
        findings.append(_agrees(step, opened, train, expected.agrees, log_unit))
    return findings


def check_profile_metric(
    files: ObservedStep, name: str, agrees: float, metric: str, seconds: float, source: str
) -> list[Finding]:
    """Compares a step time that the job wrote into a file with its profile; empty without a profile."""
    taken = from_profile(profiles(files, name))
    if taken is None:
        return []
    check, apart = f"agrees {metric}", abs(taken.seconds / seconds - 1) if seconds else math.inf
    message = f"a step takes {taken.seconds:.4g} s in the profile and {seconds:.4g} s by {metric} ({source})"
    if apart <= agrees:
        return [Finding(f"files {name}", check, Verdict.PASSED, message=f"{message}, {apart:.2%} apart")]
    wrong = f"{message}: {apart:.1%} apart (limit {agrees * 100:.4g}%)"
    return [Finding(f"files {name}", check, Verdict.FAILED, "profile", wrong)]


def _all(
    step: str, check: str, opened: Sequence[tuple[str, Profile]], problem: Callable[[Profile], str], good: str
) -> Finding:
    """One finding for all profiles; `problem` is what is wrong with one, to follow its path."""
    wrong = [path + text for path, profile in opened if (text := problem(profile))]
    return all_good(step, check, "profile", wrong, len(opened), good)


def _damage(profile: Profile) -> str:
    """Checks that there are events, all have names, and the profiler reported no errors."""
    if not profile.events:
        return f" has no events ({len(profile.planes)} planes)"
    if profile.unresolved:
        return f": {profile.unresolved} of {profile.events} events have no name; the file is damaged"
    return f": the profiler reported an error: {profile.errors[0][:300]}" if profile.errors else ""


def _wrong_steps(profile: Profile, wanted: Requirement | None) -> str:
    have = len(profile.steps)
    if profile.ambiguous:
        names = ", ".join(profile.ambiguous[:4])
        return f": cannot tell which events are steps; annotate steps in the program (device modules: {names})"
    if wanted.met_by(have) if wanted else have >= STEPS:
        return ""
    marks = "" if have else "; no steps are marked"
    return f" has {count(have, 'step')} (expected {wanted.text if wanted else f'>={STEPS}'}){marks}"


def _wrong_device(profile: Profile, device: str, devices: Requirement | None) -> str:
    by_type = {name.lower(): events for name, events in profile.devices.items()}
    found = by_type.get(device.lower(), DeviceEvents())
    if not found.events:
        return f" has no {device} events; devices: {', '.join(profile.devices) or 'none'}"
    if devices is not None and not devices.met_by(found.count):
        return f" has {found.count} {device} devices (expected {devices.text})"
    return ""


def _numbers(profile: Profile) -> list[int]:
    return [number for number, _ in profile.steps if number is not None]


def _outside(profile: Profile, window: tuple[int, int]) -> str:
    outside = [number for number in _numbers(profile) if not window[0] <= number <= window[1]]
    shown = ", ".join(map(str, outside[:MOST_NUMBERED]))
    return f" has steps {shown} (expected only {window[0]} to {window[1]})" if outside else ""


def _agrees(
    step: str, opened: Sequence[tuple[str, Profile]], train: ObservedStep, agrees: float, log_unit: str
) -> Finding:
    """Compares step times in the profile with those in its host's log: step by step if both have numbers, else their
    medians."""
    taken = log_values(train, "step_time")
    scale = SECONDS[log_unit]
    by_host = {
        host: logged
        for host in taken.hosts
        if (logged := [(one.step, one.value * scale) for one in taken.of(host) if one.value > 0])
    }
    if not by_host:
        return Finding(step, "agrees", Verdict.SKIPPED, message="not checked: the log reports no step times")
    wrong, shown = [], ""
    hosts = _hosts([path for path, _ in opened], list(by_host))
    for path, profile in opened:
        if not profile.steps:
            continue
        host = hosts.get(host_in_path(path))
        apart, profiled, printed = min(
            _apart(_pairs(profile.steps, logged)) for one, logged in by_host.items() if host in (None, one)
        )
        shown = shown or f"{profiled:.4g} s, {printed:.4g} s in the log ({apart:.2%} apart)"
        if apart > agrees:
            wrong.append(
                f"{path}: a step takes {profiled:.4g} s in the profile and {printed:.4g} s in the log, "
                f"{apart:.1%} apart (limit {agrees * 100:.4g}%)"
            )
    if not shown:
        return Finding(step, "agrees", Verdict.SKIPPED, message="not checked: the profile has no steps")
    return all_good(step, "agrees", "profile", wrong, len(opened), shown)


def _hosts(paths: list[str], reporting_hosts: list[int]) -> dict[str, int]:
    """Maps host folders (`0-1`) to hosts with a log, in order, if there are as many of both. A profile without a host
    is compared with the host that agrees best."""
    folders = sorted(
        {host for path in paths if (host := host_in_path(path))}, key=lambda one: [*map(int, one.split("-"))]
    )
    return dict(zip(folders, reporting_hosts, strict=True)) if len(folders) == len(reporting_hosts) else {}


def _apart(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The difference as a share, and the medians of both."""
    profiled, printed = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    apart = median(abs(a / b - 1) for a, b in pairs) if len(pairs) > 1 else abs(profiled / printed - 1)
    return apart, profiled, printed


def _pairs(
    steps: list[tuple[int | None, float]], logged: Iterable[tuple[int | None, float]]
) -> list[tuple[float, float]]:
    """Seconds in the profile and the log of each step number in both; else one pair of medians."""
    by_number = {number: seconds for number, seconds in logged if number is not None}
    pairs = [(seconds, by_number[number]) for number, seconds in steps if number is not None and number in by_number]
    if pairs:
        return pairs
    return [(median(seconds for _, seconds in steps), median(seconds for _, seconds in logged))]
