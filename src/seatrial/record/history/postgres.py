"""The history in a PostgreSQL database, in the schema `seatrial`: one history for several machines.

Put passwords in `~/.pgpass`, a service file or PGPASSWORD. A password in the URL also works and is never shown.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.extras import install_command
from seatrial.job import Unreadable
from seatrial.record.history.data import HIDDEN, HistoryError, masked_location
from seatrial.record.history.schema import SCHEMA_VERSION, Session, migrate, supported

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_Answer = TypeVar("_Answer")

_PATIENCE_S = 60.0  # how long a writer waits for other writers
_CONNECT_S = 10
_TAKE_LOCK = b"SELECT pg_advisory_xact_lock(%d)" % 0x5EA7_71A1  # one writer at a time, as in SQLite
_AGAIN = frozenset({"40001", "40P01", "23505", "55P03"})  # conflict with another writer; nothing was written

_THERE = """
SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = 'seatrial' AND pg_class.relname = 'version'
"""

_ADVICE = {
    "25006": "The server is read-only, for example a standby; use a writable one.",
    "28P01": "Check the user and the password in the URL, ~/.pgpass or PGPASSWORD.",
    "28000": "Check the user and the server's pg_hba.conf.",
    "3D000": "Create the database, or check its name.",
    "42501": "Allow this user to create a schema in the database, or to write to the schema `seatrial`.",
    "53100": "Free space on the server's disk.",
    "53300": "The server is out of connections; try again, or raise max_connections.",
}
# Errors while connecting have no SQLSTATE, only a text.
_BY_WORDS = {"password": "28P01", "pg_hba.conf": "28000", "does not exist": "3D000", "too many clients": "53300"}


class PostgresSession:
    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(_ours(sql), values)
        return cursor.fetchall() if cursor.description else []

    def each(self, sql: str, values: Iterable[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        with self._connection.pipeline():
            cursors = [self._connection.execute(_ours(sql), one) for one in values]
        return [cursor.fetchall() for cursor in cursors]

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            with self._connection.cursor() as cursor:
                cursor.executemany(_ours(sql), rows)


def _ours(sql: str) -> Any:
    return sql.replace("?", "%s").replace(" WITHOUT ROWID", "").encode()


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = url
        self.location = masked_location(url)
        self._password = ""  # set when the URL is parsed

    def read(self, use: Callable[[Session], _Answer], empty: _Answer) -> _Answer:
        """Runs `use` in a read-only transaction; `empty` if there is no history yet."""

        def read(connection: "Connection") -> _Answer:
            if self._version(connection) is None:
                return empty
            return self._used(connection, use, b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        return self._patiently(read)

    def write(self, use: Callable[[Session], _Answer]) -> _Answer:
        """Runs `use` in a transaction."""
        return self._patiently(lambda connection: self._used(connection, use, _TAKE_LOCK))

    def _used(self, connection: "Connection", use: Callable[[Session], _Answer], first: bytes) -> _Answer:
        if (self._version(connection) or 0) < SCHEMA_VERSION:
            self._migrate(connection)
        with connection.transaction():
            connection.execute(first)
            connection.execute("SET LOCAL search_path = seatrial")
            return use(PostgresSession(connection))

    def _version(self, connection: "Connection") -> int | None:
        """None if there is no history in this database."""
        # Query the catalog tables: to_regclass may use a cache that is older than the lock.
        if connection.execute(_THERE).fetchone() is None:
            return None
        found = connection.execute("SELECT max(number) FROM seatrial.version").fetchone()
        return supported(int(found[0] or 0) if found else 0, self.location)

    def _migrate(self, connection: "Connection") -> None:
        """Migrates the database to our version, which is read again under the lock: others may migrate, too."""
        with connection.transaction():
            connection.execute(_TAKE_LOCK)
            version = self._version(connection)
            if version is None:
                there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'seatrial'").fetchone()
                if not there:  # users without permission may have been given an empty schema
                    connection.execute("CREATE SCHEMA seatrial")
                connection.execute("CREATE TABLE seatrial.version (number INTEGER PRIMARY KEY)")
            connection.execute("SET LOCAL search_path = seatrial")
            for number in migrate(PostgresSession(connection), version or 0):
                connection.execute("INSERT INTO seatrial.version VALUES (%s)", (number,))

    def _patiently(self, use: "Callable[[Connection], _Answer]") -> _Answer:
        """Connects, calls `use`, disconnects; retries on a conflict with another writer."""
        try:
            import psycopg
        except ImportError as error:
            advice = f"Run {install_command('postgres')}"
            raise HistoryError(self.location, "psycopg is not installed", advice) from error
        parameters = self._parameters()
        until = time.monotonic() + _PATIENCE_S
        pause_s = 0.01
        while True:
            with self._errors():
                try:
                    with psycopg.connect(**parameters, autocommit=True) as connection:
                        return use(connection)
                except psycopg.Error as error:
                    if error.sqlstate not in _AGAIN or time.monotonic() > until:
                        raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _parameters(self) -> dict[str, Any]:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        rest = self._url.partition("://")[2]
        authority = rest.partition("/")[0].partition("?")[0]
        try:
            if rest.count("@") > authority.count("@") or authority.count("@") > 1:
                # psycopg would parse half of the password as a host or database name, and print it.
                raise ProgrammingError
            parsed = conninfo_to_dict(self._url)
        except ProgrammingError:  # its text may contain the password
            form = "Use postgresql://USER@HOST:PORT/DATABASE"
            advice = f"{form}; in a user name or password write @ : / ? # % as %40 %3A %2F %3F %23 %25."
            raise HistoryError(self.location, "invalid URL", advice) from None
        self._password = str(parsed.get("password") or "")
        return {
            "connect_timeout": _CONNECT_S,
            "tcp_user_timeout": int(_PATIENCE_S * 1000),  # fail if the server disappears
            "application_name": "seatrial",
            **parsed,
            "options": f"{parsed.get('options', '')} -c lock_timeout={int(_PATIENCE_S * 1000)}".strip(),
        }

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            reason = " ".join(str(error).split()) or "the connection was lost"
            masked = reason.replace(self._password, HIDDEN) if self._password else reason
            raise HistoryError(self.location, masked, self._advice(error)) from None
        except Unreadable as error:
            raise HistoryError(self.location, f"damaged row: {error}", "Restore a backup.") from error

    @staticmethod
    def _advice(error: "psycopg.Error") -> str:
        state = error.sqlstate or next((state for words, state in _BY_WORDS.items() if words in str(error)), "")
        if state in _ADVICE:
            return _ADVICE[state]
        if not state or state.startswith(("08", "57")):
            return "Check that the server is running and reachable, then try again."
        return "The server rejected the request."
