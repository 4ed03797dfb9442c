"""A PostgreSQL server for all tests of a worker, the two places of a history, and pauses that take no time."""

import time
from pathlib import Path

import pytest

from record.postgres_server import PostgresServer, postgres

__all__ = ["postgres"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgres: needs a PostgreSQL server (Debian: postgresql)")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a history is to be that is not there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "history.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses
