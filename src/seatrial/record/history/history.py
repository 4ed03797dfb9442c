"""The history, independent of its database: all writes and queries."""

import contextlib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from seatrial.job import RunResults
from seatrial.record.folder import RunFolder
from seatrial.record.history import reading, writing
from seatrial.record.history import suites as by_suite
from seatrial.record.history.data import ACCEPTED, MARKS, HistoryError, Mark, RunPast, key, masked_location, text
from seatrial.record.history.past import read_past
from seatrial.record.history.schema import Session
from seatrial.record.history.sqlite import SqliteDatabase

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


class Database(Protocol):
    """Stores the tables of schema.py and migrates them to this version. Raises only HistoryError."""

    location: str

    def read(self, use: Callable[[Session], _Answer], empty: _Answer) -> _Answer: ...

    def write(self, use: Callable[[Session], _Answer]) -> _Answer: ...


def open_history(location: str | Path) -> "History":
    """The history at a path (SQLite) or a `postgresql://` URL. It is opened at the first query."""
    where = str(location)
    if where.startswith(("postgresql://", "postgres://")):
        from seatrial.record.history.postgres import PostgresDatabase

        return History(PostgresDatabase(where))
    if "://" in where:
        form = "Use a file path or postgresql://USER@HOST/DATABASE."
        raise HistoryError(masked_location(where), "neither a file nor a PostgreSQL server", form)
    return History(SqliteDatabase(Path(where)))


def _question(
    ask: Callable[Concatenate[Session, _P], _Answer], empty: Callable[[], _Answer]
) -> "Callable[Concatenate[History, _P], _Answer]":
    """A method that runs a query in one transaction; `empty` makes its result if there is no database."""

    @wraps(ask)
    def asked(history: "History", /, *args: _P.args, **options: _P.kwargs) -> _Answer:
        return history.database.read(lambda session: ask(session, *args, **options), empty())

    return asked


class History:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.location = database.location  # for messages, without a password

    def add(self, *runs: RunResults) -> None:
        """Adds runs in one transaction, replacing runs that were added before."""

        def write(session: Session) -> None:
            for results in runs:
                writing.write_run(session, results)

        self.database.write(write)

    def mark(
        self, run: str, benchmark: str | None, label: str, reason: str, by: str, at_s: float, metric: str | None = None
    ) -> None:
        """Marks a run, or one benchmark in it. The last mark counts; "" removes earlier ones.

        `accepted` is set by `baseline recenter` on the first run of a new level, and only it may apply to a single
        `metric`. It settles the alerts and `regression` marks of that level before `at_s`.
        """
        if label not in ("", ACCEPTED, *MARKS):
            raise ValueError(f"invalid mark {label!r}; use {', '.join((ACCEPTED, *MARKS))}")
        if metric and label != ACCEPTED:
            raise ValueError(f"mark {label!r} applies to a benchmark, not to a single metric {metric!r}")
        mark = Mark(key(run), key(benchmark or ""), label, text(reason), text(by), at_s, key(metric or ""))
        self.database.write(lambda session: writing.add_mark(session, mark))

    durations = _question(reading.durations, dict)
    series = _question(reading.series, list)
    names = _question(reading.names, list)
    checked = _question(reading.checked, dict)
    filled = _question(reading.filled, list)
    under_test = _question(reading.under_test, dict)
    trials = _question(reading.trials, list)
    benchmarks = _question(reading.benchmarks, list)
    alarms = _question(reading.alarms, list)
    marks = _question(reading.marks, list)
    runs = _question(by_suite.runs, list)
    suites = _question(by_suite.suites, list)
    suite_runs = _question(by_suite.suite_runs, list)
    run = _question(by_suite.run, lambda: None)
    cells_of_runs = _question(by_suite.cells_of_runs, list)
    cells = _question(by_suite.cells, list)
    run_cells = _question(by_suite.run_cells, list)
    troubled_cells = _question(by_suite.troubled_cells, list)
    causes_of_runs = _question(by_suite.causes_of_runs, list)
    search = _question(by_suite.search, by_suite.Found)
    past_cells = _question(by_suite.past_cells, list)
    past = _question(read_past, RunPast)


MISSED = "not-in-history"  # file in the run folder with the history that the run must be added to


def add_missed(runs: Path, history: History) -> list[str]:
    """Adds the runs of a folder that could not be added to this history before. Returns their names. Raises
    HistoryError."""
    marks = sorted(runs.glob(f"*/{MISSED}")) if runs.is_dir() else []
    found = []
    for mark in marks:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if mark.read_text().strip() == _place(history):
                found.append(RunFolder(mark.parent))
    return [folder.run for folder in found if add_run(folder, history)]


def add_run(folder: RunFolder, history: History) -> bool:
    """Adds one run. Returns False if it has no readable results. Raises HistoryError."""
    results = folder.read_results()
    if results is None:
        return False
    history.add(results)
    (folder.path / MISSED).unlink(missing_ok=True)
    return True


def add_or_mark(folder: RunFolder, results: RunResults, history: History) -> None:
    """Adds a finished run; if that fails, marks it to be added later and raises HistoryError."""
    try:
        history.add(results)
    except HistoryError:
        with contextlib.suppress(OSError):  # `seatrial history add` works without the mark
            (folder.path / MISSED).write_text(_place(history) + "\n")
        raise
    (folder.path / MISSED).unlink(missing_ok=True)


def _place(history: History) -> str:
    """The URL without a password, or the absolute path of a file."""
    return history.location if "://" in history.location else str(Path(history.location).resolve())
