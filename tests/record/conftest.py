"""A PostgreSQL server for all tests of a worker, and the two places that a history can be at."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import NoPostgres, PostgresServer


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgres: needs a PostgreSQL server (Debian: postgresql)")


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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a history is to be that is not there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "history.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()
