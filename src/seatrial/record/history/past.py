"""What the history knows of the cells and causes of one run, from before it: each cell's last runs, since when it has
been as it was the last time, and when its causes were seen."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from seatrial.job import Moment, RunResults
from seatrial.record.history.data import PastResult, RunPast, cell_number, key, outcome_class
from seatrial.record.history.schema import Session, benchmark_of
from seatrial.record.history.writing import started_at_s

_T = TypeVar("_T")

_LAST = 20  # results of each cell
_TOGETHER = 500  # cells or causes that are asked for at once

_RESULT = "run, at_s, verdict, flaky, cause"

_OF_CELL = f"""
SELECT {_RESULT} FROM cells WHERE cell = ? AND at_s < ? AND verdict <> 'skipped' AND run <> ?
ORDER BY at_s DESC, run DESC LIMIT ?
"""

_OF_SOME_CELLS = f"""
SELECT cell, {_RESULT} FROM (
    SELECT cell, {_RESULT}, row_number() OVER (PARTITION BY cell ORDER BY at_s DESC, run DESC) AS place
    FROM cells WHERE cell IN (%s) AND at_s < ? AND verdict <> 'skipped' AND run <> ?
) AS ranked WHERE place <= ? ORDER BY cell, at_s DESC, run DESC
"""

# The first result after the last one of another class.
_STREAKS = """
WITH other AS (
    SELECT cell, max(at_s) AS at_s FROM cells
    WHERE cell IN (%(cells)s) AND at_s < ? AND verdict <> 'skipped' AND run <> ? AND verdict NOT IN (%(verdicts)s)
    GROUP BY cell
)
SELECT cell, run, at_s FROM (
    SELECT cells.cell, cells.run, cells.at_s,
        row_number() OVER (PARTITION BY cells.cell ORDER BY cells.at_s, cells.run) AS place
    FROM cells LEFT JOIN other ON other.cell = cells.cell
    WHERE cells.cell IN (%(cells)s) AND cells.at_s < ? AND cells.verdict <> 'skipped' AND cells.run <> ?
        AND cells.verdict IN (%(verdicts)s) AND (other.at_s IS NULL OR cells.at_s > other.at_s)
) AS ranked WHERE place = 1
"""

_CAUSES = """
SELECT cause, run, at_s FROM (
    SELECT cells.cause, cells.run, cells.at_s,
        row_number() OVER (PARTITION BY cells.cause ORDER BY cells.at_s, cells.run) AS first,
        row_number() OVER (PARTITION BY cells.cause ORDER BY cells.at_s DESC, cells.run DESC) AS last
    FROM cells JOIN runs ON runs.run = cells.run
    WHERE cells.cause IN (%s) AND cells.cause <> '' AND cells.at_s < ? AND cells.run <> ? AND runs.suite = ?
) AS ranked WHERE first = 1 OR last = 1 ORDER BY at_s, run
"""


def read_past(session: Session, results: RunResults) -> RunPast:
    run = key(results.run)
    until_s: dict[str, float] = {}  # a cell's own start: another run may have had it after this one began
    for cell in results.cells:
        if cell.attempts:
            name = benchmark_of(cell.id)
            until_s[name] = max(until_s.get(name, 0.0), started_at_s(results, cell))
    if not until_s:
        return RunPast()
    numbers = {cell_number(results.suite, name): name for name in until_s}
    commits = dict(session.execute('SELECT run, "commit" FROM runs WHERE "commit" <> ?', ("",)))
    cells = {
        numbers[number]: _merged(
            [
                PastResult(of_run, at_s, verdict, bool(flaky), cause, commits.get(of_run, ""))
                for of_run, at_s, verdict, flaky, cause in reversed(rows)
            ]
        )
        for number, rows in _rows(session, {number: until_s[name] for number, name in numbers.items()}, run)
        if rows
    }
    return RunPast(
        cells,
        _streaks(session, results, cells, max(until_s.values()), run, commits),
        _causes(session, results, max(until_s.values()), run, commits),
    )


def _rows(session: Session, until_s: dict[int, float], run: str) -> Iterator[tuple[int, list[Any]]]:
    """The last results of each cell, newest first."""
    if not session.far:
        for number, before_s in until_s.items():
            yield number, session.execute(_OF_CELL, (number, before_s, run, _LAST))
        return
    found: dict[int, list[Any]] = {}
    for some in _batches(until_s):
        latest_s = max(until_s[number] for number in some)
        for number, *row in session.execute(_OF_SOME_CELLS % _places(some), (*some, latest_s, run, _LAST)):
            if row[1] < until_s[number]:
                found.setdefault(number, []).append(row)
    yield from found.items()


def _merged(rows: list[PastResult]) -> list[PastResult]:
    """One result a run: of repeats the worst."""
    found: dict[str, PastResult] = {}
    for row in rows:
        known = found.get(row.run)
        found[row.run] = row if known is None else known.with_repeat(row)
    return list(found.values())


def _streaks(
    session: Session,
    results: RunResults,
    cells: dict[str, list[PastResult]],
    until_s: float,
    run: str,
    commits: dict[str, str],
) -> dict[str, Moment]:
    """Of the cells that were not good the last time: since when. What their last results say is not asked again."""
    found: dict[str, Moment] = {}
    longer: dict[tuple[str, ...], list[str]] = {}
    for name, past in cells.items():
        verdicts = outcome_class(past[-1].verdict)
        if verdicts is None:
            continue
        broken = max((place for place, one in enumerate(past) if one.verdict not in verdicts), default=None)
        if broken is not None:
            found[name] = past[broken + 1].moment
        else:
            longer.setdefault(verdicts, []).append(name)
    for verdicts, names in longer.items():
        numbers = {cell_number(results.suite, name): name for name in names}
        query = {"verdicts": _places(verdicts)}
        for some in _batches(numbers):
            scope = (*some, until_s, run, *verdicts)
            for number, of_run, at_s in session.execute(_STREAKS % {"cells": _places(some), **query}, scope + scope):
                found[numbers[number]] = Moment(of_run, at_s, commits.get(of_run, ""))
    return found


def _causes(
    session: Session, results: RunResults, until_s: float, run: str, commits: dict[str, str]
) -> dict[str, tuple[Moment, Moment]]:
    """The first and the last time that each cause of the run was seen in this suite before."""
    found: dict[str, list[Moment]] = {}
    for some in _batches(sorted({key(cause.id) for cause in results.causes})):
        values = (*some, until_s, run, results.suite)
        for cause, of_run, at_s in session.execute(_CAUSES % _places(some), values):
            found.setdefault(cause, []).append(Moment(of_run, at_s, commits.get(of_run, "")))
    return {cause: (moments[0], moments[-1]) for cause, moments in found.items()}


def _batches(values: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(values)
    while some := list(islice(left, _TOGETHER)):
        yield some


def _places(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)
