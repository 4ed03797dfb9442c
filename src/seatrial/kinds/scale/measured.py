"""Findings and charts on the measurement itself: clocks, gaps, limits, and the control plane's health."""

from typing import Any

from seatrial.checks.findings import passed
from seatrial.job import AnyChart, Finding, ObservedStep, Series, Table, Verdict, count, value_text
from seatrial.kinds.scale.work import AuditMetrics, ClockMetrics, HealthPoint, Limit, MeasuredScale

LEAST_IDLE_S = 5.0  # of a scheduler that has work


def check_limits(step: ObservedStep, limits: list[Limit]) -> list[Finding]:
    """Limits outside the cluster's capacity. Informational: never changes the verdict."""
    if not limits:
        return [passed(step, "preflight", "preflight found no limit below the requested load")]
    return [Finding(step.name, f"preflight {one.what}", Verdict.SKIPPED, "preflight", one.text) for one in limits]


def check_measured(step: ObservedStep, measured: MeasuredScale) -> list[Finding]:
    found = [_followed(step, measured)]
    if measured.clock is not None:
        found.append(_clock(step, measured.clock))
    if measured.audit is not None:
        found.append(_audit(step, measured.audit))
    if measured.outages:
        found.append(Finding(step.name, "API server", Verdict.SKIPPED, "outage", _unreachable(measured)))
    limit = limited_by(measured)
    return [*found, passed(step, "limited by", limit)] if limit else found


def _unreachable(measured: MeasuredScale) -> str:
    seconds = sum(until_s - from_s for from_s, until_s in measured.outages)
    return f"API server unreachable for {value_text(seconds, 's')}"


def _followed(step: ObservedStep, measured: MeasuredScale) -> Finding:
    text = f"followed {', '.join(measured.followed)}"
    if measured.gaps:
        text += f"; the watch had {measured.gaps} gaps, {value_text(measured.blind_s, 's')} in total"
    if not measured.left_out:
        return passed(step, "watch", text)
    text += f"; not followed (missing permission): {'; '.join(measured.left_out)}"
    return Finding(step.name, "watch", Verdict.SKIPPED, "rights", text)


def _clock(step: ObservedStep, clock: ClockMetrics) -> Finding:
    offset_s, within_s = value_text(clock.offset_s, "s"), value_text(clock.within_s, "s")
    offset = f"API server clock offset {offset_s} ± {within_s}"
    doubts = [
        f"{one.disagree} of {one.stamps} timestamps of {one.stage} are wrong by up to {value_text(one.worst_s, 's')}"
        for one in clock.stamps
        if one.disagree
    ]
    if clock.jumps:
        doubts.append(f"the offset changed {clock.jumps} times")
    if doubts:
        text = f"{offset}; {'; '.join(doubts)}; no metric uses these timestamps"
        return Finding(step.name, "clock", Verdict.SKIPPED, "clock", text)
    stamps = sum(one.stamps for one in clock.stamps)
    return passed(step, "clock", f"{offset}; {stamps:,} server timestamps agree with the observed times")


def _audit(step: ObservedStep, audit: AuditMetrics) -> Finding:
    if audit.problem:
        return Finding(step.name, "audit log", Verdict.INVALID, "measurement", audit.problem)
    text = f"{audit.workloads:,} workloads from {audit.requests:,} requests, ± {value_text(audit.within_s, 's')}"
    if audit.watch_p50_s is not None and audit.watch_p99_s is not None:
        late = f"p50 {value_text(audit.watch_p50_s, 's')}, p99 {value_text(audit.watch_p99_s, 's')}"
        text += f"; the watch differs by {late}"
    return passed(step, "audit log", text)


def measured_charts(measured: MeasuredScale, limits: list[Limit]) -> list[AnyChart]:
    found: list[AnyChart] = [_health(measured.health)] if measured.health else []
    evictions, agreements = sorted(measured.evicted_by.items()), measured.clock.stamps if measured.clock else []
    stamps: list[list[Any]] = [[one.stage, one.stamps, one.disagree, one.worst_s] for one in agreements]
    limited: list[list[Any]] = [[one.what, one.text, "yes" if one.known else "unknown"] for one in limits]
    tables = [
        Table("Evictions by cause", ["by", "pods"], [[who, count] for who, count in evictions]),
        Table("Server timestamps and observed times", ["stage", "stamps", "disagree", "worst"], stamps, {"worst": "s"}),
        Table("Limits outside the cluster's capacity", ["what", "why", "known"], limited),
    ]
    return [*found, *(table for table in tables if table.rows)]


def _health(points: list[HealthPoint]) -> Series:
    """All on one time axis; columns without any value are left out."""
    verbs = sorted({verb for one in points for verb in one.latency_s})
    columns: dict[str, tuple[str, list[Any]]] = {
        "seconds": ("s", [one.from_s for one in points]),
        "offered": ("", [one.offered for one in points]),
        "acknowledged": ("", [one.acknowledged for one in points]),
        "refused": ("", [one.refused for one in points]),
        "create p99": ("s", [one.create_p99_s for one in points]),
        "watch lag": ("s", [one.lag_s for one in points]),
        "own loop lag": ("s", [one.loop_s for one in points]),
        "blind": ("", [int(one.blind) for one in points]),
        **{f"{verb} p99": ("s", [one.latency_s.get(verb) for one in points]) for verb in verbs},
        "rejected": ("", [one.rejected for one in points]),
        "in flight": ("", [one.in_flight for one in points]),
        "etcd": ("B", [one.etcd_bytes for one in points]),
        "scheduler queue": ("", [one.queue for one in points]),
    }
    known = {name: (unit, values) for name, (unit, values) in columns.items() if any(one is not None for one in values)}
    rows = [list(row) for row in zip(*(values for _, values in known.values()), strict=True)]
    units = {name: unit for name, (unit, _) in known.items() if unit}
    return Series("Load, watch and control plane over time", list(known), rows, units)


def limited_by(measured: MeasuredScale) -> str:
    """What most likely limited the trial; empty if nothing did."""
    points = measured.health or [HealthPoint(0.0)]
    refused = sum(one.refused for one in points)
    rejected = max(refused, sum(one.rejected or 0 for one in points))  # the server counts only overload
    behind = sum(one.offered - one.acknowledged for one in points)
    creates = [one.create_p99_s for one in points if one.create_p99_s] or [0.0]
    first_s, worst_s = value_text(creates[0], "s"), value_text(max(creates), "s")
    own_s, queue = max(one.loop_s or 0.0 for one in points), max(one.queue or 0 for one in points)
    idle = f"no binding for {value_text(measured.idle_s, 's')} while {count(measured.idle_pods, 'pod')}"
    limits = (
        (measured.outages, _unreachable(measured)),
        (measured.idle_s >= LEAST_IDLE_S, f"the scheduler: {idle} waited for it"),
        (rejected, f"the API server rejected requests ({refused} from this trial, {rejected} in total)"),
        (max(creates) > max(10 * creates[0], 0.1), f"slow creates: p99 {first_s} at first, {worst_s} at worst"),
        (own_s > 0.1, f"this machine: the watch process was up to {value_text(own_s, 's')} late"),
        (queue > 10, f"the scheduler: up to {queue} pods pending"),
        (behind > 0, f"{behind} workloads were never acknowledged"),
    )
    return "; ".join(text for is_limit, text in limits if is_limit)
