"""Findings of a scale trial: whether the measurement is valid, and whether its bounds hold.

Each bound is decided with the error of its own source: late sends and the lag of the watch make a time uncertain, and
only a bound within that uncertainty is `invalid`. A kill that broke the open loop makes all times `invalid`."""

from typing import Any, TypeVar

import msgspec

from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first
from seatrial.checks.findings import MetricData, check_limit, failed, metric_data, passed
from seatrial.job import (
    IN_SHORT,
    AnyChart,
    Distribution,
    Exit,
    Finding,
    ObservedStep,
    Series,
    Table,
    Tile,
    Unreadable,
    Verdict,
    convert,
    count,
    value_text,
)
from seatrial.job.metric import FixedBound
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.scale import work
from seatrial.kinds.scale.measured import check_limits, check_measured, check_queries, measured_charts, query_charts
from seatrial.kinds.scale.work import FoundLimit, ScaleSummary, StageMetrics, StageQuantile

# Errors up to this, or up to this share of the time, do not spoil comparisons with earlier runs.
SMALL_ERROR_S, SMALL_ERROR = 0.05, 0.1
_LAST_STAGES = 2  # on the first screen, where no stage has a bound
PROMISED_RATE = 20  # changes per second up to which Kubernetes' service level objectives apply

_T = TypeVar("_T")


_Metrics = dict[str, int | MetricData | dict[str, MetricData] | dict[str, float]]


def check_scale(step: ObservedStep, ended: Exit, bounds: tuple[FixedBound, ...], slo: str = "") -> Judgement:
    """Findings, metrics and charts of a trial. A bound on a metric that was not measured fails."""

    def noted(name: str, form: type[_T]) -> list[_T]:
        return [convert(note, form) for note in _notes(step, name)]

    bad = ended_badly(step, "driver", ended)
    findings = [bad] if bad else []
    if step.code and bad is None:
        lines = [line.strip() for line in step.output.splitlines() if line.strip()]
        message = lines[-1] if lines else f"the load generator exited {step.code} without output"
        said = {str(note.get("note")) for note in step.notes}
        why = (Verdict.INVALID, "refused") if "refused" in said else (Verdict.FAILED, "exit")
        why = (Verdict.INFRA, "infra") if "unusable" in said else why
        findings.append(Finding(step.name, "driver", *why, message, most_relevant_first(step.output)))
    try:
        wholes, stages = noted("whole", ScaleSummary), {one.name: one for one in noted("stage", StageMetrics)}
        limit = next(iter(noted("limit", FoundLimit)), None)
        measured, queries = noted("measured", work.MeasuredScale), noted("query", work.QueryResult)
        preflights = [convert(note.get("limits", []), list[work.Limit]) for note in _notes(step, "preflight")]
    except Unreadable as error:
        findings.append(Finding(step.name, "records", Verdict.INFRA, "infra", f"cannot read the records: {error}"))
        return Judgement(findings)
    if not wholes:
        if not findings:
            findings.append(Finding(step.name, "records", Verdict.INFRA, "infra", "no totals were reported"))
        return Judgement(findings)
    whole = wholes[0]
    of_queries = tuple(bound for bound in bounds if "." in bound.metric and not bound.part)
    bounds = tuple(bound for bound in bounds if bound not in of_queries)
    trust = _trust(step, whole, stages, bounds)
    findings.append(trust)
    if limit is not None:
        tries = [msgspec.to_builtins(one) for one in limit.tries]
        findings.append(check_limit(step.name, "limit", tries, limit.low, limit.high, limit.doubt))
        short = findings[-1].message
    else:
        trusted = trust.verdict is Verdict.PASSED
        findings += [_bound(step, bound, whole, stages, trusted) for bound in bounds]
        short = _in_short(whole, stages, bounds)
    if whole.not_deleted:
        message = f"{whole.not_deleted} of {whole.deleted + whole.not_deleted} workloads could not be deleted"
        findings.append(failed(step, "churn", "refused", message, "; ".join(whole.problems)))
    elif whole.deleted:
        findings.append(passed(step, "churn", f"{whole.deleted} workloads deleted and replaced"))
    if whole.fill_ended:
        text = (
            f"{count(whole.fill_ended, 'fill workload')} ended before the measurement did, so the cluster was not full"
        )
        findings.append(failed(step, "fill", "ended", f"{text}; use workloads that run longer"))
    if slo:
        findings.append(_promise(step, whole))
    lag = f"watch lag p99 {value_text(whole.lag_p99_s, 's')}"
    findings += [passed(step, IN_SHORT, f"{short}; {lag}"), _clean(step)]
    findings += check_queries(step, queries, of_queries)
    charts = _tiles(whole, stages, bounds, {one.check: one.verdict for one in findings}, limit)
    charts += [*_charts(whole, work.shown_stages(stages.values(), bounds), limit), *query_charts(queries)]
    limits = preflights[-1] if preflights else []
    if preflights:
        findings += check_limits(step, limits)
    if measured:
        findings += check_measured(step, measured[0])
        charts += measured_charts(measured[0], limits)
    named = {bound.metric for bound in bounds}
    kept = {name: one for name, one in stages.items() if ".." not in name or name in named}
    metrics = _metrics(whole, kept, limit)
    return Judgement(findings, metrics | {one.name: one.totals for one in queries if one.samples}, charts)


