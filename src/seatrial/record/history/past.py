"""Queries the past of a run's cells and causes: each cell's last results, the start of its current streak, and when its
causes were seen."""

from collections.abc import Iterable

from seatrial.job import Moment, RunResults, causes_by_cell
from seatrial.record.history.data import PastResult, RunPast, cell_number, key, outcome_class
from seatrial.record.history.schema import Session, batches, benchmark_of, places
from seatrial.record.history.writing import started_at_s

_LAST = 20  # results of each cell

_OF_CELL = """
SELECT run, at_s, verdict, flaky, cause FROM cells WHERE cell = ? AND at_s < ? AND verdict <> 'skipped' AND run <> ?
ORDER BY at_s DESC, run DESC LIMIT ?
"""

# The first run of the current streak: the one after the last run with another result.
_STREAKS = """
WITH found AS (
    SELECT cell, run, min(at_s) AS at_s,
        max(CASE WHEN verdict IN (%(verdicts)s) AND (cause = '' OR cause LIKE ?) THEN 1 ELSE 0 END) AS same
    FROM cells WHERE cell IN (%(cells)s) AND at_s < ? AND verdict <> 'skipped' AND run <> ? GROUP BY cell, run
), with_break AS (
    SELECT cell, run, at_s, same, max(CASE same WHEN 0 THEN at_s END) OVER (PARTITION BY cell) AS broken_s FROM found
)
SELECT cell, run, at_s FROM (
    SELECT cell, run, at_s, row_number() OVER (PARTITION BY cell ORDER BY at_s, run) AS place
    FROM with_break WHERE same = 1 AND (broken_s IS NULL OR at_s > broken_s)
) AS ranked WHERE place = 1
"""

_CAUSES = """
SELECT cause, run, at_s FROM (
    SELECT causes.cause, causes.run, causes.at_s,
        row_number() OVER (PARTITION BY causes.cause ORDER BY causes.at_s, causes.run) AS first,
        row_number() OVER (PARTITION BY causes.cause ORDER BY causes.at_s DESC, causes.run DESC) AS last
    FROM causes JOIN runs ON runs.run = causes.run
    WHERE causes.cause IN (%s) AND causes.at_s < ? AND causes.run <> ? AND runs.suite = ?
) AS ranked WHERE first = 1 OR last = 1 ORDER BY at_s, run
"""


def read_past(session: Session, results: RunResults) -> RunPast:
    """The past of a run's cells and causes, without the run itself, which may or may not be in the history."""
    run = key(results.run)
    until_s: dict[str, float] = {}  # start of each cell; another run may have run it after this run started
    causes = {hash_: key(own[0].id) for hash_, own in causes_by_cell(results).items()}
    wanted: dict[tuple[str, str], None] = {}  # cells with their current cause
    for cell in results.cells:
        if cell.attempts:
            name = benchmark_of(cell.id)
            until_s[name] = max(until_s.get(name, 0.0), started_at_s(results, cell))
            wanted[name, causes.get(cell.hash, "")] = None
    if not until_s:
        return RunPast()
    numbers = {cell_number(results.suite, name): name for name in until_s}
    commits = dict(session.execute('SELECT run, "commit" FROM runs WHERE "commit" <> ?', ("",)))
    cells: dict[str, list[PastResult]] = {}
    found = session.each(_OF_CELL, [(number, until_s[name], run, _LAST) for number, name in numbers.items()])
    for name, rows in zip(numbers.values(), found, strict=True):
        by_run: dict[str, PastResult] = {}  # the worst of repeats
        for of_run, at_s, verdict, flaky, own in reversed(rows):
            past = PastResult(of_run, at_s, verdict, bool(flaky), tuple(own.split()), commits.get(of_run, ""))
            by_run[of_run] = by_run[of_run].with_repeat(past) if of_run in by_run else past
        if by_run:
            cells[name] = list(by_run.values())
    last_s = max(until_s.values())
    streaks = _streaks(session, results, cells, wanted, last_s, run, commits)
    return RunPast(cells, streaks, _causes(session, results, last_s, run, commits))


def _streaks(
    session: Session,
    results: RunResults,
    cells: dict[str, list[PastResult]],
    wanted: Iterable[tuple[str, str]],
    until_s: float,
    run: str,
    commits: dict[str, str],
) -> dict[tuple[str, str], Moment]:
    """The start of the failure streak of each cell that was bad in its previous run, for its current cause. The
    database is queried only for streaks that are longer than the results in `cells`."""
    found: dict[tuple[str, str], Moment] = {}
    longer: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for name, cause in wanted:
        past = cells.get(name, [])
        verdicts = outcome_class(past[-1].verdict) if past and past[-1].has_cause(cause) else None
        if verdicts is None:
            continue
        breaks = (place for place, one in enumerate(past) if one.verdict not in verdicts or not one.has_cause(cause))
        broken = max(breaks, default=None)
        if broken is not None:
            found[name, cause] = past[broken + 1].moment
        else:
            longer.setdefault((verdicts, cause), []).append(name)
    for (verdicts, cause), names in longer.items():
        numbers = {cell_number(results.suite, name): name for name in names}
        for some in batches(numbers):
            query = _STREAKS % {"cells": places(some), "verdicts": places(verdicts)}
            for number, of_run, at_s in session.execute(query, (*verdicts, f"%{cause}%", *some, until_s, run)):
                found[numbers[number], cause] = Moment(of_run, at_s, commits.get(of_run, ""))
    return found


def _causes(
    session: Session, results: RunResults, until_s: float, run: str, commits: dict[str, str]
) -> dict[str, tuple[Moment, Moment]]:
    """When each cause of the run was first and last seen in this suite before."""
    found: dict[str, list[Moment]] = {}
    for some in batches(sorted({key(cause.id) for cause in results.causes})):
        values = (*some, until_s, run, results.suite)
        for cause, of_run, at_s in session.execute(_CAUSES % places(some), values):
            found.setdefault(cause, []).append(Moment(of_run, at_s, commits.get(of_run, "")))
    return {cause: (moments[0], moments[-1]) for cause, moments in found.items()}
