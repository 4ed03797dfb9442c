"""Checks the bounds of a load and whether the client was late, and returns metrics for the history."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from seatrial.checks.findings import check_limit, metric_data
from seatrial.job import Better, Finding, Verdict, count, value_text
from seatrial.kinds.serving.ended import DriverRecords, EndCause
from seatrial.kinds.serving.load_work import COUNTS, LATENCIES, LOAD, LoadBound, LoadNote, LoadSummary, LoadWork
from seatrial.kinds.serving.results import read_results

_HISTORY = ("p50", "p90", "p99")
_UNITS = {"rate": "/s", "tokens_per_s": "tokens/s"}


def check_result_file(path: Path, load: LoadWork) -> tuple[list[Finding], dict[str, Any], LoadNote]:
    """Findings and metrics of another load generator's results, by the bounds of the load. Raises SeatrialError."""
    tool, note = read_results(path, load)
    load = msgspec.structs.replace(load, peak=False, points=tuple(one.rate for one in note.stages))
    cause = EndCause(Verdict.INVALID, "results", f"{path} has no results")
    findings, metrics = check_load(load, DriverRecords(load=note), cause)
    return [Finding(LOAD, "source", Verdict.PASSED, message=f"measured by {tool}"), *findings], metrics, note


def check_load(load: LoadWork, records: DriverRecords, cause: EndCause) -> tuple[list[Finding], dict[str, Any]]:
    """Findings, and metrics unless the client was late: they would measure the client, not the server."""
    if records.load_problem:
        why = f"cannot read the load record: {records.load_problem}"
        return [Finding(LOAD, "measured", Verdict.INFRA, "lost", why)], {}
    if records.load is None:
        return [Finding(LOAD, "measured", cause.verdict, cause.class_, f"not measured: {cause.text}")], {}
    if load.peak or load.points:
        return _peak(load, records.load)
    summary = records.load.summary
    if summary is None or summary.cut:
        return [Finding(LOAD, "measured", cause.verdict, cause.class_, f"cut short: {cause.text}")], {}
    findings = [_measured(summary), _generator(load, summary)]
    late = findings[-1].verdict is Verdict.INVALID
    findings += _answers(load, summary)
    if records.route:
        median, p99 = value_text(records.overhead_s, "s"), value_text(records.overhead_p99_s, "s")
        text = f"{records.route}: adds at least {median} (p50), {p99} (p99), and more under load"
        data = {"adds_s": records.overhead_s, "adds_p99_s": records.overhead_p99_s}
        findings.append(Finding(LOAD, "way to the server", Verdict.PASSED, message=text, data=data))
    findings += [_too_near(bound, records) or _bound(bound, summary, late) for bound in load.bounds]
    return findings, {} if late else {LOAD: dict(_metrics(summary))}


def _measured(summary: LoadSummary) -> Finding:
    if summary.errors == summary.requests:
        text = f"all {summary.requests} requests failed: {summary.errors_text}"
        return Finding(LOAD, "measured", Verdict.FAILED, "error", text)
    left_out = {"during warm-up": summary.warmup, "with errors": sum(summary.error_kinds.values())}
    used = summary.requests - sum(left_out.values())
    out = ", ".join(f"{number} {why}" for why, number in left_out.items() if number)
    again = "; measured again because the client was killed" if summary.again else ""
    lengths = f"; prompt lengths in {summary.lengths}" if summary.lengths else ""
    text = (
        f"{summary.requests} requests, {value_text(summary.offered_rate)}/s offered, {value_text(summary.rate)}/s "
        f"answered, {value_text(summary.tokens_per_s)} tokens/s; latencies of {count(used, 'request')}"
        f"{f' (left out: {out})' if out else ''}{lengths}{again}"
    )
    return Finding(LOAD, "measured", Verdict.PASSED, message=text)


def _answers(load: LoadWork, summary: LoadSummary) -> list[Finding]:
    """Wrong answers fail as other errors do: if there are more than a bound allows."""
    found = summary.answers
    if found is None:
        return []
    if not found.checked:
        return [Finding(LOAD, "answers", Verdict.SKIPPED, message="not checked: the chosen requests have no answer")]
    text = f"{found.checked} of {count(summary.requests, 'answer')} checked, {found.compared} against recorded ones"
    if not found.wrong:
        return [Finding(LOAD, "answers", Verdict.PASSED, message=f"{text}: all correct")]
    lines = [f"case {name} ({number} wrong): {problem}" for name, (number, problem) in found.shown.items()]
    limits = [bound for bound in load.bounds if bound.metric in ("errors", "error_share")]
    allowed = limits and all(bound.met_by(bound.measured(summary) or 0.0) for bound in limits)
    verdict, class_ = (Verdict.PASSED, "") if allowed else (Verdict.FAILED, "wrong")
    first = lines[0].partition("\n")[0]
    return [Finding(LOAD, "answers", verdict, class_, f"{text}: {found.wrong} wrong; {first}", "\n".join(lines))]


