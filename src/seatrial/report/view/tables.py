"""Tables over several cells: the tiles of the first screen, and the tables that each cell of a trial has, such as its
cases, merged into one.

They come from a run folder and are not trusted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from seatrial.job import Table, Tile, Verdict, worst
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import Trial, trials
from seatrial.report.view.plot import number_of
from seatrial.report.view.words import AGREEMENTS, one_line

MOST_ROWS = 200
MOST_COLUMNS = 30
_JUDGED_BY = ["verdict", "agreement"]  # the columns after the first, the row name
_NOT_ASKED = "not asked"
_VERDICTS = {one.value: one for one in Verdict}


class Board:
    """The cells that have something for the first screen, bad ones first, with one column for each of their tiles."""

    def __init__(self, cells: Sequence[CellView]) -> None:
        self.cells = sorted((cell for cell in cells if cell.first_charts), key=lambda cell: not cell.bad)
        found = [{(tile.group, tile.title): tile for tile in cell.tiles} for cell in self.cells]
        columns = list(dict.fromkeys(column for tiles in found for column in tiles))[:MOST_COLUMNS]
        self.heads = [(group, [title for _, title in some]) for group, some in groupby(columns, lambda one: one[0])]
        rows = [(cell, [tiles.get(one) for one in columns]) for cell, tiles in zip(self.cells, found, strict=True)]
        # Which columns have a bound; the others are hidden on a phone.
        self.judged = [any(one in tiles and tiles[one].bound for tiles in found) for one in columns]
        self.rows: list[tuple[CellView, list[Tile | None]]] = rows[:MOST_ROWS]


@dataclass(frozen=True)
class JudgedField:
    verdict: Verdict
    agreement: str
    message: str = ""
    size: float = 0.0  # of the difference
    tolerance: float = 0.0


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
        rows.sort(key=lambda row: (not row.wrong, row.exact, -max((one.size for one in row.fields if one), default=0)))
        shown = sorted(sorted(range(len(cells)), key=lambda place: not cells[place].bad)[:MOST_COLUMNS])
        # The axis values in which the cells differ.
        labels = [", ".join(cell.axes.get(axis, "–") for axis in trial.axes) or cell.id for cell in cells]
        self.trial = trial.name
        self.columns = [(labels[place], cells[place]) for place in shown]
        self.rows = [JudgedRow(row.name, tuple(row.fields[place] for place in shown)) for row in rows[:MOST_ROWS]]
        self.cases, self.configurations = len(rows), len(cells)
        self.wrong = sum(row.wrong for row in rows)
        sizes = [
            field.size for row in self.rows for field in row.fields if field is not None and not field.verdict.good
        ]
        self.largest = max(sizes, default=0.0)
        # Number of fields by agreement, including fields that are left out.
        counts = Counter(field.agreement for row in rows for field in row.fields if field is not None)
        order = [*AGREEMENTS, *(agreement for agreement in counts if agreement not in AGREEMENTS)]
        self.agreements = {agreement: counts[agreement] for agreement in order if counts[agreement]}


def judged_tables(cells: Sequence[CellView]) -> list[JudgedTable]:
    """One for each trial that has such tables, wrong ones first."""
    found = [JudgedTable(trial) for trial in trials(cells) if any(map(_table, trial.cells))]
    return sorted(found, key=lambda table: not table.wrong)


def _table(cell: CellView) -> Table | None:
    return next((one for one in cell.charts if isinstance(one, Table) and one.columns[1:3] == _JUDGED_BY), None)


def _fields(cell: CellView) -> dict[str, JudgedField] | None:
    """Fields by row name; None if the cell has no table."""
    table = _table(cell)
    if table is None:
        return None
    place = table.columns.index("message") if "message" in table.columns else -1
    found = {}
    for row in table.rows:
        name, verdict, agreement = (_text(value) for value in (*row, "", "", "")[:3])
        step = f"{table.columns[0]} {name}"
        judged = cell.by_step.get(step, [])  # xfails are applied after the table is made
        final = worst(one.verdict for one in judged) if judged else _VERDICTS.get(verdict, Verdict.INVALID)
        message = _text(row[place]) if 0 <= place < len(row) else ""
        pairs = [(number_of(one.data.get("size")), number_of(one.data.get("tolerance"))) for one in judged]
        size, tolerance = max(((size, most) for size, most in pairs if size is not None and most), default=(0.0, 0.0))
        found[name] = JudgedField(final, agreement.replace("_", " ") or final.value, message, size, tolerance)
    return found


def _text(value: Any) -> str:
    return one_line(str(value))[:300]
