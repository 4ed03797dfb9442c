"""What the history is asked about suites: their newest runs, and what each cell came to in them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from seatrial.record.history.schema import Session

_TOGETHER = 500  # runs that are asked for at once

_RECENT = """
SELECT suite, run, verdict, started_s, seconds, "commit", suite_path FROM (
    SELECT runs.*, row_number() OVER (PARTITION BY suite ORDER BY started_s DESC, run DESC) AS place FROM runs
) AS ranked WHERE place <= ? ORDER BY started_s, run
"""

_OF_SUITE = """
SELECT suite, run, verdict, started_s, seconds, "commit", suite_path FROM runs WHERE suite = ?%s
ORDER BY started_s DESC, run DESC LIMIT ?
"""
_BEFORE = " AND (runs.started_s, runs.run) < (SELECT started_s, run FROM runs WHERE run = ?)"

_WHY = "CASE WHEN cells.headline <> '' THEN cells.headline ELSE cells.why END"
_CELL = f"cells.run, runs.started_s, cells.hash, cells.id, cells.verdict, cells.flaky, {_WHY}, cells.host"
_ONE_RUN = 'SELECT suite, run, verdict, started_s, seconds, "commit", suite_path FROM runs WHERE run = ?'
_OF_CELL = f"""
SELECT {_CELL}, runs."commit", cells.trial, cells.benchmark FROM cells JOIN runs ON runs.run = cells.run
WHERE cells.id = ? AND runs.suite = ?%s ORDER BY runs.started_s DESC, cells.run DESC LIMIT ?
"""


class SuiteRun(msgspec.Struct, frozen=True, gc=False):
    suite: str
    run: str
    verdict: str
    at_s: float  # wall time at which it started
    seconds: float
    commit: str
    suite_path: str


class SuiteRow(msgspec.Struct, frozen=True):
    """A suite, and its newest runs, oldest first."""

    suite: str
    runs: int
    recent: list[SuiteRun]


class RunCell(msgspec.Struct, frozen=True, gc=False):
    """What a cell came to in a run, without the reason."""

    run: str
    hash: str
    id: str
    verdict: str
    flaky: bool


class PastCell(msgspec.Struct, frozen=True, gc=False):
    """What a cell came to in a run, with all that the history has of it."""

    run: str
    at_s: float
    hash: str
    id: str
    verdict: str
    flaky: bool
    why: str
    host: str
    commit: str
    trial: str
    benchmark: str


def suites(session: Session, last: int) -> list[SuiteRow]:
    """The one that ran last comes first."""
    recent: dict[str, list[SuiteRun]] = {}
    for row in session.execute(_RECENT, (last,)):
        recent.setdefault(row[0], []).append(SuiteRun(*row))
    counts = dict(session.execute("SELECT suite, count(*) FROM runs GROUP BY suite"))
    found = [SuiteRow(suite, counts[suite], runs) for suite, runs in recent.items()]
    return sorted(found, key=lambda one: (-one.recent[-1].at_s, one.suite))


def suite_runs(session: Session, suite: str, last: int, before: str) -> list[SuiteRun]:
    """Oldest first."""
    return [SuiteRun(*row) for row in reversed(_newest(session, _OF_SUITE, (suite,), last, before))]


def _newest(session: Session, sql: str, values: tuple[str, ...], last: int, before: str) -> list[tuple[Any, ...]]:
    return session.execute(sql % (_BEFORE if before else ""), (*values, *([before] if before else []), last))


def one_run(session: Session, run: str) -> SuiteRun | None:
    return next((SuiteRun(*row) for row in session.execute(_ONE_RUN, (run,))), None)


def cells_of_runs(session: Session, runs: Sequence[str], most: int) -> list[RunCell]:
    """What every cell of these runs came to; of more than `most` those of the last runs, whole runs only."""
    found: list[RunCell] = []
    for run in reversed(runs):
        rows = session.execute("SELECT run, hash, id, verdict, flaky FROM cells WHERE run = ?", (run,))
        if found and len(found) + len(rows) > most:
            break
        found += [RunCell(of, hash_, id_, verdict, bool(flaky)) for of, hash_, id_, verdict, flaky in rows]
    return found


def cell_id(session: Session, suite: str, hash_: str) -> str | None:
    """The id that the cell with this content had last."""
    rows = session.execute(
        "SELECT cells.id FROM cells JOIN runs ON runs.run = cells.run WHERE cells.hash = ? AND runs.suite = ?"
        " ORDER BY runs.started_s DESC LIMIT 1",
        (hash_, suite),
    )
    return str(rows[0][0]) if rows else None


def past_cells(session: Session, suite: str, id_: str, last: int, before: str) -> list[PastCell]:
    """Runs of one cell, oldest first."""
    return [_past_cell(*row) for row in reversed(_newest(session, _OF_CELL, (id_, suite), last, before))]


def run_cells(session: Session, run: str, most: int) -> list[PastCell]:
    rows = session.execute(
        f'SELECT {_CELL}, runs."commit", cells.trial, cells.benchmark FROM cells JOIN runs ON runs.run = cells.run'
        " WHERE cells.run = ? ORDER BY cells.id LIMIT ?",
        (run, most),
    )
    return [_past_cell(*row) for row in rows]


def _past_cell(run: str, at_s: float, hash_: str, id_: str, verdict: str, flaky: int, *rest: str) -> PastCell:
    return PastCell(run, at_s, hash_, id_, verdict, bool(flaky), *rest)
