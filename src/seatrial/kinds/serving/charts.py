"""What a serving trial wants shown: its cases, the first difference of each wrong answer, and the load over time."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from seatrial.job import (
    IN_SHORT,
    CellResult,
    Exhibit,
    Finding,
    RunResults,
    Unreadable,
    Verdict,
    count,
    figure_text,
    worst,
)
from seatrial.kinds.serving.answers.findings import ANSWERS
from seatrial.kinds.serving.load import summary_of
from seatrial.kinds.serving.work import LATENCIES, LoadSummary
from seatrial.report.view.grid import axis_values, by_trial
from seatrial.report.view.words import one_line

CASE = "case "
MOST_DIFFERENCES = 50
_QUANTILES = ("p50", "p90", "p95", "p99", "mean", "max", "count")
_SERIES = ("at_s", "requests", "errors", "p50", "max")


def exhibits_of(findings: Sequence[Finding], note: dict[str, Any] | None) -> list[Exhibit]:
    """`note`: the driver's, of the load."""
    found = [_cases(findings), *_differences(findings)]
    if (load := _load(note)) is not None:
        found += [_latencies(load), _over_time(load)]
    return [one for one in found if one.rows or one.data]


def in_short(findings: Sequence[Finding], note: dict[str, Any] | None) -> list[Finding]:
    """Of a cell in which nothing is wrong: how its answers compare, and how fast they came."""
    if not all(one.verdict.good for one in findings):
        return []
    agreements = Counter(str(row[2]).replace("_", " ") for row in _cases(findings).rows)
    counts = ", ".join(f"{number} {agreement}" for agreement, number in agreements.most_common())
    told = [f"{count(agreements.total(), 'case')}: {counts}"] if agreements else []
    if (load := _load(note)) is not None:
        told.append(f"{count(load.requests, 'request')} at {figure_text(load.rate)}/s")
        name = next((one for one in ("ttft", "e2e") if load.latencies.get(one)), "")
        quantiles = load.latencies.get(name, {})
        told += [f"{name} {one} {figure_text(quantiles[one], 's')}" for one in ("p50", "p99") if one in quantiles]
    return [Finding(ANSWERS, IN_SHORT, Verdict.PASSED, message="; ".join(told))] if told else []


def _load(note: dict[str, Any] | None) -> LoadSummary | None:
    with contextlib.suppress(Unreadable):  # which the findings say
        return summary_of(note) if note is not None else None
    return None


def _cases(findings: Sequence[Finding]) -> Exhibit:
    """The worst that was found of each case, over all ways of asking it. Of one such table for each configuration a
    report makes cases by configurations."""
    by_case: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.step.startswith(CASE):
            by_case.setdefault(finding.step.removeprefix(CASE), []).append(finding)
    rows: list[list[Any]] = []
    for name, ones in by_case.items():
        verdict = worst(one.verdict for one in ones)
        worst_ones = [one for one in ones if one.verdict is verdict]
        first = worst_ones[0]
        if verdict is Verdict.PASSED:  # what is exact has no data, and says the least
            first = next((one for one in worst_ones if one.data), first)
        agreement = first.data.get("agreement") or first.class_ or "exact"
        rows.append([name, verdict.value, agreement, len(ones), first.message])
    return Exhibit("table", "Cases", ["case", "verdict", "agreement", "ways", "message"], rows)


def _differences(findings: Sequence[Finding]) -> Iterator[Exhibit]:
    """Both sides with their likeliest tokens where an answer went wrong, or another way at a near tie."""
    shown = 0
    for finding in sorted(findings, key=lambda one: one.verdict is Verdict.PASSED):
        if finding.step.startswith(CASE) and finding.data.get("position") is not None and shown < MOST_DIFFERENCES:
            shown += 1
            title = f"{finding.step.removeprefix(CASE)} ({finding.check})"
            yield Exhibit("token-diff", title, data=finding.data)


def _latencies(load: LoadSummary) -> Exhibit:
    rows = [
        [name, *(load.latencies[name].get(quantile) for quantile in _QUANTILES)]
        for name in LATENCIES
        if name in load.latencies
    ]
    units = dict.fromkeys(_QUANTILES[:-1], "s")
    return Exhibit("distribution", "Latencies of the load", ["figure", *_QUANTILES], rows, units)


def _over_time(load: LoadSummary) -> Exhibit:
    rows = [[row.get(name) for name in _SERIES] for row in load.series]
    units = {"time": "s", "p50": "s", "max": "s"}
    title = "The load over time: until the first token, or the end, by when requests were to begin"
    return Exhibit("series", title, ["time", *_SERIES[1:]], rows, units)


