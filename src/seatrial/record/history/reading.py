"""Queries of the history, in SQL for both databases."""

from typing import Any

import msgspec

from seatrial.job import decode
from seatrial.record.history.data import (
    ACCEPTED,
    ALWAYS,
    ENDLESS,
    Alarm,
    Mark,
    Point,
    Series,
    TimeWindow,
    TrialRow,
    key,
    series_id,
)
from seatrial.record.history.schema import Session

_LAST = 20  # attempts per cell for its expected duration
_LATER_S = 1e300  # later than any time

_OF_CELL = """
SELECT seconds FROM attempts WHERE hash = ? AND verdict IN ('passed', 'xfail') AND seconds IS NOT NULL
ORDER BY started_s DESC LIMIT ?
"""

_POINTS_OF_SERIES = """
SELECT run, at_s, value, verdict, host, id, source FROM points WHERE series = ? AND at_s BETWEEN ? AND ?
ORDER BY at_s DESC, run DESC, hash DESC LIMIT ?
"""

_ALARMS = """
SELECT cells.run, cells.at_s, cells.benchmark, cells.fingerprint, cells.verdict, cells.why, runs."commit"
FROM cells JOIN runs ON runs.run = cells.run WHERE cells.verdict IN ('slower', 'faster')
ORDER BY cells.at_s, cells.run, cells.id
"""

_TRIALS = """
SELECT cells.trial, count(*), min(runs.started_s), max(runs.started_s)
FROM (SELECT DISTINCT trial, run FROM cells) AS cells JOIN runs ON runs.run = cells.run
GROUP BY cells.trial
"""

_STARTS = """
SELECT cells.run, cells.benchmark, cells.fingerprint, min(cells.at_s)
FROM cells JOIN (SELECT DISTINCT run FROM marks WHERE word = ?) AS said ON said.run = cells.run
GROUP BY cells.run, cells.benchmark, cells.fingerprint
"""


_UNDER_TEST = "cells JOIN settings ON settings.id = cells.under_test"


class _Accepted(msgspec.Struct, frozen=True):
    """An accepted level: its start, and the mark that accepted it."""

    since_s: float
    acceptance: Mark

    def covers(self, run: str, at_s: float) -> bool:
        return run == self.acceptance.run or self.since_s <= at_s <= self.acceptance.at_s


class _Marks(msgspec.Struct, frozen=True):
    """The marks that are in effect."""

    judged: dict[str, dict[str, Mark]]  # by run, then by benchmark, "" for the whole run
    accepted: dict[tuple[str, str], list[_Accepted]]  # by benchmark and fingerprint, latest mark first

    def of(self, run: str, benchmark: str) -> Mark | None:
        of_run = self.judged.get(run, {})
        mark = of_run.get(benchmark) or of_run.get("")
        return mark if mark and mark.label else None


def durations(session: Session) -> dict[str, float]:
    """Expected duration of each cell in seconds, by hash: the median of its last 20 successful attempts."""
    cells = [cell for (cell,) in session.execute("SELECT DISTINCT hash FROM attempts")]
    if not cells:
        return {}
    from statistics import median

    found = zip(cells, session.each(_OF_CELL, [(cell, _LAST) for cell in cells]), strict=True)
    return {cell: median(seconds for (seconds,) in rows) for cell, rows in found if rows}


def series(
    session: Session, benchmark: str | None = None, metric: str | None = None, last: int | None = None
) -> list[Series]:
    """The matching series, sorted by name, each with its `last` points."""
    return filled(session, _names(session, {"benchmark = ?": benchmark, "metric = ?": metric}), last)


def names(session: Session, trial: str | None = None, run: str | None = None, judged: bool = False) -> list[Series]:
    """Series without points: of a trial, of a run, or only those with a direction (`judged`)."""
    of_run = "series.id IN (SELECT series FROM points WHERE run = ?)"
    return _names(session, {"trial = ?": trial, of_run: run, "better <> ?": "" if judged else None})


def checked(session: Session) -> dict[tuple[str, str], str]:
    """The benchmarks and metrics that bounds checked before, each with the last run in which they did."""
    rows = session.execute("SELECT benchmark, metric, checked FROM series WHERE checked <> ? ORDER BY checked", ("",))
    return {(benchmark, metric): run for benchmark, metric, run in rows}


def _names(session: Session, wanted: dict[str, str | None]) -> list[Series]:
    """The series that meet all conditions with a value."""
    conditions = {condition: key(value) for condition, value in wanted.items() if value is not None}
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = "benchmark, trial, fingerprint, metric, unit, better, fields"
    query = f"SELECT {columns} FROM series LEFT JOIN settings ON settings.id = fingerprint{where}"
    rows = session.execute(query, tuple(conditions.values()))
    fields = {text: _fields(text) for text in {row[-1] for row in rows}}
    found = [
        Series(benchmark, trial, fingerprint, metric, unit, better, [], fields[text])
        for benchmark, trial, fingerprint, metric, unit, better, text in rows
    ]
    # Not sorted in SQL, because collations differ.
    return sorted(found, key=lambda one: (one.benchmark, one.metric, one.fingerprint, one.unit))


