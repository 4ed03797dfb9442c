"""The tables of the history, the same in SQLite and PostgreSQL, and their migrations, with the statements of
`schema.sql`."""

import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import islice
from typing import Any, Protocol, TypeVar

from seatrial.record.history.data import HistoryError, cell_number

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


_SECTION = re.compile(r"^-- version (\d+)$", re.MULTILINE)
_STEPS = {6: _number_cells, 9: _count_cells}  # after the statements of a version
SCHEMA_VERSION = 9


def migrate(session: Session, version: int) -> Iterator[int]:
    """Migrates a database of this version, which is 0 for an empty one. Yields each version that it reaches."""
    sections = _SECTION.split((files(__package__) / "schema.sql").read_text(encoding="utf-8"))[1:]
    for number, script in zip(map(int, sections[::2]), sections[1::2], strict=True):
        if number > version:
            for statement in script.strip().removesuffix(";").split(";"):
                session.execute(statement)
            if step := _STEPS.get(number):
                step(session)
            yield number


def supported(version: int, location: str) -> int:
    """Returns the version of a database. Raises HistoryError if a newer Seatrial wrote it."""
    if version > SCHEMA_VERSION:
        why = f"written by a newer Seatrial (version {version}, this one supports {SCHEMA_VERSION})"
        raise HistoryError(location, why, "Upgrade Seatrial, or use another history.")
    return version
