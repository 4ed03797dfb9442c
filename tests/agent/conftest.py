"""The agent as a zipapp and its zygote, for tests that run real jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Supervised, Zygote

from seatrial.targets.agent_file import agent_file


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return agent_file(tmp_path_factory.mktemp("agent"), compiled=True)


@pytest.fixture(scope="session")
def zygote(agent: Path) -> Iterator[Zygote]:
    zygote = Zygote(agent)
    yield zygote
    zygote.close()


@pytest.fixture
def job(zygote: Zygote, tmp_path: Path) -> Supervised:
    return Supervised(zygote, tmp_path / "job")