def _notes(step: ObservedStep, name: str) -> list[Any]:
    return [note for note in step.notes if note.get("note") == name]


def _in_short(whole: ScaleSummary, stages: dict[str, StageMetrics], bounds: tuple[FixedBound, ...]) -> str:
    """One line with the stages that have bounds, else the last stage."""
    rate = "" if whole.rate is None or whole.offered_rate is None else f" at {value_text(whole.rate)}/s"
    parts = [f"{whole.submitted:,} of {whole.count:,} workloads created{rate}"]
    parts += [f"{whole.unfinished:,} unfinished"] if whole.unfinished else []
    judged = [one.metric for one in bounds if one.metric in stages] or list(stages)[-1:]
    for stage in (stages[name] for name in dict.fromkeys(judged)):
        quantiles = [f"{one.name} {one.text}" for one in stage.quantiles if one.name in ("p50", "p99")]
        some = "" if stage.reached == whole.submitted else f" (n {stage.reached:,})"
        parts.append(f"{stage.name} {', '.join(quantiles)}{some}")
    return "; ".join(parts)


def _promise(step: ObservedStep, whole: ScaleSummary) -> Finding:
    """Kubernetes' objectives apply only to clusters with few changes; they are checked in any case."""
    rate, text = whole.offered_rate or 0.0, f" (Kubernetes objectives apply up to {PROMISED_RATE})"
    if rate > PROMISED_RATE:
        text = f", above the {PROMISED_RATE} that Kubernetes objectives cover; checked anyway"
    return passed(step, "slo", f"{rate:.4g} changes per second{text}")


def _trust(
    step: ObservedStep, whole: ScaleSummary, stages: dict[str, StageMetrics], bounds: tuple[FixedBound, ...]
) -> Finding:
    """Whether the cluster was measured, and not the load generator. Bounds on times are decided one by one; without
    any, the error must be small beside the last stage, because the history compares its times."""
    lag = f"watch lag p50 {value_text(whole.lag_p50_s, 's')}, p99 {value_text(whole.lag_p99_s, 's')}"
    measured = f"{lag}; send delay p99 {value_text(whole.late_p99_s, 's')}"
    doubts = work.doubts_of(whole)
    message = f"{'; '.join(doubts)} ({measured}); run it again" if doubts else ""
    if not message and stages and not any(bound.part for bound in bounds):
        last = list(stages.values())[-1]
        time_s = max((one.value or 0.0 for one in last.quantiles), default=0.0)
        worst = max(last.quantiles, key=lambda one: sum(work.errors_s(whole, last, one)), default=None)
        if sum(work.errors_s(whole, last, worst)) > max(SMALL_ERROR_S, SMALL_ERROR * time_s):
            message = f"times to {last.name} are not exact: {_inexact(whole, last, worst)}"
    if message:
        return Finding(step.name, "measurement", Verdict.INVALID, "measurement", message)
    return passed(step, "measurement", measured)


def _inexact(whole: ScaleSummary, stage: StageMetrics, found: StageQuantile | None = None) -> str:
    """How large the error is, why, and what to do."""
    if stage.source == "watch" and not whole.lags:
        return "no watch lag was measured; run it again"
    late_s, own_s = work.errors_s(whole, stage, found)
    causes = {"send delay p99": late_s, "watch lag" if stage.source == "watch" else "audit log": own_s}
    why = ", ".join(f"{cause} {value_text(late_s, 's')}" for cause, late_s in causes.items() if late_s)
    text = f"error ± {value_text(late_s + own_s, 's')}" + (f" ({why})" if why else "")
    if found is not None and found.earliest is not None:
        some = f"{stage.censored} of {stage.count} times are inexact because the watch was interrupted"
        text += f"; {some}, so it may be as low as {value_text(found.earliest, 's')}"
    if whole.unreachable_s:
        return f"{text}; API server unreachable for {value_text(whole.unreachable_s, 's')}; run it again"
    return f"{text}; lower the rate, or give the load generator more CPU"


