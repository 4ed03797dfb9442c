"""The history: a SQLite database of past runs, their attempts and their figures.

1. `add` is keyed by the run: adding it again replaces what is known of it, in one transaction.
2. Several processes may add and read at the same time (write-ahead log); a writer waits its turn.
3. A missing file is an empty history. One that cannot be read or written raises HistoryError and nothing else: whoever
   ends a run can report it and still has `results.json`.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.job import Attempt, CellResult, RunResults, Stage

if TYPE_CHECKING:
    import sqlite3

Answer = TypeVar("Answer")

LAST = 20  # attempts of a cell that its expected duration is taken from
PATIENCE_S = 60.0  # how long a writer waits for the others

_VERSION_1 = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, suite TEXT NOT NULL, suite_path TEXT NOT NULL, verdict TEXT NOT NULL,
    started_s REAL NOT NULL, seconds REAL NOT NULL, interrupted INTEGER NOT NULL, seatrial TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (started_s);
CREATE TABLE cells (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, id TEXT NOT NULL,
    trial TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, flaky INTEGER NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (run, hash)
) WITHOUT ROWID;
CREATE INDEX cells_by_hash ON cells (hash, run);
CREATE TABLE attempts (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, host TEXT NOT NULL, verdict TEXT NOT NULL, outcome TEXT NOT NULL,
    started_s REAL NOT NULL, seconds REAL,
    PRIMARY KEY (run, hash, number)
) WITHOUT ROWID;
CREATE INDEX attempts_that_passed ON attempts (hash, started_s DESC, seconds)
    WHERE verdict IN ('passed', 'xfail') AND seconds IS NOT NULL;
CREATE TABLE metrics (
    hash TEXT NOT NULL, name TEXT NOT NULL, started_s REAL NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, value REAL NOT NULL, unit TEXT NOT NULL,
    PRIMARY KEY (hash, name, started_s, run)
) WITHOUT ROWID;
CREATE INDEX metrics_of_run ON metrics (run);
"""

# One script a version: the n-th takes a database of version n to n + 1. Only ever append.
_MIGRATIONS = (_VERSION_1,)

_OF_CELL = """
SELECT seconds FROM attempts WHERE hash = ? AND verdict IN ('passed', 'xfail') AND seconds IS NOT NULL
ORDER BY started_s DESC LIMIT ?
"""


class HistoryError(Exception):
    """The history at `path` cannot be used; `reason` says why, `advice` what to do. No result is lost by it."""

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"history {path}: {reason}. {advice}")
        self.path = path
        self.reason = reason
        self.advice = advice


def add(path: Path, results: RunResults) -> None:
    """Keep all figures of a run; what was known of the same run before is replaced."""

    def write(connection: "sqlite3.Connection") -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM runs WHERE run = ?", (results.run,))
        connection.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                results.run,
                results.suite,
                results.suite_path,
                results.verdict.value,
                results.started_s,
                results.seconds,
                results.interrupted,
                results.seatrial,
            ),
        )
        for cell in results.cells:
            _add_cell(connection, results, cell)
        connection.execute("COMMIT")

    with _errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _patiently(path, write)


def durations(path: Path, hashes: Iterable[str] | None = None) -> dict[str, float]:
    """Seconds that each cell is expected to take: the median of its last 20 attempts that ended as they should.

    Cells that the history does not know are not in the answer. `hashes` None asks for every cell that it knows.
    """
    if not path.exists():
        return {}

    def read(connection: "sqlite3.Connection") -> dict[str, float]:
        wanted = hashes
        if wanted is None:
            wanted = [row[0] for row in connection.execute("SELECT DISTINCT hash FROM attempts").fetchall()]
        found = {}
        for cell in wanted:
            seconds = [row[0] for row in connection.execute(_OF_CELL, (cell, LAST))]
            if seconds:
                found[cell] = median(seconds)
        return found

    with _errors(path):
        return _patiently(path, read)


def numbers(metrics: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float, str]]:
    """The figures in a cell's metrics as (name, value, unit).

    A figure is a number, or a mapping with a `value` and perhaps a `unit`; other mappings are groups, whose figures get
    dotted names. What is not a finite number has no place in a series and is left to results.json.
    """
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if _is_number(value.get("value")):
                yield name, float(value["value"]), str(value.get("unit") or "")
            else:
                yield from numbers(value, f"{name}.")
        elif _is_number(value):
            yield name, float(value), ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _add_cell(connection: "sqlite3.Connection", results: RunResults, cell: CellResult) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (results.run, cell.hash, cell.id, cell.trial, cell.kind, cell.verdict.value, cell.flaky, cell.why),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                results.run,
                cell.hash,
                attempt.number,
                attempt.place.target,
                attempt.place.machine,
                attempt.place.host,
                attempt.verdict.value,
                attempt.exit.outcome.value,
                _started_s(attempt, results),
                attempt.seconds,
            )
            for attempt in cell.attempts
        ],
    )
    started_s = _started_s(cell.attempts[-1], results) if cell.attempts else results.started_s
    connection.executemany(
        "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
        [(cell.hash, name, started_s, results.run, value, unit) for name, value, unit in numbers(cell.metrics)],
    )


def _started_s(attempt: Attempt, results: RunResults) -> float:
    times = {time.stage: time.wall_s for time in attempt.stages}
    return times.get(Stage.STARTED, times.get(Stage.CREATED, results.started_s))


def _patiently(path: Path, use: "Callable[[sqlite3.Connection], Answer]") -> Answer:
    """Open, use, close; again while others hold it. SQLite's own waiting does not cover every lock, so we wait too."""
    import sqlite3

    until = time.monotonic() + PATIENCE_S
    pause_s = 0.01
    while True:
        connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
        try:
            _prepare(path, connection)
            return use(connection)
        except sqlite3.OperationalError as error:
            busy = (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > until:
                raise
        finally:
            connection.close()
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)


def _prepare(path: Path, connection: "sqlite3.Connection") -> None:
    """Bring the database to our version. Two processes may try at once: the version is read again under the lock."""
    connection.execute("PRAGMA foreign_keys = ON")
    if _version(path, connection) == len(_MIGRATIONS):
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(_version(path, connection), len(_MIGRATIONS)):
        for statement in _MIGRATIONS[number].split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number + 1}")
    connection.execute("COMMIT")


def _version(path: Path, connection: "sqlite3.Connection") -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(_MIGRATIONS):
        raise HistoryError(
            path,
            f"it was written by a newer Seatrial (version {version}, this one knows {len(_MIGRATIONS)})",
            "Upgrade Seatrial, or use another runs folder.",
        )
    return version


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    import sqlite3

    try:
        yield
    except sqlite3.DatabaseError as error:
        raise HistoryError(path, str(error), _advice(error)) from error
    except OSError as error:
        raise HistoryError(path, error.strerror or str(error), "Check the folder and its permissions.") from error


def _advice(error: "sqlite3.DatabaseError") -> str:
    import sqlite3

    match (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return "Move it away: the next run starts a new one, and every run's own results.json is still there."
        case sqlite3.SQLITE_FULL:
            return "Free some space on that disk."
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "Another process holds it; end that one or try again."
        case _:
            return "Check the file and its folder's permissions."
