"""The tables of the history, the same in SQLite and PostgreSQL, and their migrations, with the statements of
`schema.sql`."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from itertools import islice
from typing import Any, Protocol, TypeVar

from seatrial.record.history.data import HistoryError, cell_number, key, series_id

_T = TypeVar("_T")
_TOGETHER = 500


class Session(Protocol):
    """An open connection. SQL is written with `?` for each value."""

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...

    def each(self, sql: str, values: Iterable[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        """The rows of one query with each of these values; over a network in few round trips."""

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None: ...


def batches(values: Iterable[_T]) -> Iterator[list[_T]]:
    """Lists of at most _TOGETHER values, for one query each."""
    left = iter(values)
    while some := list(islice(left, _TOGETHER)):
        yield some


def places(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


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


def _count_cells(session: Session) -> None:
    counts: dict[str, dict[str, int]] = {}
    for run, verdict, number, flaky in session.execute(
        "SELECT run, verdict, count(*), sum(flaky) FROM cells GROUP BY run, verdict"
    ):
        of = counts.setdefault(run, {})
        of[verdict] = number
        of["flaky"] = of.get("flaky", 0) + int(flaky)
    session.many("UPDATE runs SET counts = ? WHERE run = ?", [(json.dumps(of), run) for run, of in counts.items()])
    targets: dict[str, list[str]] = {}
    for run, target in session.execute("SELECT DISTINCT run, target FROM attempts ORDER BY target"):
        targets.setdefault(run, []).append(target)
    session.many("UPDATE runs SET targets = ? WHERE run = ?", [(json.dumps(of), run) for run, of in targets.items()])
    texts: dict[tuple[str, str], list[Any]] = {}
    for run, causes, verdict, why in session.execute(
        "SELECT run, cause, verdict, CASE WHEN headline <> '' THEN headline ELSE why END FROM cells WHERE cause <> ''"
    ):
        texts.setdefault((run, causes.partition(" ")[0]), [verdict, why, 0])[2] += 1
    query = "UPDATE causes SET verdict = ?, headline = ?, cells = ? WHERE run = ? AND cause = ?"
    session.many(query, [(*values, *of) for of, values in texts.items()])


_SECTION = re.compile(r"^-- version (\d+)(?: of (\w+))?$", re.MULTILINE)
# Steps in Python after the statements of a version. PostgreSQL never had metrics of version 1.
_STEPS: dict[tuple[int, str], Callable[[Session], None]] = {
    (2, "sqlite"): _metrics_into_series,
    (6, "sqlite"): _number_cells,
    (6, "postgres"): _number_cells,
    (9, "sqlite"): _count_cells,
    (9, "postgres"): _count_cells,
}
SCHEMA_VERSION = 9


def migrate(session: Session, dialect: str, version: int) -> Iterator[int]:
    """Migrates a database of this version, which is 0 for an empty one. Yields each version that it reaches."""
    sections = _SECTION.split((files(__package__) / "schema.sql").read_text(encoding="utf-8"))[1:]
    scripts = list(zip(map(int, sections[::3]), sections[1::3], sections[2::3], strict=True))
    for number in range(version + 1, SCHEMA_VERSION + 1):
        for script in [script for of, only, script in scripts if of == number and only in (None, dialect)]:
            for statement in script.strip().removesuffix(";").split(";"):
                session.execute(statement if dialect == "sqlite" else statement.replace(" WITHOUT ROWID", ""))
        if step := _STEPS.get((number, dialect)):
            step(session)
        yield number


def supported(version: int, location: str) -> int:
    """Returns the version of a database. Raises HistoryError if a newer Seatrial wrote it."""
    if version > SCHEMA_VERSION:
        why = f"written by a newer Seatrial (version {version}, this one supports {SCHEMA_VERSION})"
        raise HistoryError(location, why, "Upgrade Seatrial, or use another history.")
    return version
