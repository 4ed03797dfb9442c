"""A real PostgreSQL server of Debian's packages, in a folder of its own, reached through a socket there."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

OWNER = "postgres"  # the server refuses to be root
TRIES = 5  # ports that another process may take before the server does


class NoPostgres(Exception):
    """Why there can be no server here."""


class PostgresServer:
    """Started by `start`, gone with its folder after `remove`. Every `database` is a new, empty one.

    It also listens on a port of loopback with `network`: one that is to start again after its end may find that port
    taken by then.
    """

    def __init__(self, network: bool = True) -> None:
        self._network = network
        self._bin = _programs()
        self._as_owner = _as_owner()
        # Not in a folder of the test: those are for root alone, and too long for the name of a socket.
        self.folder = Path(tempfile.mkdtemp(prefix="seatrial-pg-"))
        if self._as_owner:
            shutil.chown(self.folder, OWNER, OWNER)
        self._data = self.folder / "data"
        self._run("initdb", "-D", self._data, "-U", "admin", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        # Whoever comes through the network needs a password; the socket is for whoever may enter the folder.
        (self._data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
        self.port = 5432  # a part of the socket's name, in a folder that no other server uses

    def start(self) -> None:
        for tries_left in reversed(range(TRIES)):
            if self._network:
                self.port = _free_port()
            listen = "127.0.0.1" if self._network else ""
            settings = f"-p {self.port} -c listen_addresses='{listen}' -c unix_socket_directories={self.folder}"
            log = self.folder / "log.txt"
            try:
                self._run(
                    "pg_ctl", "-D", self._data, "-l", log, "-w", "-t", "600", "-o", f"{settings} -c fsync=off", "start"
                )
                return
            except NoPostgres as error:
                said = log.read_text() if log.exists() else ""
                if "Address already in use" not in said or not tries_left:
                    raise NoPostgres(f"{error}\n{said}") from error
                log.unlink()

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "-t", "600", "stop")

    def kill(self) -> None:
        """As by `kill -9` of the whole server."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        all_of_it = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        for pid in all_of_it:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(_alive(pid) for pid in all_of_it):
            time.sleep(0.01)
        # Else a dead process that nobody has waited for yet passes for a server.
        for lock in (self._data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink()

    def remove(self) -> None:
        if (self._data / "postmaster.pid").exists():
            with contextlib.suppress(NoPostgres):  # it was killed
                self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self) -> str:
        """The URL of a new database."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, user: str = "admin") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    def sql(self, text: str, database: str = "postgres") -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *args: object) -> None:
        argv = [*self._as_owner, str(self._bin / program), *map(str, args)]
        done = subprocess.run(argv, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise NoPostgres(f"{program} failed: {done.stdout[-2000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _programs() -> Path:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    found = shutil.which("initdb", path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))
    if not found:
        raise NoPostgres("there is no PostgreSQL server here (Debian: postgresql)")
    return Path(found).resolve().parent


def _as_owner() -> Sequence[str]:
    if os.getuid() != 0:
        return ()
    try:
        pwd.getpwnam(OWNER)
    except KeyError:
        raise NoPostgres(f"there is no user {OWNER} to run the server as") from None
    if not shutil.which("setpriv"):
        raise NoPostgres("there is no setpriv to run the server as another user")
    return ("setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--init-groups", "--reset-env")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except NoPostgres as error:
        pytest.skip(str(error))
    try:
        server.start()
        yield server
    finally:
        server.remove()
