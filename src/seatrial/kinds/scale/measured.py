"""Findings and charts on the measurement itself: clocks, gaps, limits, and the control plane's health."""

from typing import Any

from seatrial.checks.findings import failed, passed
from seatrial.job import AnyChart, Finding, ObservedStep, Series, Table, Verdict, count, value_text
from seatrial.job.metric import FixedBound
from seatrial.kinds.scale import work

# Title, unit and columns of the charts over time.
_CHARTS = (
    ("Load, workloads", "", ("offered", "acknowledged", "refused")),
    ("Lag and latency of the client", "s", ("create p99", "watch lag", "own loop lag")),
    ("Latency of the API server", "s", tuple(f"{verb} p99" for verb in work.VERBS)),
    ("Requests of the API server", "", ("in flight", "rejected")),
    ("Scheduler queue, pods", "", ("pending",)),
    ("etcd", "B", ("size",)),
    ("Watch interrupted", "", ("blind",)),
)
LEAST_IDLE_S = 5.0  # of a scheduler that has work


def check_limits(step: ObservedStep, limits: list[work.Limit]) -> list[Finding]:
    """Limits outside the cluster's capacity. Informational: never changes the verdict."""
    if not limits:
        return [passed(step, "preflight", "preflight found no limit below the requested load")]
    return [Finding(step.name, f"preflight {one.what}", Verdict.SKIPPED, "preflight", one.text) for one in limits]


def check_measured(step: ObservedStep, measured: work.MeasuredScale) -> list[Finding]:
    found = [_followed(step, measured)]
    if measured.clock is not None:
        found.append(_clock(step, measured.clock))
    if measured.audit is not None:
        found.append(_audit(step, measured.audit))
    if measured.outages:
        found.append(Finding(step.name, "API server", Verdict.SKIPPED, "outage", _unreachable(measured)))
    limit = limited_by(measured)
    return [*found, passed(step, "limited by", limit)] if limit else found


def check_queries(step: ObservedStep, results: list[work.QueryResult], bounds: tuple[FixedBound, ...]) -> list[Finding]:
    """Whether each query to Prometheus gave numbers, and bounds on them. A bound that holds is not decided if a sample
    failed; NaN alone means that nothing was observed at that time."""
    found, known = [], {f"{one.name}.{part}": (one, value) for one in results for part, value in one.totals.items()}
    for one in results:
        text = ", ".join(f"{part} {value_text(value)}" for part, value in one.totals.items()) or "no number"
        verdict = Verdict.SKIPPED if one.samples else Verdict.INVALID
        message = f"{one.name}: {text}; {one.unusable or 'no sample'}"
        unusable = Finding(step.name, f"metric {one.name}", verdict, "metrics", message)
        complete = one.samples and not one.problems
        found.append(passed(step, f"metric {one.name}", f"{one.name}: {text}") if complete else unusable)
    for bound in bounds:
        check = f"bound {bound.name}"
        if bound.metric not in known:
            found.append(failed(step, check, "absent", f"{bound.name} was not measured"))
            continue
        one, value = known[bound.metric]
        message = f"{bound.name}: {value_text(value)} (expected {bound.expected})"
        if not bound.met_by(value):
            found.append(failed(step, check, "bounds", message))
        elif one.problems.keys() - {work.NOT_A_NUMBER}:
            found.append(Finding(step.name, check, Verdict.INVALID, "measurement", f"{message}; {one.unusable}"))
        else:
            found.append(passed(step, check, message))
    return found


def query_charts(results: list[work.QueryResult]) -> list[AnyChart]:
    rows = {one.name: [[at_s, value] for at_s, value in one.samples] for one in results}
    return [Series(name, ["seconds", name], one, {"seconds": "s"}) for name, one in rows.items() if one]


def _unreachable(measured: work.MeasuredScale) -> str:
    seconds = sum(until_s - from_s for from_s, until_s in measured.outages)
    return f"API server unreachable for {value_text(seconds, 's')}"


