"""One history, wherever it is kept: what goes in, and what can be asked of it."""

import contextlib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from seatrial.job import RunResults
from seatrial.record.folder import RunFolder
from seatrial.record.history import reading, writing
from seatrial.record.history import suites as by_suite
from seatrial.record.history.data import ACCEPTED, MARKS, HistoryError, Mark, RunPast, key, place_text, text
from seatrial.record.history.past import read_past
from seatrial.record.history.schema import Session
from seatrial.record.history.sqlite import SqliteDatabase

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


class Database(Protocol):
    """Keeps the tables of schema.py, brings them to this version, and raises HistoryError and nothing else."""

    place: str

    def read(self, use: Callable[[Session], _Answer], empty: _Answer) -> _Answer: ...

    def write(self, use: Callable[[Session], _Answer]) -> _Answer: ...


def open_history(place: str | Path) -> "History":
    """The history at a path (SQLite) or a `postgresql://` URL. Nothing is opened before it is asked something."""
    where = str(place)
    if where.startswith(("postgresql://", "postgres://")):
        from seatrial.record.history.postgres import PostgresDatabase

        return History(PostgresDatabase(where))
    if "://" in where:
        form = "Give the path of a file, or postgresql://USER@HOST/DATABASE."
        raise HistoryError(place_text(where), "that is neither a file nor a PostgreSQL server", form)
    return History(SqliteDatabase(Path(where)))


def _question(
    ask: Callable[Concatenate[Session, _P], _Answer], empty: Callable[[], _Answer]
) -> "Callable[Concatenate[History, _P], _Answer]":
    """A method of a history that asks this in one state of the database; `empty` makes the answer where there is
    none."""

    @wraps(ask)
    def asked(history: "History", /, *args: _P.args, **options: _P.kwargs) -> _Answer:
        return history.database.read(lambda session: ask(session, *args, **options), empty())

    return asked


class History:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.place = database.place  # for people: without a password

    def add(self, *runs: RunResults) -> None:
        """Keep all metrics of a run, or of several at once; what was known of the same runs before is replaced."""

        def write(session: Session) -> None:
            for results in runs:
                writing.write_run(session, results)

        self.database.write(write)

    def mark(
        self, run: str, benchmark: str | None, label: str, reason: str, by: str, at_s: float, metric: str | None = None
    ) -> None:
        """Keep a person's mark of a run, or of one benchmark of it. The last mark counts; "" takes the others back.

        `accepted` is what a recenter says of the first run of a level, and alone may be about one `metric`: the level
        is in order from that run on. Alarms of it before `at_s` are settled, and so are marks `regression` before it.
        """
        if label not in ("", ACCEPTED, *MARKS):
            raise ValueError(f"{label!r} is none of {', '.join((ACCEPTED, *MARKS))}")
        if metric and label != ACCEPTED:
            raise ValueError(f"{label!r} is about a benchmark, not about its metric {metric!r} alone")
        mark = Mark(key(run), key(benchmark or ""), label, text(reason), text(by), at_s, key(metric or ""))
        self.database.write(lambda session: writing.add_mark(session, mark))

    durations = _question(reading.durations, dict)
    series = _question(reading.series, list)
    names = _question(reading.names, list)
    filled = _question(reading.filled, list)
    under_test = _question(reading.under_test, dict)
    cells = _question(reading.cells, list)
    trials = _question(reading.trials, list)
    benchmarks = _question(reading.benchmarks, list)
    alarms = _question(reading.alarms, list)
    marks = _question(reading.marks, list)
    runs = _question(by_suite.runs, list)
    suites = _question(by_suite.suites, list)
    suite_runs = _question(by_suite.suite_runs, list)
    run = _question(by_suite.run, lambda: None)
    cells_of_runs = _question(by_suite.cells_of_runs, list)
    run_cells = _question(by_suite.run_cells, list)
    past_cells = _question(by_suite.past_cells, list)
    past = _question(read_past, RunPast)


MISSED = "not-in-history"  # a file in the run folder: the history that the run is missing in


def add_missed(runs: Path, history: History) -> list[str]:
    """Add the runs in the folder of runs that are missing in this history, oldest first; those that were added. Raises
    HistoryError."""
    marks = sorted(runs.glob(f"*/{MISSED}")) if runs.is_dir() else []
    found = []
    for mark in marks:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if mark.read_text().strip() == _place(history):
                found.append(RunFolder(mark.parent))
    return [folder.run for folder in found if add_run(folder, history)]


def add_run(folder: RunFolder, history: History) -> bool:
    """Add one run; False when it has no results, or none that can be read. Raises HistoryError."""
    results = folder.read_results()
    if results is None:
        return False
    history.add(results)
    (folder.path / MISSED).unlink(missing_ok=True)
    return True


def add_or_mark(folder: RunFolder, results: RunResults, history: History) -> None:
    """Add a run that has just ended; where that fails, mark it to be added later. Raises HistoryError."""
    try:
        history.add(results)
    except HistoryError:
        with contextlib.suppress(OSError):  # the results are there, and `seatrial history add` needs no mark
            (folder.path / MISSED).write_text(_place(history) + "\n")
        raise
    (folder.path / MISSED).unlink(missing_ok=True)


def _place(history: History) -> str:
    """A server's address as it is shown, without a password; of a file, wherever it is named from."""
    return history.place if "://" in history.place else str(Path(history.place).resolve())