def filled(session: Session, names: list[Series], last: int | None = None, window: TimeWindow = ALWAYS) -> list[Series]:
    """These series with their `last` points in the window. Series without points are left out."""
    numbers = [series_id(one.benchmark, one.fingerprint, one.metric, one.unit) for one in names]
    since_s = -_LATER_S if window.since_s is None else window.since_s
    within = since_s, _LATER_S if window.until_s is None else window.until_s, ENDLESS if last is None else last
    points = session.each(_POINTS_OF_SERIES, [(number, *within) for number in numbers])
    all_marks = _all_marks(session)
    commits = dict(session.execute('SELECT run, "commit" FROM runs WHERE "commit" <> ?', ("",)))
    found = [
        msgspec.structs.replace(one, points=_points(newest[::-1], one, all_marks, commits))
        for newest, one in zip(points, names, strict=True)
        if newest
    ]
    tested: dict[tuple[str, str], str] = {}  # what was under test in the newest run of each series
    for run in sorted({one.points[-1].run for one in found}):
        rows = session.execute(f"SELECT benchmark, fields FROM {_UNDER_TEST} WHERE run = ?", (run,))
        tested |= {(run, benchmark): fields for benchmark, fields in rows}
    return [
        msgspec.structs.replace(one, under_test=_fields(tested.get((one.points[-1].run, one.benchmark))))
        for one in found
    ]


def under_test(session: Session, trial: str, benchmark: str) -> dict[str, dict[str, str]]:
    """What was under test in each run of a benchmark, if recorded."""
    query = f"SELECT run, fields FROM {_UNDER_TEST} WHERE trial = ? AND benchmark = ?"
    return {run: _fields(text) for run, text in session.execute(query, (key(trial), key(benchmark)))}


def _fields(text: str | None) -> dict[str, str]:
    return decode(text, dict[str, str]) if text else {}


def _points(rows: list[tuple[Any, ...]], series: Series, all_marks: _Marks, commits: dict[str, str]) -> list[Point]:
    benchmark, commit_of = series.benchmark, commits.get
    levels = all_marks.accepted.get((benchmark, series.fingerprint), [])
    levels = [level for level in levels if level.acceptance.metric in ("", series.metric)]
    if not all_marks.judged and not levels:
        return [
            Point(run, at_s, value, verdict, "", "", commit_of(run, ""), host, id_ or benchmark, source)
            for run, at_s, value, verdict, host, id_, source in rows
        ]
    made, begun = [], set()
    for run, at_s, value, verdict, host, id_, source in rows:
        mark = all_marks.of(run, benchmark)
        level = next((level for level in levels if level.covers(run, at_s)), None)
        if level and run == level.acceptance.run and run not in begun:  # the first of its repeats
            begun.add(run)
            mark = level.acceptance
        elif level and mark and mark.label == "regression" and mark.at_s <= level.acceptance.at_s:
            mark = None  # the level was accepted since then
        label, reason = (mark.label, mark.reason) if mark else ("", "")
        commit, name, accepted = commit_of(run, ""), id_ or benchmark, level is not None
        made.append(Point(run, at_s, value, verdict, label, reason, commit, host, name, source, accepted))
    return made


def marks(session: Session) -> list[Mark]:
    """All marks, oldest first."""
    columns = "run, benchmark, word, reason, said_by, at_s, metric"
    rows = session.execute(f"SELECT {columns} FROM marks ORDER BY at_s, run, benchmark, metric")
    return [Mark(*row) for row in rows]


def _all_marks(session: Session) -> _Marks:
    """The last mark of each benchmark of a run; a mark of the run applies to all its benchmarks."""
    judged: dict[str, dict[str, Mark]] = {}
    accepted: dict[str, dict[tuple[str, str], Mark]] = {}
    for mark in marks(session):
        if mark.label == ACCEPTED:
            accepted.setdefault(mark.run, {})[mark.benchmark, mark.metric] = mark
            continue
        of_run = judged.setdefault(mark.run, {})
        if not mark.benchmark:
            of_run.clear()
        of_run[mark.benchmark] = mark
        if mark.label in ("", "regression") and mark.run in accepted:
            known = accepted[mark.run].items()
            accepted[mark.run] = {of: one for of, one in known if mark.benchmark not in ("", of[0])}
    last = sorted((one for of_run in accepted.values() for one in of_run.values()), key=lambda one: -one.at_s)
    levels: dict[tuple[str, str], list[_Accepted]] = {}
    starts = session.execute(_STARTS, (ACCEPTED,)) if last else []
    for mark in last:
        for run, benchmark, fingerprint, since_s in starts:
            if run == mark.run and mark.benchmark in ("", benchmark):
                levels.setdefault((benchmark, fingerprint), []).append(_Accepted(since_s, mark))
    return _Marks(judged, levels)


def alarms(session: Session) -> list[Alarm]:
    """All alerts, oldest first, with their reviews."""
    all_marks = _all_marks(session)
    found: dict[tuple[str, str, str, str], Alarm] = {}  # repeats of a cell raise one alert
    for run, at_s, benchmark, fingerprint, verdict, why, commit in session.execute(_ALARMS):
        levels = all_marks.accepted.get((benchmark, fingerprint), [])
        accepted = next((level.acceptance for level in levels if level.covers(run, at_s)), None)
        mark = all_marks.of(run, benchmark) or accepted
        marked = (mark.label, mark.reason, mark.by) if mark else ("", "", "")
        alarm = Alarm(run, at_s, benchmark, fingerprint, verdict, why, commit, *marked)
        found.setdefault((run, benchmark, fingerprint, verdict), alarm)
    return list(found.values())


def benchmarks(session: Session, run: str) -> list[str]:
    """The benchmarks of a run."""
    rows = session.execute("SELECT DISTINCT benchmark FROM cells WHERE run = ?", (key(run),))
    return sorted(row[0] for row in rows)


def trials(session: Session) -> list[TrialRow]:
    kept = session.execute("SELECT trial, count(DISTINCT benchmark), count(*) FROM series GROUP BY trial")
    known = {trial: (benchmarks, series) for trial, benchmarks, series in kept}
    return [
        TrialRow(trial, number, *known.get(trial, (0, 0)), first_s, last_s)
        for trial, number, first_s, last_s in sorted(session.execute(_TRIALS))
    ]