def _followed(step: ObservedStep, measured: work.MeasuredScale) -> Finding:
    text = f"followed {', '.join(measured.followed)}"
    if measured.gaps:
        text += f"; the watch had {measured.gaps} gaps, {value_text(measured.blind_s, 's')} in total"
    if not measured.left_out:
        return passed(step, "watch", text)
    text += f"; not followed (missing permission): {'; '.join(measured.left_out)}"
    return Finding(step.name, "watch", Verdict.SKIPPED, "rights", text)


def _clock(step: ObservedStep, clock: work.ClockMetrics) -> Finding:
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


def _audit(step: ObservedStep, audit: work.AuditMetrics) -> Finding:
    if audit.problem:
        return Finding(step.name, "audit log", Verdict.INVALID, "measurement", audit.problem)
    text = f"{audit.workloads:,} workloads from {audit.requests:,} requests, ± {value_text(audit.within_s, 's')}"
    if audit.watch_p50_s is not None and audit.watch_p99_s is not None:
        late = f"p50 {value_text(audit.watch_p50_s, 's')}, p99 {value_text(audit.watch_p99_s, 's')}"
        text += f"; the watch differs by {late}"
    return passed(step, "audit log", text)


def measured_charts(measured: work.MeasuredScale, limits: list[work.Limit]) -> list[AnyChart]:
    found, columns = list[AnyChart](), measured.health
    for title, unit, names in _CHARTS:  # with one time axis, each of one quantity
        known = {name: columns[name] for name in names if name in columns}
        rows = [list(row) for row in zip(columns.get("seconds", ()), *known.values(), strict=True)] if known else []
        units = {"seconds": "s", **dict.fromkeys(known, unit)}
        found += [Series(title, ["seconds", *known], rows, units, first=True)] if rows else []
    evictions, agreements = sorted(measured.evicted_by.items()), measured.clock.stamps if measured.clock else []
    stamps: list[list[Any]] = [[one.stage, one.stamps, one.disagree, one.worst_s] for one in agreements]
    limited: list[list[Any]] = [[one.what, one.text, "yes" if one.known else "unknown"] for one in limits]
    tables = [
        Table("Evictions by cause", ["by", "pods"], [[who, count] for who, count in evictions]),
        Table("Server timestamps and observed times", ["stage", "stamps", "disagree", "worst"], stamps, {"worst": "s"}),
        Table("Limits outside the cluster's capacity", ["what", "why", "known"], limited),
    ]
    return [*found, *(table for table in tables if table.rows)]


def limited_by(measured: work.MeasuredScale) -> str:
    """What most likely limited the trial; empty if nothing did."""
    known = {name: [one for one in values if one] for name, values in measured.health.items()}
    refused, rejected = (int(sum(known.get(name, ()))) for name in ("refused", "rejected"))
    rejected = max(refused, rejected)  # the server counts only overload
    behind = int(sum(known.get("offered", ())) - sum(known.get("acknowledged", ())))
    creates = known.get("create p99") or [0.0]
    first_s, worst_s = value_text(creates[0], "s"), value_text(max(creates), "s")
    own_s, queue = (max(known.get(name, ()), default=0.0) for name in ("own loop lag", "pending"))
    idle = f"no binding for {value_text(measured.idle_s, 's')} while {count(measured.idle_pods, 'pod')}"
    limits = (
        (measured.outages, _unreachable(measured)),
        (measured.idle_s >= LEAST_IDLE_S, f"the scheduler: {idle} waited for it"),
        (rejected, f"the API server rejected requests ({refused} from this trial, {rejected} in total)"),
        (max(creates) > max(10 * creates[0], 0.1), f"slow creates: p99 {first_s} at first, {worst_s} at worst"),
        (own_s > 0.1, f"this machine: the watch process was up to {value_text(own_s, 's')} late"),
        (queue > 10, f"the scheduler: up to {queue:g} pods pending"),
        (behind > 0, f"{behind} workloads were never acknowledged"),
    )
    return "; ".join(text for is_limit, text in limits if is_limit)