# Cases by configurations: how the answers to each case of a trial compare, in each of its cells.
#
# Made of the tables of cases that the cells have as exhibits. They come from a run folder and may hold anything.


CASE_ROWS = 200
MOST_COLUMNS = 30
COLUMNS = ["case", "verdict", "agreement"]  # with which a table of cases begins
RUNGS = {
    "exact": "as expected",
    "near tie": "another token where both were about as likely",
    "drift": "log-probabilities moved too far",
    "diverged": "another text",
    "structure": "counts, stop reason, tokens or messages of a stream are wrong",
    "error": "an error that is not expected, or none where one is",
    "counts only": "counts and stop reason are checked, the text is not",
    "answered": "not compared",
    "not asked": "for the reason given",
}
_NOT_ASKED = "not asked"
_VERDICTS = {one.value: one for one in Verdict}


class CaseField(msgspec.Struct, frozen=True):
    verdict: Verdict
    rung: str
    message: str = ""


class CaseRow(msgspec.Struct, frozen=True):
    case: str
    fields: tuple[CaseField | None, ...]  # None: the configuration has no such case

    @property
    def wrong(self) -> bool:
        return any(field is not None and not field.verdict.good for field in self.fields)

    @property
    def exact(self) -> bool:
        return all(field is None or field.rung == "exact" for field in self.fields)


class CaseMatrix(msgspec.Struct, frozen=True):
    """`rows` are at most MOST_ROWS, those in which something is wrong first, then those that are not exact."""

    trial: str
    columns: tuple[tuple[str, CellResult], ...]  # at most MOST_COLUMNS
    rows: tuple[CaseRow, ...]
    cases: int
    configurations: int
    wrong: int  # cases
    rungs: dict[str, int]  # fields of each, of those that are left out, too


def case_matrices(results: RunResults) -> list[CaseMatrix]:
    """Of each trial that has cases."""
    return [
        _matrix(trial, cells)
        for trial, cells, _ in by_trial(results.cells)
        if any(_table(cell) is not None for cell in cells)
    ]


def _matrix(trial: str, cells: list[CellResult]) -> CaseMatrix:
    fields = [_fields(cell) for cell in cells]
    names = dict.fromkeys(name for column in fields if column is not None for name in column)
    rows = [CaseRow(name, tuple(map(_field, fields, cells, [name] * len(cells)))) for name in names]
    rows.sort(key=lambda row: (not row.wrong, row.exact))
    shown = sorted(range(len(cells)), key=lambda place: cells[place].verdict.good)[:MOST_COLUMNS]
    shown.sort()
    labels = _labels(cells)
    counts = Counter(field.rung for row in rows for field in row.fields if field is not None)
    return CaseMatrix(
        trial,
        tuple((labels[place], cells[place]) for place in shown),
        tuple(CaseRow(row.case, tuple(row.fields[place] for place in shown)) for row in rows[:CASE_ROWS]),
        len(rows),
        len(cells),
        sum(row.wrong for row in rows),
        dict(sorted(counts.items(), key=lambda one: list(RUNGS).index(one[0]) if one[0] in RUNGS else len(RUNGS))),
    )


def _table(cell: CellResult) -> Exhibit | None:
    return next((one for one in cell.exhibits if one.kind == "table" and one.columns[:3] == COLUMNS), None)


def _fields(cell: CellResult) -> dict[str, CaseField] | None:
    """By case; None for a cell that came to no table."""
    table = _table(cell)
    if table is None:
        return None
    judged: dict[str, list[Verdict]] = {}  # known failures are declared after the table was made
    for finding in cell.findings:
        judged.setdefault(finding.step, []).append(finding.verdict)
    place = table.columns.index("message") if "message" in table.columns else -1
    found = {}
    for row in table.rows:
        name, verdict, rung = (_text(value) for value in (*row, "", "", "")[:3])
        known = judged.get(f"case {name}")
        final = worst(known) if known else _VERDICTS.get(verdict, Verdict.INVALID)
        message = _text(row[place]) if 0 <= place < len(row) else ""
        found[name] = CaseField(final, rung.replace("_", " ") or final.value, message)
    return found


def _field(column: dict[str, CaseField] | None, cell: CellResult, name: str) -> CaseField | None:
    return CaseField(cell.verdict, _NOT_ASKED, one_line(cell.why)) if column is None else column.get(name)


def _labels(cells: Sequence[CellResult]) -> list[str]:
    """What tells the cells of a trial apart."""
    varying = [axis for axis, values in axis_values(cells, (), {}).items() if len(values) > 1]
    return [", ".join(cell.axes.get(axis, "–") for axis in varying) or cell.id for cell in cells]


def _text(value: Any) -> str:
    return one_line(str(value))[:300]
