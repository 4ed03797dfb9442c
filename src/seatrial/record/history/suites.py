"""Queries of the history about suites: their newest runs, and the results of their cells."""

from collections.abc import Sequence

import msgspec

from seatrial.job import decode
from seatrial.record.history.data import ENDLESS, CellRow, key, text
from seatrial.record.history.schema import Session, batches, places

_RUN = 'suite, run, verdict, started_s, seconds, "commit", suite_path, counts, targets'
_RECENT = f"""
SELECT {_RUN} FROM (
    SELECT runs.*, row_number() OVER (PARTITION BY suite ORDER BY started_s DESC, run DESC) AS place FROM runs
) AS ranked WHERE place <= ? ORDER BY started_s, run
"""

_NEWEST = f"SELECT {_RUN} FROM runs%s ORDER BY started_s DESC, run DESC LIMIT ?"
_BEFORE = " AND (runs.started_s, runs.run) < (SELECT started_s, run FROM runs WHERE run = ?)"

_CELLS = """
SELECT cells.run, runs.started_s, cells.id, cells.verdict, cells.flaky, cells.why, runs."commit", cells.headline,
    cells.cause, cells.hash, cells.host, cells.trial, cells.benchmark FROM cells JOIN runs ON runs.run = cells.run WHERE
"""
_NEWEST_OF_TRIAL = """
SELECT run FROM runs WHERE run IN (SELECT run FROM cells WHERE trial = ?) ORDER BY started_s DESC, run DESC LIMIT ?
"""

_FIRST_SEEN = """
SELECT suite, cause, at_s, "commit" FROM (
    SELECT runs.suite, causes.cause, causes.at_s, runs."commit",
        row_number() OVER (PARTITION BY runs.suite, causes.cause ORDER BY causes.at_s, causes.run) AS place
    FROM causes JOIN runs ON runs.run = causes.run WHERE causes.cause IN (%s)
) AS ranked WHERE place = 1
"""