def _bound(
    step: ObservedStep, bound: FixedBound, whole: ScaleSummary, stages: dict[str, StageMetrics], trusted: bool
) -> Finding:
    check = f"bound {bound.name}"
    if not bound.part:
        have = getattr(whole, bound.metric)
        if have is None:
            return failed(step, check, "absent", f"{bound.name} was not measured")
        units = {"rate": "/s", "refused": " error responses"}
        text = f"{have:g}{units.get(bound.metric, f' of {whole.count} workloads')}"
        why = _waiting(whole) if bound.metric == "unfinished" else ""
        return _checked(step, check, bound, float(have), text, why, "; ".join(whole.problems))
    stage = stages.get(bound.metric)
    found = next((one for one in stage.quantiles if one.name == bound.part), None) if stage else None
    if stage is None or found is None:
        return failed(step, check, "absent", f"{bound.name}: no workload reached that stage{_waiting(whole)}")
    missing = f"{stage.unfinished} unfinished, {stage.censored} with inexact time, {stage.failed} failed"
    counts = f"{stage.reached} of {stage.count} workloads, {missing}, by {stage.source}"
    if found.value is None:
        return failed(step, check, "unfinished", f"{bound.name} is {found.text} ({counts}){_waiting(whole)}")
    lower = value_text(found.lower, "s")
    interval = f"above {lower}" if found.upper is None else f"between {lower} and {value_text(found.upper, 's')}"
    detail = f", 95 % {interval} ({counts})"
    if not trusted:
        return Finding(step.name, check, Verdict.SKIPPED, message=f"recorded, not checked: {found.text}{detail}")
    if work.is_undecided(bound, found, sum(work.errors_s(whole, stage, found))):
        why = _inexact(whole, stage, found)
        message = f"{bound.name}: {found.text} (expected {bound.expected}) is too close to call: {why}"
        return Finding(step.name, check, Verdict.INVALID, "measurement", message)
    return _checked(step, check, bound, found.value, found.text, detail)


def _waiting(whole: ScaleSummary) -> str:
    """Why unfinished workloads wait, the most frequent reason first."""
    return "".join(
        f"; {number} of {whole.unfinished} unfinished workloads: {why}" for why, number in whole.waiting.items()
    )


def _checked(
    step: ObservedStep, check: str, bound: FixedBound, value: float, text: str, detail: str = "", evidence: str = ""
) -> Finding:
    message = f"{bound.name}: {text} (expected {bound.expected}){detail}"
    return passed(step, check, message) if bound.met_by(value) else failed(step, check, "bounds", message, evidence)


def _clean(step: ObservedStep) -> Finding:
    note = next(iter(_notes(step, "clean")), None)
    if note is None or note.get("left"):
        why = "the clean-up did not run" if note is None else str(note.get("problem") or "some still exist")
        message = f"workloads were not all deleted: {why}; run `seatrial reap` to try again"
        return Finding(step.name, "clean-up", Verdict.INFRA, "infra", message)
    return passed(step, "clean-up", f"all objects of the trial deleted in {float(note.get('seconds', 0.0)):.1f} s")


def _metrics(whole: ScaleSummary, stages: dict[str, StageMetrics], limit: FoundLimit | None) -> _Metrics:
    """Metrics for the history and baselines. Unknown quantiles are left out."""
    made: _Metrics = {name: getattr(whole, name) for name in ("failed", "unfinished", "refused")}
    if whole.rate is not None:
        made["rate"] = metric_data(whole.rate, "1/s", "higher")
    for stage in stages.values():
        known = {one.name: one.value for one in stage.quantiles if one.value is not None}
        made[stage.name] = {name: metric_data(value, "s", "lower") for name, value in known.items()}
    if limit is not None and limit.low and limit.high and not limit.doubt:
        made["limit"] = metric_data(limit.low, "1/s", "higher")
    return made


