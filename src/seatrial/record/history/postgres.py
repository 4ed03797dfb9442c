"""The history in a PostgreSQL database, in a schema of its own: one history for several machines.

Passwords belong into `~/.pgpass`, a service file or PGPASSWORD. One in the URL works, too, and is never shown.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.job import Unreadable
from seatrial.record.history.data import HIDDEN, HistoryError, place_text
from seatrial.record.history.schema import MIGRATIONS, SCHEMA_VERSION, Session, newer, statements

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_Answer = TypeVar("_Answer")

_PATIENCE_S = 60.0  # how long a writer waits for the others
_CONNECT_S = 10
_TAKE_LOCK = b"SELECT pg_advisory_xact_lock(%d)" % 0x5EA7_71A1  # of all writers: one at a time, as in SQLite
_AGAIN = frozenset({"40001", "40P01", "23505", "55P03"})  # lost against another writer; nothing was done

_THERE = """
SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = 'seatrial' AND pg_class.relname = 'version'
"""

_ADVICE = {
    "25006": "The server takes no changes just now (a standby, or read-only); use one that does.",
    "28P01": "Check user and password: in the URL, ~/.pgpass or PGPASSWORD.",
    "28000": "Check the user, and what pg_hba.conf of the server allows.",
    "3D000": "Create the database, or check its name.",
    "42501": "Let this user create a schema in the database, or write to its schema `seatrial`.",
    "53100": "Free some space on the server's disk.",
    "53300": "The server has no connection left; try again, or raise max_connections.",
}
# What comes before there is a connection has no state, only words.
_BY_WORDS = {"password": "28P01", "pg_hba.conf": "28000", "does not exist": "3D000", "too many clients": "53300"}


class PostgresSession:
    far = True

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(_ours(sql), values)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            with self._connection.cursor() as cursor:
                cursor.executemany(_ours(sql), rows)


def _ours(sql: str) -> Any:
    return sql.replace("?", "%s").encode()


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = url
        self.place = place_text(url)
        self._password = ""  # once it is known

    def read(self, use: Callable[[Session], _Answer], empty: _Answer) -> _Answer:
        """What `use` finds in one state of the database; `empty` when there is none yet."""

        def read(connection: "Connection") -> _Answer:
            if self._version(connection) is None:
                return empty
            return self._used(connection, use, b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        return self._patiently(read)

    def write(self, use: Callable[[Session], _Answer]) -> _Answer:
        """All that `use` does, or nothing of it."""
        return self._patiently(lambda connection: self._used(connection, use, _TAKE_LOCK))

    def _used(self, connection: "Connection", use: Callable[[Session], _Answer], first: bytes) -> _Answer:
        if (self._version(connection) or 0) < SCHEMA_VERSION:
            self._migrate(connection)
        with connection.transaction():
            connection.execute(first)
            connection.execute("SET LOCAL search_path = seatrial")
            return use(PostgresSession(connection))

    def _version(self, connection: "Connection") -> int | None:
        """None when there is no history in this database."""
        # Read from the catalogue as from a table: to_regclass may answer from a cache that is older than the lock.
        if connection.execute(_THERE).fetchone() is None:
            return None
        found = connection.execute("SELECT max(number) FROM seatrial.version").fetchone()
        version = int(found[0] or 0) if found else 0
        if version > SCHEMA_VERSION:
            raise HistoryError(self.place, newer(version), "Upgrade Seatrial, or use another history.")
        return version

    def _migrate(self, connection: "Connection") -> None:
        """Bring the database to our version. Several may try at once: it is read again under the lock."""
        with connection.transaction():
            connection.execute(_TAKE_LOCK)
            version = self._version(connection)
            if version is None:
                there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'seatrial'").fetchone()
                if not there:  # who may not create schemas can be given an empty one
                    connection.execute("CREATE SCHEMA seatrial")
                connection.execute("CREATE TABLE seatrial.version (number INTEGER PRIMARY KEY)")
            connection.execute("SET LOCAL search_path = seatrial")
            for number in range(version or 0, SCHEMA_VERSION):
                for statement in statements(MIGRATIONS[number].postgres):
                    connection.execute(statement.encode())
                if everywhere := MIGRATIONS[number].everywhere:
                    everywhere(PostgresSession(connection))
                connection.execute("INSERT INTO seatrial.version VALUES (%s)", (number + 1,))

    def _patiently(self, use: "Callable[[Connection], _Answer]") -> _Answer:
        """Connect, use, disconnect; again when another writer was in the way."""
        try:
            import psycopg
        except ImportError as error:
            advice = "Install it: pip install 'seatrial[postgres]'."
            raise HistoryError(self.place, "the driver psycopg is not installed", advice) from error
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
                # The driver would take half of a password for the name of a server or a database, and print it.
                raise ProgrammingError
            parsed = conninfo_to_dict(self._url)
        except ProgrammingError:  # its text quotes what it could not read, which may be a password
            form = "Its form is postgresql://USER@HOST:PORT/DATABASE"
            advice = f"{form}; @ : / ? # % in a user name or password are written %40 %3A %2F %3F %23 %25."
            raise HistoryError(self.place, "the URL cannot be read", advice) from None
        self._password = str(parsed.get("password") or "")
        return {
            "connect_timeout": _CONNECT_S,
            "tcp_user_timeout": int(_PATIENCE_S * 1000),  # a server that vanished is an error, not a wait
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
            raise HistoryError(self.place, masked, self._advice(error)) from None
        except Unreadable as error:
            raise HistoryError(self.place, f"a row of it is damaged: {error}", "Put back a copy of it.") from error

    @staticmethod
    def _advice(error: "psycopg.Error") -> str:
        state = error.sqlstate or next((state for words, state in _BY_WORDS.items() if words in str(error)), "")
        if state in _ADVICE:
            return _ADVICE[state]
        if not state or state.startswith(("08", "57")):
            return "Check that the server runs and can be reached from here, then try again."
        return "The server refused; what it said is above."