def _generator(load: LoadWork, summary: LoadSummary) -> Finding:
    if "lag" not in summary.latencies:
        text = "not checked: this load generator does not report how late it started requests"
        return Finding(LOAD, "driver in time", Verdict.SKIPPED, message=text)
    found, limit = value_text(summary.lag_s, "s"), value_text(load.lag_s, "s")
    lag = f"the client started requests {found} late (p99, limit {limit})"
    if summary.lag_s <= load.lag_s:
        return Finding(LOAD, "driver in time", Verdict.PASSED, message=lag)
    text = f"{lag}, so this measures the client, not the server; lower the rate or free up the client's machine"
    return Finding(LOAD, "driver in time", Verdict.INVALID, "late", text)


def _too_near(bound: LoadBound, records: DriverRecords) -> Finding | None:
    """Finding for a bound that the route alone exceeds, whatever the server does."""
    if bound.metric not in ("ttft", "ttfo", "first_byte", "e2e") or bound.operator not in ("<=", "<"):
        return None
    of_few = bound.part == "max" or (bound.part.startswith("p") and float(bound.part[1:]) >= 99)
    overhead_s, part = (records.overhead_p99_s, "p99") if of_few else (records.overhead_s, "p50")
    if bound.value >= overhead_s:
        return None
    text = f"{records.route} alone adds {value_text(overhead_s, 's')} ({part}), more than the bound {bound.text}"
    return Finding(LOAD, f"bound {bound.name}", Verdict.INVALID, "way", f"{text}, so the bound cannot be checked")


def _bound(bound: LoadBound, summary: LoadSummary, late: bool) -> Finding:
    check = f"bound {bound.name}"
    if late:
        return Finding(LOAD, check, Verdict.SKIPPED, message="not checked: the client was late")
    value = bound.measured(summary)
    if value is None:
        text = f"{bound.name} not measured (bound {bound.text})"
        return Finding(LOAD, check, Verdict.FAILED, "absent", text)
    if bound.metric in ("goodput", "error_share"):
        shown = f"{value:.1%}"
    else:
        shown = value_text(value, "" if bound.metric in COUNTS else "s") + _UNITS.get(bound.metric, "")
    because = f" ({summary.errors_text})" if bound.metric in ("errors", "error_share") and summary.error_kinds else ""
    if bound.metric not in COUNTS:
        because = f" (n = {summary.latencies[bound.metric]['count']:,.0f})"
    data = {"value": value, "bound": bound.value}
    if bound.met_by(value):
        return Finding(LOAD, check, Verdict.PASSED, message=f"{shown}{because} (bound {bound.text})", data=data)
    text = f"{bound.name} is {shown}{because} (bound {bound.text})"
    return Finding(LOAD, check, Verdict.FAILED, "bounds", text, data=data)


def _metrics(summary: LoadSummary) -> Iterator[tuple[str, Any]]:
    for name in LATENCIES:
        found = summary.latencies.get(name, {})
        better: Better | None = None if name == "lag" else "lower"
        source = f"the client's clock, {int(found.get('count', 0))} values"
        yield name, {part: metric_data(found[part], "s", better, source) for part in _HISTORY if part in found}
    yield "rate", metric_data(summary.rate, "/s", "higher", "good answers, from the first to the last")
    yield "tokens_per_s", metric_data(summary.tokens_per_s, "tokens/s", "higher", "generated tokens of good answers")
    if summary.goodput is not None:
        yield "goodput", metric_data(summary.goodput, "", "higher", "share of requests within the bounds")
    yield "errors", metric_data(summary.errors, "", "lower", "requests without a good answer")


def _peak(load: LoadWork, note: LoadNote) -> tuple[list[Finding], dict[str, Any]]:
    summary = note.summary
    stages = msgspec.to_builtins(note.stages)
    peak = note.peak if summary else 0.0
    found = check_limit(LOAD, "peak", stages, peak, note.broke_at, note.doubt, load.unit, given=not load.peak)
    if summary is None or not note.peak:
        return [found], {}
    source = f"the highest rate that held; {note.broke_at:.4g}/s did not"
    is_found = load.peak and found.verdict is Verdict.PASSED
    metrics = {"peak": metric_data(note.peak, "/s", "higher", source)} if is_found else {}
    return [found, _measured(summary), *_answers(load, summary)], {LOAD: {**metrics, **dict(_metrics(summary))}}
