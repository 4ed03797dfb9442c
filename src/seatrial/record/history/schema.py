"""The tables of the history, the same in SQLite and PostgreSQL, and their migrations.

Only append to MIGRATIONS: the n-th migrates a database from version n to n + 1. PostgreSQL started at version 2.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec

from seatrial.record.history.data import cell_number, key, series_id

_T = TypeVar("_T")
_TOGETHER = 500


class Session(Protocol):
    """An open connection. SQL is written with `?` for each value."""

    far: bool  # whether each query is a network round trip

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None: ...


def batches(values: Iterable[_T]) -> Iterator[list[_T]]:
    """Lists of at most _TOGETHER values, for one query each."""
    left = iter(values)
    while some := list(islice(left, _TOGETHER)):
        yield some


def places(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


class Migration(msgspec.Struct, frozen=True):
    sqlite: str
    postgres: str
    also: Callable[[Session], None] | None = None  # steps in Python after `sqlite`
    everywhere: Callable[[Session], None] | None = None  # steps in Python after `sqlite` and `postgres`


_ATTEMPTS = """
CREATE TABLE attempts (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, host TEXT NOT NULL, verdict TEXT NOT NULL, outcome TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION,
    PRIMARY KEY (run, hash, number)
)%s;
CREATE INDEX attempts_that_passed ON attempts (hash, started_s DESC, seconds)
    WHERE verdict IN ('passed', 'xfail') AND seconds IS NOT NULL;