def _tiles(
    whole: ScaleSummary,
    stages: dict[str, StageMetrics],
    bounds: tuple[FixedBound, ...],
    verdicts: dict[str, Verdict],
    limit: FoundLimit | None,
) -> list[AnyChart]:
    """Rates, every metric with a bound, p50 and p99 of its stage, and how late workloads were sent and seen."""
    bounded = {bound.name: bound for bound in bounds}

    def tile(made: Tile, name: str) -> Tile:
        if (bound := bounded.get(name)) is None:
            return made
        verdict = verdicts.get(f"bound {name}")
        return msgspec.structs.replace(made, bound=bound.expected, limit=bound.value, verdict=verdict)

    offered = Tile("offered", whole.offered_rate, "/s", note="at once" if whole.offered_rate is None else "")
    watch = f"watch {value_text(whole.lag_p99_s, 's')} late"
    late = Tile("sent late, p99", whole.late_p99_s, "s", note=watch)
    tiles: list[AnyChart] = [offered, late]
    if whole.offered_rate is not None or "rate" in bounded:
        tiles.insert(1, tile(Tile("achieved", whole.rate, "/s"), "rate"))
    if limit is not None:
        tiles.append(Tile("limit", limit.low, "/s", note=f"broke at {limit.high:.4g}/s" if limit.high else ""))
    counts = [bound.name for bound in bounds if not bound.part and bound.metric != "rate"]
    tiles += [tile(Tile(name, getattr(whole, name)), name) for name in counts]
    plain = [one.name for one in stages.values() if not one.of and ".." not in one.stage]
    judged = dict.fromkeys(bound.metric for bound in bounds if bound.metric in stages)
    for name in judged or plain[-_LAST_STAGES:]:
        stage = stages[name]
        few = "" if stage.reached == stage.count else f"reached by {stage.reached:,} of {stage.count:,}"
        kept = [one for one in stage.quantiles if one.name in ("p50", "p99") or f"{name}.{one.name}" in bounded]
        tiles += [
            tile(Tile(one.name, one.value, "s", name, note=few if one is kept[0] else ""), f"{name}.{one.name}")
            for one in kept
        ]
    return tiles


def _charts(whole: ScaleSummary, every: list[StageMetrics], limit: FoundLimit | None) -> list[AnyChart]:
    """Quantiles and curves of each stage, how they were measured, and the rates of a search."""
    found: list[AnyChart] = []
    rows: list[list[Any]]
    if limit is not None:
        rows = [[one.rate, one.sent, "; ".join(one.broken) or "holds", one.doubt] for one in limit.tries]
        units = {"rate": "1/s", "sent": "1/s"}
        found.append(Table("Rates tried", ["rate", "sent", "bounds", "not checked"], rows, units, first=True))
    if not every:
        return found
    names = [one.name for one in every[0].quantiles]
    stages, deltas = ([one for one in every if (".." in one.stage) is between] for between in (False, True))
    counts = ["count", "reached", "unfinished", "censored", "failed", "source", "resolution_s"]
    columns = ["stage", *names, *counts[:-1], "resolution"]
    units = dict.fromkeys([*names, "resolution"], "s")
    for title, some in (("Time from scheduled send to each stage", stages), ("Time between stages", deltas)):
        rows = [
            [one.name, *(quantile.value for quantile in one.quantiles), *(getattr(one, name) for name in counts)]
            for one in some
        ]
        found += [Distribution(title, columns, rows, units)] if rows else []
    for stage in stages:
        title = f"Share of workloads by time to {stage.name.replace('_', ' ')}"
        rows = list(map(list, stage.curve))
        found.append(Series(title, ["seconds", "share"], rows, {"seconds": "s"}, first=not stage.of))
    measured: list[list[Any]] = [
        ["offered rate", whole.offered_rate, "1/s"],
        ["rate sent", whole.rate, "1/s"],
        ["send delay, p99", whole.late_p99_s, "s"],
        ["watch lag, p50", whole.lag_p50_s, "s"],
        ["watch lag, p99", whole.lag_p99_s, "s"],
        ["error responses", whole.refused, ""],
        ["total wait before retries", whole.waited_s, "s"],
        *([f"{name} workloads created", number, ""] for name, number in whole.mix.items() if len(whole.mix) > 1),
    ]
    found.append(Table("How it was measured", ["what", "value", "unit"], measured))
    # A quantile without a value is above its lower bound.
    columns = ["stage", "quantile", "value", "lower", "upper"]
    known = [(stage.name, one) for stage in (*stages, *deltas) for one in stage.quantiles]
    rows = [[name, one.name, one.value, one.lower, one.upper] for name, one in known]
    return [*found, Table("Quantiles with 95 % intervals", columns, rows, dict.fromkeys(columns[2:], "s"))]
