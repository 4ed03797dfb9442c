"""Charts of a serving trial: its cases, the first difference of each wrong answer, and the load over time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from seatrial.job import (
    IN_SHORT,
    AnyChart,
    Distribution,
    Finding,
    Series,
    Table,
    Tile,
    TokenDiff,
    TokenDifference,
    Verdict,
    convert,
    count,
    value_text,
    worst,
)
from seatrial.kinds.serving.answers.findings import ANSWERS
from seatrial.kinds.serving.load_work import LATENCIES, LOAD, LoadBound, LoadStage, LoadSummary

CASE = "case "
MOST_DIFFERENCES = 50
_QUANTILES = ("p50", "p90", "p95", "p99", "mean", "max", "count")
_TURNS = ("turn", "requests", "p50", "p99")
_TITLES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "End to end", "tokens_per_s": "Throughput", "goodput": "Goodput"}
_SERIES = ("at_s", "requests", "errors", "p50", "max")


def charts_of(
    findings: Sequence[Finding], load: LoadSummary | None, stages: Sequence[LoadStage], bounds: Sequence[LoadBound]
) -> list[AnyChart]:
    cases = _cases(findings)
    found: list[AnyChart] = [*([cases] if cases.rows else []), *_differences(findings)]
    if load is not None:
        found += _tiles(load, bounds, {one.check: one.verdict for one in findings if one.step == LOAD})
    if stages:
        by_rate, knee = sorted(stages, key=lambda one: one.rate), _knee(stages)
        found += [_sweep(by_rate, knee, bounds), _stages(by_rate, knee)]
    if load is not None:
        found += [one for one in (_latencies(load), _turns(load), _over_time(load)) if one.rows]
    return found


def _tiles(load: LoadSummary, bounds: Sequence[LoadBound], verdicts: dict[str, Verdict]) -> Iterator[Tile]:
    """Time to first token, time per token, throughput and goodput, then every other metric with a bound."""
    by_metric = {bound.metric: bound for bound in reversed(bounds)}
    first = "ttft" if load.latencies.get("ttft") else "e2e"
    for name in dict.fromkeys((first, "tpot", "tokens_per_s", "goodput", *by_metric)):
        bound, found = by_metric.get(name), load.latencies.get(name, {})
        part = (bound.part if bound else "p99") if name in LATENCIES else ""
        value = found.get(part) if part else getattr(load, name)
        unit = "s" if part else {"tokens_per_s": "tokens/s", "rate": "/s", "errors": ""}.get(name, "%")
        factor = 100 if unit == "%" else 1
        note = f"{count(load.errors, 'error')} · n {load.requests:,}"
        if part and "p50" in found:
            note = f"p50 {value_text(found['p50'], 's')} · n {found.get('count', 0):,.0f}"
        elif name == "tokens_per_s":
            note = f"{value_text(load.rate)}/s answered of {value_text(load.offered_rate)}/s offered"
        tile = Tile(f"{_TITLES.get(name, name)} {part}".strip(), value and value * factor, unit, note=note)
        if bound is not None:
            held = Verdict.PASSED if value is not None and bound.met_by(value) else Verdict.FAILED
            verdict = verdicts.get(f"bound {bound.name}", held)  # a sweep has one finding for all of its loads
            yield msgspec.structs.replace(tile, bound=bound.expected, limit=bound.value * factor, verdict=verdict)
        elif value is not None:
            yield tile


def in_short(findings: Sequence[Finding], load: LoadSummary | None) -> list[Finding]:
    """Summary of a good cell: how its answers compare, and how fast they came."""
    if not all(one.verdict.good for one in findings):
        return []
    agreements = Counter(str(row[2]).replace("_", " ") for row in _cases(findings).rows)
    counts = ", ".join(f"{number} {agreement}" for agreement, number in agreements.most_common())
    parts = [f"{count(agreements.total(), 'case')}: {counts}"] if agreements else []
    if load is not None:
        parts.append(f"{count(load.requests, 'request')} at {value_text(load.rate)}/s")
        name = next((one for one in ("ttft", "e2e") if load.latencies.get(one)), "")
        quantiles = load.latencies.get(name, {})
        parts += [f"{name} {one} {value_text(quantiles[one], 's')}" for one in ("p50", "p99") if one in quantiles]
        parts += [f"n = {quantiles['count']:,.0f}"] if "count" in quantiles else []
    return [Finding(ANSWERS, IN_SHORT, Verdict.PASSED, message="; ".join(parts))] if parts else []


def _cases(findings: Sequence[Finding]) -> Table:
    """The worst finding of each case, over all ways of asking it. A report joins the tables of several configurations
    into cases by configurations."""
    by_case: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.step.startswith(CASE):
            by_case.setdefault(finding.step.removeprefix(CASE), []).append(finding)
    rows: list[list[Any]] = []
    for name, ones in by_case.items():
        verdict = worst(one.verdict for one in ones)
        worst_ones = [one for one in ones if one.verdict is verdict]
        first = worst_ones[0]
        if verdict is Verdict.PASSED:  # exact answers have no data; prefer one that has
            first = next((one for one in worst_ones if one.data), first)
        agreement = first.data.get("agreement") or first.class_ or "exact"
        rows.append([name, verdict.value, agreement, len(ones), first.message])
    return Table("Cases", ["case", "verdict", "agreement", "ways", "message"], rows)


def _differences(findings: Sequence[Finding]) -> Iterator[TokenDiff]:
    """Both sides with their most likely tokens where an answer is wrong or differs at a near tie."""
    placed = [one for one in findings if one.step.startswith(CASE) and one.data.get("position") is not None]
    placed.sort(key=lambda one: (one.verdict is Verdict.PASSED, -(one.data.get("size") or 0)))
    for finding in placed[:MOST_DIFFERENCES]:
        title = f"{finding.step.removeprefix(CASE)} ({finding.check})"
        yield TokenDiff(title, convert(finding.data, TokenDifference))


def _latencies(load: LoadSummary) -> Distribution:
    known = [(name, load.latencies[name]) for name in LATENCIES if name in load.latencies]
    rows = [[name, *map(quantiles.get, _QUANTILES)] for name, quantiles in known]
    units = dict.fromkeys(_QUANTILES[:-1], "s")
    return Distribution("Load latencies", ["metric", *_QUANTILES], rows, units, first=True)


def _sweep(stages: Sequence[LoadStage], knee: LoadStage | None, bounds: Sequence[LoadBound]) -> Series:
    """Latency against throughput, in the order of the offered rates, with the knee as a point of its own."""
    name = "ttft" if any(stage.summary.latencies.get("ttft") for stage in stages) else "e2e"
    columns = [f"{name} p50", f"{name} p99"]
    rows: list[list[Any]] = []
    for stage in stages:
        values = [stage.summary.latencies.get(name, {}).get(part) for part in ("p50", "p99")]
        at_knee = [values[0] if stage is knee else None] if knee else []
        rows.append([stage.summary.rate, *values, *at_knee])
    limits = {f"{one.metric} {one.part}": one.value for one in bounds if f"{one.metric} {one.part}" in columns}
    columns += ["knee"] if knee else []
    units = {"answered": "/s", **dict.fromkeys(columns, "s")}
    return Series("Latency against throughput", ["answered", *columns], rows, units, limits, True)


def _knee(stages: Sequence[LoadStage]) -> LoadStage | None:
    """Beyond it, latency grows faster than throughput. None if nothing was measured."""
    medians = [(one, one.summary.latencies.get("e2e", {}).get("p50")) for one in stages]
    known = [(one.summary.rate / median, one) for one, median in medians if median]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _stages(stages: Sequence[LoadStage], knee: LoadStage | None) -> Table:
    """Latency against throughput, in the order of the rates."""
    parts = [(name, part) for name in ("ttft", "tpot", "e2e") for part in ("p50", "p99")]
    rows: list[list[Any]] = []
    for stage in stages:
        load = stage.summary
        values = [load.latencies.get(name, {}).get(part) for name, part in parts]
        result = (stage.doubt or "; ".join(stage.broken) or "holds") + ("; knee" if stage is knee else "")
        counts = [load.rate, load.tokens_per_s, load.most_in_flight, load.requests, load.errors, load.goodput]
        rows.append([stage.rate, *counts, *values, result])
    names = [f"{name} {part}" for name, part in parts]
    columns = ["offered", "answered", "tokens", "most in flight", "requests", "errors", "goodput", *names, "result"]
    units = {"answered": "/s", "tokens": "/s", **dict.fromkeys(names, "s")}
    return Table("Load by rate", columns, rows, units)


def _turns(load: LoadSummary) -> Table:
    rows = [[row.get(name) for name in _TURNS] for row in load.turns]
    return Table("Time to first token by turn of conversations", list(_TURNS), rows, {"p50": "s", "p99": "s"})


def _over_time(load: LoadSummary) -> Series:
    rows = [[row.get(name) for name in _SERIES] for row in load.series]
    units = {"time": "s", "p50": "s", "max": "s"}
    title = "Load over time: latency to the first token, or to the end, by scheduled start"
    return Series(title, ["time", *_SERIES[1:]], rows, units, first=True)