"""

_VERSION_1 = f"""
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
{_ATTEMPTS % " WITHOUT ROWID"}
CREATE TABLE metrics (
    hash TEXT NOT NULL, name TEXT NOT NULL, started_s REAL NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, value REAL NOT NULL, unit TEXT NOT NULL,
    PRIMARY KEY (hash, name, started_s, run)
) WITHOUT ROWID;
CREATE INDEX metrics_of_run ON metrics (run);
"""

# Version 2: series of metrics, and marks. `points` is clustered in read order and repeats columns of its cell, so that
# reading 100,000 points needs no joins; its `id` is empty if it equals the benchmark.
_SERIES = """
CREATE TABLE series (
    id BIGINT PRIMARY KEY, trial TEXT NOT NULL, benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL,
    metric TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL
)%(plain)s;
CREATE INDEX series_of_trial ON series (trial);
CREATE INDEX series_of_benchmark ON series (benchmark);
CREATE TABLE points (
    series BIGINT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL, verdict TEXT NOT NULL, host TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (series, at_s, run, hash)
)%(plain)s;
CREATE INDEX points_of_run ON points (run);
CREATE TABLE marks (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL, word TEXT NOT NULL,
    reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, at_s)
)%(plain)s;
CREATE INDEX cells_with_alarm ON cells (at_s) WHERE verdict IN ('slower', 'faster');
CREATE INDEX cells_of_trial ON cells (trial, run);
"""

_VERSION_2_OF_SQLITE = f"""
ALTER TABLE runs ADD COLUMN "commit" TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN benchmark TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN at_s DOUBLE PRECISION NOT NULL DEFAULT 0;
{_SERIES % {"plain": " WITHOUT ROWID"}}
"""

_VERSION_2_OF_POSTGRES = f"""
CREATE TABLE runs (
    run TEXT PRIMARY KEY, suite TEXT NOT NULL, suite_path TEXT NOT NULL, verdict TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION NOT NULL, interrupted INTEGER NOT NULL,
    seatrial TEXT NOT NULL, "commit" TEXT NOT NULL
);
CREATE INDEX runs_by_time ON runs (started_s);
CREATE TABLE cells (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, id TEXT NOT NULL,
    trial TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, flaky INTEGER NOT NULL, why TEXT NOT NULL,
    benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL, host TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (run, hash)
);
CREATE INDEX cells_by_hash ON cells (hash, run);
{_ATTEMPTS % ""}
{_SERIES % {"plain": ""}}
"""

# Marks of a single metric of a benchmark.
_VERSION_3 = """
CREATE TABLE marks_of_metrics (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, metric TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    word TEXT NOT NULL, reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, metric, at_s)
)%s;
INSERT INTO marks_of_metrics SELECT run, benchmark, '', at_s, word, reason, said_by FROM marks;
DROP TABLE marks;
ALTER TABLE marks_of_metrics RENAME TO marks;
"""

# Conditions by fingerprint, and what is under test by its digest; each set is stored once.
_VERSION_4 = """
CREATE TABLE settings (id TEXT PRIMARY KEY, fields TEXT NOT NULL)%s;
ALTER TABLE cells ADD COLUMN under_test TEXT NOT NULL DEFAULT '';
"""

# The runs of a cell are queried by id, because its hash changes with the suite.
_VERSION_5 = "CREATE INDEX cells_by_id ON cells (id, run);"

# Headline and cause of a cell; `cell` is its number in the suite, the same in all runs.
_VERSION_6 = """
ALTER TABLE cells ADD COLUMN cell BIGINT NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN headline TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN cause TEXT NOT NULL DEFAULT '';
CREATE INDEX cells_through_time ON cells (cell, at_s, verdict, flaky, cause) WHERE verdict <> 'skipped';
CREATE INDEX cells_of_cause ON cells (cause, at_s) WHERE cause <> '';
"""

# A cell may have several causes: `cells.cause` has their ids in order, and `causes` has each cause of a run once.
_VERSION_7 = """
CREATE TABLE causes (
    cause TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL, run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    PRIMARY KEY (cause, at_s, run)
)%s;
CREATE INDEX causes_of_run ON causes (run);
INSERT INTO causes SELECT cause, min(at_s), run FROM cells WHERE cause <> '' GROUP BY cause, run;
DROP INDEX cells_of_cause;
"""

# The last run in which bounds checked the metric, so that lost bounds are noticed.
_VERSION_8 = "ALTER TABLE series ADD COLUMN checked TEXT NOT NULL DEFAULT '';"


def benchmark_of(cell_id: str) -> str:
    """The default benchmark name of a cell: its id without the axis `repeat`."""
    trial, _, rest = cell_id.partition("[")
    if "repeat=" not in rest or not rest.endswith("]"):
        return cell_id
    axes = [axis for axis in rest[:-1].split(",") if not axis.startswith("repeat=")]
    return f"{trial}[{','.join(axes)}]" if axes else trial


def _metrics_into_series(session: Session) -> None:
    """Converts the metrics of version 1, which were stored by cell hash, to points of series."""
    session.execute(
        "UPDATE cells SET at_s = (SELECT started_s FROM runs WHERE runs.run = cells.run),"
        " host = coalesce((SELECT host FROM attempts WHERE attempts.run = cells.run AND attempts.hash = cells.hash"
        " ORDER BY number DESC LIMIT 1), '')"
    )
    cells = session.execute("SELECT run, hash, id, trial, verdict, host FROM cells")
    named = [(key(benchmark_of(cell_id)), run, hash_) for run, hash_, cell_id, *_ in cells]
    session.many("UPDATE cells SET benchmark = ? WHERE run = ? AND hash = ?", named)
    known = {(run, hash_): rest for run, hash_, *rest in cells}
    series: dict[int, tuple[Any, ...]] = {}
    points = []
    query = "SELECT hash, name, started_s, run, value, unit FROM metrics ORDER BY started_s"
    for hash_, name, at_s, run, value, unit in session.execute(query):
        cell_id, trial, verdict, host = known.get((run, hash_), (hash_, "", "", ""))
        benchmark = key(benchmark_of(cell_id))
        number = series_id(benchmark, "", key(name), key(unit))
        series[number] = (number, key(trial), benchmark, "", key(name), key(unit), "")
        own_id = "" if cell_id == benchmark else cell_id
        points.append((number, at_s, run, hash_, value, verdict, host, own_id, ""))
    session.many("INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?)", list(series.values()))
    session.many("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", points)
    session.execute("DROP TABLE metrics")


def _number_cells(session: Session) -> None:
    rows = session.execute("SELECT cells.run, cells.hash, cells.id, runs.suite FROM cells JOIN runs USING (run)")
    numbered = [(cell_number(suite, benchmark_of(cell_id)), run, hash_) for run, hash_, cell_id, suite in rows]
    session.many("UPDATE cells SET cell = ? WHERE run = ? AND hash = ?", numbered)


MIGRATIONS = (
    Migration(_VERSION_1, ""),
    Migration(_VERSION_2_OF_SQLITE, _VERSION_2_OF_POSTGRES, _metrics_into_series),
    Migration(_VERSION_3 % " WITHOUT ROWID", _VERSION_3 % ""),
    Migration(_VERSION_4 % " WITHOUT ROWID", _VERSION_4 % ""),
    Migration(_VERSION_5, _VERSION_5),
    Migration(_VERSION_6, _VERSION_6, everywhere=_number_cells),
    Migration(_VERSION_7 % " WITHOUT ROWID", _VERSION_7 % ""),
    Migration(_VERSION_8, _VERSION_8),
)
SCHEMA_VERSION = len(MIGRATIONS)


def statements(script: str) -> list[str]:
    return [statement for statement in script.split(";") if statement.strip()]


def newer(version: int) -> str:
    return f"written by a newer Seatrial (version {version}, this one supports {SCHEMA_VERSION})"
