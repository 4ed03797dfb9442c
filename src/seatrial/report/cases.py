"""Cases by configurations: how the answers to each case of a trial compare, in each of its cells.

Made of the tables of cases that the cells have as exhibits. They come from a run folder and may hold anything."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from seatrial.job import CellResult, Exhibit, RunResults, Verdict, worst
from seatrial.report.matrix import axis_values, by_trial
from seatrial.report.text import one_line

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
