"""The history on a PostgreSQL server: every way in which a server can refuse or go, no password in any message, and how
one of an older version is taken over."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from past import VERSION_2, run, timed

from record.postgres_server import PostgresServer
from seatrial.record.history import HistoryError, open_history
from seatrial.record.history.data import cell_number
from seatrial.record.history.schema import SCHEMA_VERSION

pytestmark = pytest.mark.postgres

PASSWORD = "hush-9f2c"


@pytest.fixture
def own_server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """One that a test may kill. That another could be started says that this one can."""
    server = PostgresServer(network=False)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def database_of(url: str) -> str:
    return url.split("@/")[1].split("?")[0]


def error_of(url: str) -> str:
    """What adding a run says, at any depth of the error."""
    with pytest.raises(HistoryError) as caught:
        open_history(url).add(run("r1", timed(1.0)))
    assert caught.value.__cause__ is None
    return f"{caught.value} {caught.value!r} {vars(caught.value)}"


def test_tables_are_in_a_schema_of_their_own_and_leave_others_alone(postgres: PostgresServer) -> None:
    url = postgres.database()
    name = database_of(url)
    postgres.sql("CREATE TABLE runs (mine TEXT)", name)
    history = open_history(url)
    history.add(run("r1", timed(1.0)))
    assert [one.run for one in history.runs()] == ["r1"]
    assert postgres.sql("SELECT count(*) FROM public.runs", name) == [(0,)]
    assert postgres.sql("SELECT count(*) FROM seatrial.runs", name) == [(1,)]


def test_a_server_killed_in_the_middle_loses_nothing_that_was_kept(own_server: PostgresServer) -> None:
    history = open_history(own_server.database())
    history.add(run("r1", timed(1.0)))

    def interrupted(session) -> None:  # type: ignore[no-untyped-def]
        session.execute("DELETE FROM runs")
        own_server.kill()
        session.execute("DELETE FROM points")

    with pytest.raises(HistoryError, match="Check that the server is running"):
        history.database.write(interrupted)
    with pytest.raises(HistoryError, match="Check that the server is running"):
        history.series()
    own_server.start()
    assert [one.values for one in history.series()] == [[1.0]]


def test_a_wrong_password_is_refused_and_not_told(postgres: PostgresServer) -> None:
    said = error_of(f"postgresql://admin:{PASSWORD}@127.0.0.1:{postgres.port}/postgres")
    assert "password authentication failed" in said
    assert "admin:***@127.0.0.1" in said
    assert "PGPASSWORD" in said
    assert PASSWORD not in said


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{PASSWORD}@[::bad/db",
        f"postgresql://ann:{PASSWORD}%zz@127.0.0.1:1/db",
        f"postgresql://ann:x@{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://ann@127.0.0.1:1/db?password={PASSWORD}",
        f"postgresql://127.0.0.1:1/db?user=ann&password={PASSWORD}&nonsense=1",
        f"postgresql://ann:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://ann:1/{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://ann:1?{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://ann:1#{PASSWORD}@127.0.0.1:1/db",
        f"postgres://ann:{PASSWORD}@127.0.0.1:port/db",
    ],
)
def test_no_url_however_odd_tells_its_password(url: str) -> None:
    assert PASSWORD not in error_of(url)


def test_the_right_password_opens_a_history_through_the_network(postgres: PostgresServer) -> None:
    name = database_of(postgres.database())
    postgres.sql(f'CREATE ROLE "{name}" LOGIN PASSWORD \'p@ss:/w%\'; GRANT ALL ON DATABASE {name} TO "{name}"', name)
    history = open_history(f"postgresql://{name}:p%40ss%3A%2Fw%25@127.0.0.1:{postgres.port}/{name}")
    history.add(run("r1", timed(1.0)))
    assert [one.run for one in history.runs()] == ["r1"]
    assert "***" in history.location


def test_a_server_that_takes_no_changes_can_be_read_and_says_so_when_written(postgres: PostgresServer) -> None:
    url = postgres.database()
    open_history(url).add(run("r1", timed(1.0)))
    closed = f"{url}&options=-c%20default_transaction_read_only%3Don"
    assert [one.values for one in open_history(closed).series()] == [[1.0]]
    assert "is read-only" in error_of(closed)


def test_who_may_only_read_can_read(postgres: PostgresServer) -> None:
    url = postgres.database()
    name = database_of(url)
    open_history(url).add(run("r1", timed(1.0)))
    grant = "GRANT USAGE ON SCHEMA seatrial TO {0}; GRANT SELECT ON ALL TABLES IN SCHEMA seatrial TO {0}"
    postgres.sql(f"CREATE ROLE {name}_reader LOGIN; {grant.format(f'{name}_reader')}", name)
    reader = postgres.url(name, f"{name}_reader")
    assert [one.values for one in open_history(reader).series()] == [[1.0]]
    assert "write to the schema `seatrial`" in error_of(reader)


def test_who_may_create_no_schema_can_be_given_one(postgres: PostgresServer) -> None:
    url = postgres.database()
    name = database_of(url)
    postgres.sql(f"CREATE ROLE {name}_user LOGIN", name)
    mine = postgres.url(name, f"{name}_user")
    assert "create a schema" in error_of(mine)
    postgres.sql(f"CREATE SCHEMA seatrial AUTHORIZATION {name}_user", name)
    open_history(mine).add(run("r1", timed(1.0)))
    assert len(open_history(mine).runs()) == 1


def test_a_history_of_a_newer_seatrial_is_refused(postgres: PostgresServer) -> None:
    url = postgres.database()
    open_history(url).add(run("r1", timed(1.0)))
    postgres.sql("INSERT INTO seatrial.version VALUES (99)", database_of(url))
    with pytest.raises(HistoryError, match=r"newer Seatrial.*99.*Upgrade"):
        open_history(url).series()
    assert "newer Seatrial" in error_of(url)


def test_no_such_database_and_no_such_server_say_what_to_do(postgres: PostgresServer, tmp_path: Path) -> None:
    assert "Create the database" in error_of(postgres.url("nowhere"))
    assert "Check that the server is running" in error_of(f"postgresql://admin@/x?host={tmp_path}")


def test_without_the_driver_it_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from seatrial.record.history import open_history, HistoryError\n"
        "try: open_history('postgresql://ann:hush@db/x').runs()\n"
        "except HistoryError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "-m uv pip install" in done.stdout
    assert "hush" not in done.stdout


def test_the_commands_take_a_url_from_the_environment(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.database()
    for number in range(3):
        open_history(url).add(run(f"r{number}", timed(1.0, at_s=float(number))))
    seatrial = str(Path(sys.executable).with_name("seatrial"))
    env = {**os.environ, "SEATRIAL_HISTORY": url}

    def said(*args: str) -> str:
        argv = [seatrial, *args, "--runs", str(tmp_path)]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

    assert "3 runs" in said("history")
    assert "step_time" in said("history", "t")
    assert "t[n=a] of r1: regression" in said(
        "history", "mark", "r1", "--regression", "--reason", "x", "--benchmark", "t[n=a]"
    )
    assert [point.mark for point in open_history(url).series()[0].points] == ["", "regression", ""]


SCHEMA = """
CREATE SCHEMA seatrial;
SET search_path = seatrial;
CREATE TABLE version (number INTEGER PRIMARY KEY);
INSERT INTO version VALUES (1), (2);
"""
ADD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from past import *\n"
    "from seatrial.record.history import open_history, schema\n"
    "new = cell('aa', 1.0, id='works[n=1,repeat=1]', trial='works', started_s=400.0,\n"
    "           metrics={'peak': {'value': 15, 'unit': 'MiB'}})\n"
)


@pytest.fixture
def of_version_2(postgres: PostgresServer) -> str:
    """The URL of a history that was filled by that version."""
    url = postgres.database()
    postgres.sql(SCHEMA + VERSION_2, database_of(url))
    return url


def test_a_history_of_version_2_is_taken_over_without_loss(postgres: PostgresServer, of_version_2: str) -> None:
    history = open_history(of_version_2)
    assert history.durations() == {"aa": 4.0, "ab": 6.0}
    (peak,) = history.filled(history.names("works"))
    assert (peak.benchmark, peak.metric, peak.unit, peak.values) == ("works[n=1]", "peak", "MiB", [12.0, 13.0, 14.0])
    assert [(point.run, point.verdict, point.host, point.mark) for point in peak.points] == [
        ("r1", "passed", "node-1", ""),
        ("r1", "passed", "node-2", ""),
        ("r2", "failed", "node-1", "regression"),
    ]
    assert [(one.run, one.verdict, one.commit) for one in history.runs()] == [
        ("r1", "passed", "c0ffee"),
        ("r2", "failed", ""),
    ]
    assert [(one.run, one.metric, one.reason) for one in history.marks()] == [("r2", "", "a worse driver")]
    through_time = history.past_cells("nightly", "works[n=1,repeat=1]", 9)
    assert [(one.run, one.verdict, one.why) for one in through_time] == [
        ("r1", "passed", ""),
        ("r2", "failed", "because"),
    ]
    name = database_of(of_version_2)
    assert postgres.sql("SELECT max(number) FROM seatrial.version", name) == [(SCHEMA_VERSION,)]
    numbers = postgres.sql("SELECT DISTINCT cell FROM seatrial.cells", name)
    assert numbers == [(cell_number("nightly", "works[n=1]"),)]


def test_several_processes_take_over_a_history_of_version_2_at_once(of_version_2: str) -> None:
    add = ADD + "open_history(sys.argv[2]).add(run(sys.argv[3], new))"
    argv = [sys.executable, "-c", add, str(Path(__file__).parent), of_version_2]
    added = [subprocess.Popen([*argv, f"n{number}"]) for number in range(3)]
    assert [one.wait() for one in added] == [0, 0, 0]
    assert open_history(of_version_2).series(metric="peak")[0].values == [12.0, 13.0, 14.0, 15.0, 15.0, 15.0]
    assert len(open_history(of_version_2).runs()) == 5


def test_a_migration_killed_in_the_middle_starts_again(postgres: PostgresServer, of_version_2: str) -> None:
    die = (
        ADD + "import os; schema.cell_number = lambda *parts: os.kill(os.getpid(), 9)\nopen_history(sys.argv[2]).runs()"
    )
    argv = [sys.executable, "-c", die, str(Path(__file__).parent), of_version_2]
    assert subprocess.run(argv).returncode == -9
    assert postgres.sql("SELECT max(number) FROM seatrial.version", database_of(of_version_2)) == [(2,)]
    assert open_history(of_version_2).series(metric="peak")[0].values == [12.0, 13.0, 14.0]