class SuiteRun(msgspec.Struct, frozen=True, gc=False):
    suite: str
    run: str
    verdict: str
    at_s: float  # wall time of its start
    seconds: float
    commit: str
    suite_path: str
    counts_json: str = ""
    targets_json: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Cells by verdict, and "flaky"."""
        return decode(self.counts_json, dict[str, int]) if self.counts_json else {}

    @property
    def targets(self) -> list[str]:
        return decode(self.targets_json, list[str]) if self.targets_json else []


class CauseRow(msgspec.Struct, frozen=True, gc=False):
    """A cause in its newest run of a suite, and when it was first seen there."""

    suite: str
    id: str
    run: str
    at_s: float
    verdict: str
    text: str
    place: str
    cells: int
    first_s: float
    first_commit: str


class SuiteRow(msgspec.Struct, frozen=True):
    """A suite with its newest runs, oldest first."""

    suite: str
    runs: int
    recent: list[SuiteRun]


class RunCell(msgspec.Struct, frozen=True, gc=False):
    """The result of a cell in a run, without the reason."""

    run: str
    hash: str
    id: str
    verdict: str
    flaky: bool


def runs(session: Session, last: int | None = None) -> list[SuiteRun]:
    """The `last` runs of all suites, oldest first."""
    rows = session.execute(_NEWEST % "", (ENDLESS if last is None else last,))
    return [SuiteRun(*row) for row in reversed(rows)]


def suites(session: Session, last: int) -> list[SuiteRow]:
    """Every suite with its `last` runs; the most recent suite comes first."""
    recent: dict[str, list[SuiteRun]] = {}
    for row in session.execute(_RECENT, (last,)):
        recent.setdefault(row[0], []).append(SuiteRun(*row))
    counts = dict(session.execute("SELECT suite, count(*) FROM runs GROUP BY suite"))
    found = [SuiteRow(suite, counts[suite], runs) for suite, runs in recent.items()]
    return sorted(found, key=lambda one: (-one.recent[-1].at_s, one.suite))


def suite_runs(session: Session, suite: str, last: int, before: str = "") -> list[SuiteRun]:
    """The `last` runs of a suite, oldest first; with `before`, only runs older than that one."""
    where, values = _older(before)
    rows = session.execute(_NEWEST % f" WHERE suite = ?{where}", (text(suite), *values, last))
    return [SuiteRun(*row) for row in reversed(rows)]


def _older(before: str) -> tuple[str, list[str]]:
    return (_BEFORE, [key(before)]) if before else ("", [])


def run(session: Session, run: str) -> SuiteRun | None:
    return next((SuiteRun(*row) for row in session.execute(_NEWEST % " WHERE run = ?", (key(run), 1))), None)


def cells_of_runs(session: Session, runs: Sequence[str], most: int) -> list[RunCell]:
    """The cells of these runs; if there are more than `most`, only of the latest runs, whole runs only."""
    found: list[RunCell] = []
    for run in reversed(runs):
        rows = session.execute("SELECT run, hash, id, verdict, flaky FROM cells WHERE run = ?", (run,))
        if found and len(found) + len(rows) > most:
            break
        found += [RunCell(of, hash_, id_, verdict, bool(flaky)) for of, hash_, id_, verdict, flaky in rows]
    return found


def troubled_cells(session: Session, runs: Sequence[str], most: int) -> list[RunCell]:
    """The cells of these runs that were not good, or flaky; at most `most`."""
    trouble = "(verdict NOT IN ('passed', 'xfail', 'skipped') OR flaky = 1)"  # as in the index
    found: list[RunCell] = []
    for some in batches(runs):
        query = f"SELECT run, hash, id, verdict, flaky FROM cells WHERE run IN ({places(some)}) AND {trouble} LIMIT ?"
        rows = session.execute(query, (*some, most - len(found)))
        found += [RunCell(run, hash_, id_, verdict, bool(flaky)) for run, hash_, id_, verdict, flaky in rows]
    return found


def causes_of_runs(session: Session, runs: Sequence[str]) -> list[CauseRow]:
    """The causes of these runs."""
    return [one for some in batches(runs) for one in _causes(session, f"causes.run IN ({places(some)})", some, 1_000)]


def _causes(session: Session, where: str, values: Sequence[str], most: int) -> list[CauseRow]:
    """The causes for which `where` is true, newest first."""
    query = f"""
    SELECT runs.suite, causes.cause, causes.run, causes.at_s, causes.verdict, causes.headline, causes.place,
        causes.cells FROM causes JOIN runs ON runs.run = causes.run WHERE {where}
    ORDER BY causes.at_s DESC, causes.run DESC LIMIT ?"""
    rows = {tuple(row[:2]): row for row in reversed(session.execute(query, (*values, most)))}
    first: dict[tuple[str, ...], tuple[float, str]] = {}
    for some in batches(sorted({cause for _, cause in rows})):
        for suite, cause, at_s, commit in session.execute(_FIRST_SEEN % places(some), (*some,)):
            first[suite, cause] = (at_s, commit)
    return [CauseRow(*(*row, *first[of])) for of, row in reversed(rows.items())]


class Found(msgspec.Struct, frozen=True):
    """What a search found, newest first."""

    runs: list[SuiteRun] = []
    cells: list[tuple[str, str, str]] = []  # suite, id, hash
    causes: list[CauseRow] = []


def search(session: Session, words: str, most: int) -> Found:
    """Runs and suites by name, runs by commit, cells by id or hash, causes by text or id. The case does not matter."""
    plain = text(words).lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    inside, start = f"%{plain}%", f"{plain}%"
    like = "lower({}) LIKE ? ESCAPE '\\'".format
    of_runs = " WHERE " + " OR ".join(map(like, ("run", "suite", '"commit"')))
    runs = [SuiteRun(*row) for row in session.execute(_NEWEST % of_runs, (inside, inside, start, most))]
    cells = session.execute(
        "SELECT runs.suite, cells.id, max(cells.hash) FROM cells JOIN runs ON runs.run = cells.run"
        f" WHERE {like('cells.id')} OR {like('cells.hash')} GROUP BY runs.suite, cells.id ORDER BY cells.id LIMIT ?",
        (inside, start, most),
    )
    of_causes = f"({like('causes.headline')} OR {like('causes.cause')})"
    found = [(str(suite), str(id_), str(hash_)) for suite, id_, hash_ in cells]
    return Found(runs, found, _causes(session, of_causes, (inside, start), 10 * most)[:most])


def cells(session: Session, trial: str, last: int | None = None) -> list[CellRow]:
    """The results of each cell of a trial in its `last` runs, oldest first."""
    where = f"cells.trial = ? AND cells.run IN ({_NEWEST_OF_TRIAL}) ORDER BY runs.started_s, cells.run"
    return _cells(session, where, key(trial), key(trial), ENDLESS if last is None else last)


def past_cells(session: Session, suite: str, cell: str, last: int, before: str = "") -> list[CellRow]:
    """The `last` results of a cell, by its id or any of its hashes, oldest first; with `before`, only in runs older
    than that one."""
    suite, id_ = text(suite), key(cell)
    known = session.execute(
        "SELECT cells.id FROM cells JOIN runs ON runs.run = cells.run WHERE cells.hash = ? AND runs.suite = ?"
        " ORDER BY runs.started_s DESC LIMIT 1",
        (id_, suite),
    )
    older, values = _older(before)
    where = f"cells.id = ? AND runs.suite = ?{older} ORDER BY runs.started_s DESC, cells.run DESC LIMIT ?"
    return _cells(session, where, str(known[0][0]) if known else id_, suite, *values, last)[::-1]


def run_cells(session: Session, run: str, most: int) -> list[CellRow]:
    """The cells of a run, sorted by id."""
    return _cells(session, "cells.run = ? ORDER BY cells.id LIMIT ?", key(run), most)


def _cells(session: Session, where: str, *values: str | int) -> list[CellRow]:
    found = []
    for run, at_s, id_, verdict, flaky, why, commit, headline, causes, *rest in session.execute(_CELLS + where, values):
        cause = causes.partition(" ")[0]
        found.append(CellRow(run, at_s, id_, verdict, bool(flaky), why, commit, headline, cause, *rest))
    return found
