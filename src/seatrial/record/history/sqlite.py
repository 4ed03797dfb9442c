"""The history in a SQLite file in WAL mode: readers do not wait, writers wait for each other."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.job import Unreadable
from seatrial.record.history.data import HistoryError
from seatrial.record.history.schema import SCHEMA_VERSION, Session, migrate, supported

if TYPE_CHECKING:
    import sqlite3

_Answer = TypeVar("_Answer")

_PATIENCE_S = 60.0  # how long a writer waits for other writers


class SqliteSession:
    def __init__(self, connection: "sqlite3.Connection") -> None:
        self._connection = connection

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def each(self, sql: str, values: Iterable[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        return [self.execute(sql, one) for one in values]

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        self._connection.executemany(sql, rows)


class SqliteDatabase:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.location = str(path)

    def read(self, use: Callable[[Session], _Answer], empty: _Answer) -> _Answer:
        """Runs `use` in a transaction; `empty` if there is no database yet."""
        with self._errors():
            if not self._path.exists():
                return empty
            return self._patiently("BEGIN", use)

    def write(self, use: Callable[[Session], _Answer]) -> _Answer:
        """Runs `use` in a transaction."""
        with self._errors():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._patiently("BEGIN IMMEDIATE", use)

    def _patiently(self, begin: str, use: Callable[[Session], _Answer]) -> _Answer:
        """Opens, calls `use`, closes; retries while it is locked, because SQLite's timeout does not cover all locks."""
        import sqlite3

        until = time.monotonic() + _PATIENCE_S
        pause_s = 0.01
        while True:
            connection = self._connect(begin == "BEGIN")
            try:
                self._prepare(connection)
                connection.execute(begin)
                answer = use(SqliteSession(connection))
                connection.execute("COMMIT")
                return answer
            except sqlite3.OperationalError as error:
                busy = (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() > until:
                    raise
            finally:
                connection.close()
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _connect(self, reading: bool) -> "sqlite3.Connection":
        import sqlite3

        where = self._path.absolute().as_uri()
        # WAL needs sidecar files. A read-only folder has no writer, so open the database as immutable.
        if reading and not os.access(self._path.parent, os.W_OK) and not Path(f"{self._path}-wal").exists():
            where += "?immutable=1"
        return sqlite3.connect(where, timeout=10.0, isolation_level=None, uri=True)

    def _prepare(self, connection: "sqlite3.Connection") -> None:
        """Migrates the database to our version, which is read again under the lock: others may migrate, too."""
        if self._version(connection) != SCHEMA_VERSION:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            for number in migrate(SqliteSession(connection), self._version(connection)):
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA foreign_keys = ON")

    def _version(self, connection: "sqlite3.Connection") -> int:
        return supported(int(connection.execute("PRAGMA user_version").fetchone()[0]), self.location)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.DatabaseError as error:
            raise HistoryError(self.location, str(error), _advice(error)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise HistoryError(self.location, reason, "Check the folder and its permissions.") from error
        except Unreadable as error:
            raise HistoryError(self.location, f"damaged row: {error}", "Restore a backup.") from error


def _advice(error: "sqlite3.DatabaseError") -> str:
    import sqlite3

    match (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF:
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return "Move it away; the next run creates a new one. Each run still has its results.json."
        case sqlite3.SQLITE_FULL:
            return "Free space on that disk."
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "It is locked by another process; stop that process or try again."
        case sqlite3.SQLITE_READONLY:
            return "It is read-only; make it writable or choose another with --history."
        case _:
            return "Check the file and its folder's permissions."
