"""One history, wherever it is kept: what goes in, and what can be asked of it."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from seatrial.job import RunResults
from seatrial.record.folder import RunFolder
from seatrial.record.history import past, reading, writing
from seatrial.record.history import suites as by_suite
from seatrial.record.history.data import (
    ACCEPTED,
    ALWAYS,
    MARKS,
    Alarm,
    CellRow,
    HistoryError,
    Mark,
    RunPast,
    RunRow,
    Series,
    TimeWindow,
    TrialRow,
    key,
    place_text,
    text,
)
from seatrial.record.history.schema import Session
from seatrial.record.history.sqlite import SqliteDatabase
from seatrial.record.history.suites import PastCell, RunCell, SuiteRow, SuiteRun

_Answer = TypeVar("_Answer")

_LAST = 20  # attempts of a cell that its expected duration is taken from


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


class History:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.place = database.place  # for people: without a password

    def add(self, *runs: RunResults) -> None:
        """Keep all metrics of a run, or of several at once; what was known of the same runs before is replaced."""

        def write(session: Session) -> None:
            for results in runs:
                writing.write_run(session, results)

        self._database.write(write)

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
        self._database.write(lambda session: writing.add_mark(session, mark))

    def durations(self, hashes: Iterable[str] | None = None) -> dict[str, float]:
        """Seconds that each cell is expected to take: the median of its last 20 attempts that ended as they should.

        Cells that the history does not know are not in the answer. `hashes` None asks for every cell that it knows.
        """
        wanted = None if hashes is None else list(hashes)
        none: dict[str, list[float]] = {}
        found = self._database.read(lambda session: reading.durations(session, wanted, _LAST), none)
        if not found:
            return {}
        from statistics import median

        return {cell: median(seconds) for cell, seconds in found.items()}

    def series(
        self,
        trial: str | None = None,
        benchmark: str | None = None,
        metric: str | None = None,
        fingerprint: str | None = None,
        last: int | None = None,
    ) -> list[Series]:
        """The series that fit all that is given, in the order of their names; of each the `last` points."""
        wanted = _wanted(trial=trial, benchmark=benchmark, metric=metric, fingerprint=fingerprint)
        return self._database.read(
            lambda session: reading.with_points(session, reading.series_names(session, wanted, None, False), last), []
        )

    def names(self, trial: str | None = None, run: str | None = None, judged: bool = False) -> list[Series]:
        """Series without their points: of a trial, of those that a run added to; only those with a `better`."""
        wanted, of_run = _wanted(trial=trial), None if run is None else key(run)
        return self._database.read(lambda session: reading.series_names(session, wanted, of_run, judged), [])

    def filled(self, names: list[Series], last: int | None = None, window: TimeWindow = ALWAYS) -> list[Series]:
        """These series with their `last` points in the window. One that has none there is left out."""
        return self._database.read(lambda session: reading.with_points(session, names, last, window), [])

    def under_test(self, trial: str, benchmark: str) -> dict[str, dict[str, str]]:
        """What was under test in each run of a benchmark, where that was kept."""
        none: dict[str, dict[str, str]] = {}
        return self._database.read(lambda session: reading.under_test(session, key(trial), key(benchmark)), none)

    def runs(self, last: int | None = None) -> list[RunRow]:
        """Runs, oldest first; of them the `last`."""
        return self._database.read(lambda session: reading.runs(session, last), [])

    def cells(self, trial: str, last: int | None = None) -> list[CellRow]:
        """What each cell of a trial came to in its `last` runs, oldest first."""
        return self._database.read(lambda session: reading.cells(session, key(trial), last), [])

    def suites(self, last: int) -> list[SuiteRow]:
        """Every suite with its `last` runs; the one that ran last comes first."""
        return self._database.read(lambda session: by_suite.suites(session, last), [])

    def suite_runs(self, suite: str, last: int, before: str = "") -> list[SuiteRun]:
        """The `last` runs of a suite, oldest first; of those that are older than the run `before`."""
        return self._database.read(lambda session: by_suite.suite_runs(session, text(suite), last, key(before)), [])

    def run(self, run: str) -> SuiteRun | None:
        return self._database.read(lambda session: by_suite.one_run(session, key(run)), None)

    def cells_of_runs(self, runs: Sequence[str], most: int) -> list[RunCell]:
        """What the cells of these runs came to; of more than `most` those of the last runs, whole runs only."""
        return self._database.read(lambda session: by_suite.cells_of_runs(session, runs, most), [])

    def run_cells(self, run: str, most: int) -> list[PastCell]:
        """What the cells of a run came to and why, in the order of their ids."""
        return self._database.read(lambda session: by_suite.run_cells(session, key(run), most), [])

    def past_cells(self, suite: str, cell: str, last: int, before: str = "") -> list[PastCell]:
        """The `last` runs of a cell of a suite, named by its id or the hash that it once had, oldest first; of those
        that are older than the run `before`."""

        def read(session: Session) -> list[PastCell]:
            id_ = by_suite.cell_id(session, text(suite), key(cell)) or key(cell)
            return by_suite.past_cells(session, text(suite), id_, last, key(before))

        return self._database.read(read, [])

    def past(self, results: RunResults) -> RunPast:
        """What was known of a run's cells and causes before they ran; whether the run itself is kept, is the same."""
        return self._database.read(lambda session: past.read_past(session, results), RunPast())

    def trials(self) -> list[TrialRow]:
        return self._database.read(reading.trials, [])

    def benchmarks(self, run: str) -> list[str]:
        """The benchmarks of a run."""
        return self._database.read(lambda session: reading.benchmarks(session, key(run)), [])

    def alarms(self) -> list[Alarm]:
        """Every `slower` and `faster` that a run gave, oldest first, with what a person said of it."""
        return self._database.read(reading.read_alarms, [])

    def marks(self) -> list[Mark]:
        """All that people ever said, oldest first."""
        return self._database.read(reading.read_marks, [])


def _wanted(**which: str | None) -> dict[str, str]:
    return {column: key(value) for column, value in which.items() if value is not None}


MISSED = "not-in-history"  # a file in the run folder: the history that the run is missing in


def mark_missed(folder: Path, history: History) -> None:
    """Mark a run that could not be added to the history when it ended, so that it is added later. Never raises: the
    results are there, and `seatrial history add` takes them without this, too."""
    with contextlib.suppress(OSError):
        (folder / MISSED).write_text(_place(history) + "\n")


def missed_runs(runs: Path, history: History) -> list[RunFolder]:
    """Those in the folder of runs that are missing in this history, oldest first."""
    marks = sorted(runs.glob(f"*/{MISSED}")) if runs.is_dir() else []
    found = []
    for mark in marks:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if mark.read_text().strip() == _place(history):
                found.append(RunFolder(mark.parent))
    return found


def add_missed(runs: Path, history: History) -> list[str]:
    """Add what is missing; the runs that were added. Raises HistoryError."""
    return [folder.run for folder in missed_runs(runs, history) if add_run(folder, history)]


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
        mark_missed(folder.path, history)
        raise
    (folder.path / MISSED).unlink(missing_ok=True)


def _place(history: History) -> str:
    """A server's address as it is shown, without a password; of a file, wherever it is named from."""
    return history.place if "://" in history.place else str(Path(history.place).resolve())
