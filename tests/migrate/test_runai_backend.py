"""When the control plane of Run:ai knew of jobs, from a database such as its own."""

import pytest

from record.postgres_server import PostgresServer, postgres
from seatrial import SeatrialError
from seatrial.migrate.runai.sample import backend_times
from world import World

__all__ = ["postgres"]
pytestmark = pytest.mark.postgres

TABLE = """
CREATE TABLE jobs (name text, project text, type text, kind text, exists_in_cluster boolean, cluster_uuid uuid,
                   time_created bigint);
INSERT INTO jobs VALUES
    ('j-1', 'team', 'Train', 'RunaiJob', true, '00000000-0000-0000-0000-000000000001', 1725802835123),
    ('j-2', 'team', 'Train', 'RunaiJob', true, '00000000-0000-0000-0000-000000000002', 1725802836000),
    ('gone', 'team', 'Train', 'RunaiJob', false, '00000000-0000-0000-0000-000000000001', 1725802835123),
    ('other', 'others', 'Train', 'RunaiJob', true, '00000000-0000-0000-0000-000000000001', 1725802835123),
    ('d-1', 'team', 'Train', 'PyTorchJob', true, '00000000-0000-0000-0000-000000000001', 1725802837500);
"""


def backend_of(server: PostgresServer, sql: str = TABLE) -> str:
    url = server.database()
    server.sql(sql, url.partition("@/")[2].partition("?")[0])
    return url


def test_times_are_of_the_jobs_of_a_project_that_are_there_in_milliseconds(postgres: PostgresServer) -> None:
    url = backend_of(postgres)
    first = {"j-1": "2024-09-08T13:40:35.123+00:00"}
    assert backend_times(url, "team", "training", None) == {**first, "j-2": "2024-09-08T13:40:36.000+00:00"}
    assert backend_times(url, "team", "training", "00000000-0000-0000-0000-000000000001") == first
    assert backend_times(url, "team", "distributed", None) == {"d-1": "2024-09-08T13:40:37.500+00:00"}


def test_a_database_that_is_something_else_is_told_and_nothing_is_written(
    world: World, postgres: PostgresServer
) -> None:
    for url in ("postgresql://me:se/cret@host/d", "postgresql://me:secret@host/d", "host=h port=x", "postgresql://%"):
        with pytest.raises(SeatrialError, match="use postgresql://USER@HOST:PORT/DATABASE and set the password in"):
            backend_times(url, "team", "training", None)
    nothing = postgres.database()
    (world.folder / "logs").mkdir()
    told = world.seatrial("scale", "sample", check=3, SEATRIAL_BACKEND=nothing).stderr
    assert 'relation "jobs" does not exist' in told
    assert "omit --backend" in told
    assert list((world.folder / "logs").iterdir()) == []
