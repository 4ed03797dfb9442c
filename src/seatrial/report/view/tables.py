"""Merges the tables that each cell of a trial has, such as its cases, into one: rows by cells.

The tables come from a run folder and are not trusted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.job import Table, Verdict, worst
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import Trial, trials
from seatrial.report.view.words import AGREEMENTS, one_line

MOST_ROWS = 200
MOST_COLUMNS = 30
_JUDGED_BY = ["verdict", "agreement"]  # the columns after the first, the row name
_NOT_ASKED = "not asked"
_VERDICTS = {one.value: one for one in Verdict}


@dataclass(frozen=True)
class JudgedField:
    verdict: Verdict
    agreement: str
    message: str = ""


@dataclass(frozen=True)
class JudgedRow:
    name: str
    fields: tuple[JudgedField | None, ...]  # None if the cell has no such row

    @property
    def wrong(self) -> bool:
        return any(field is not None and not field.verdict.good for field in self.fields)

    @property
    def exact(self) -> bool:
        return all(field is None or field.agreement == "exact" for field in self.fields)


class JudgedTable:
    """At most MOST_ROWS rows, wrong ones first, then those that are not exact, and at most MOST_COLUMNS columns."""

    def __init__(self, trial: Trial[CellView]) -> None:
        cells = trial.cells
        judged = [_fields(cell) for cell in cells]
        names = dict.fromkeys(name for column in judged if column is not None for name in column)
        unasked = [JudgedField(cell.verdict, _NOT_ASKED, one_line(cell.reason)) for cell in cells]
        rows = [
            JudgedRow(
                name, tuple(lack if of is None else of.get(name) for of, lack in zip(judged, unasked, strict=True))
            )
            for name in names
        ]
        rows.sort(key=lambda row: (not row.wrong, row.exact))
        shown = sorted(sorted(range(len(cells)), key=lambda place: not cells[place].bad)[:MOST_COLUMNS])
        # The axis values in which the cells differ.
        labels = [", ".join(cell.axes.get(axis, "–") for axis in trial.axes) or cell.id for cell in cells]
        self.trial = trial.name
        self.columns = [(labels[place], cells[place]) for place in shown]
        self.rows = [JudgedRow(row.name, tuple(row.fields[place] for place in shown)) for row in rows[:MOST_ROWS]]
        self.cases, self.configurations = len(rows), len(cells)
        self.wrong = sum(row.wrong for row in rows)
        # Number of fields by agreement, including fields that are left out.
        counts = Counter(field.agreement for row in rows for field in row.fields if field is not None)
        order = [*AGREEMENTS, *(agreement for agreement in counts if agreement not in AGREEMENTS)]
        self.agreements = {agreement: counts[agreement] for agreement in order if counts[agreement]}


def judged_tables(cells: Sequence[CellView]) -> list[JudgedTable]:
    """One for each trial that has such tables."""
    return [JudgedTable(trial) for trial in trials(cells) if any(map(_table, trial.cells))]


def _table(cell: CellView) -> Table | None:
    return next((one for one in cell.charts if isinstance(one, Table) and one.columns[1:3] == _JUDGED_BY), None)


def _fields(cell: CellView) -> dict[str, JudgedField] | None:
    """Fields by row name; None if the cell has no table."""
    table = _table(cell)
    if table is None:
        return None
    judged: dict[str, list[Verdict]] = {}  # xfails are applied after the table is made
    for finding in cell.findings:
        judged.setdefault(finding.step, []).append(finding.verdict)
    place = table.columns.index("message") if "message" in table.columns else -1
    found = {}
    for row in table.rows:
        name, verdict, agreement = (_text(value) for value in (*row, "", "", "")[:3])
        known = judged.get(f"{table.columns[0]} {name}")
        final = worst(known) if known else _VERDICTS.get(verdict, Verdict.INVALID)
        message = _text(row[place]) if 0 <= place < len(row) else ""
        found[name] = JudgedField(final, agreement.replace("_", " ") or final.value, message)
    return found


def _text(value: Any) -> str:
    return one_line(str(value))[:300]
