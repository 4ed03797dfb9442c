"""Fixtures of all tests."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from cluster.places import cache_place
from world import World

pytest_plugins = ["cluster_selection"]

# How long an example takes says nothing of what is tested, only of what else the machine does. The same examples every
# time: what fails once fails again, for whoever has to find out why.
hypothesis.settings.register_profile("seatrial", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("seatrial")

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tests"


def _use_own_cache() -> None:
    """Environments of other Seatrials on this machine are not ours to use or to wait for. The programs of clusters take
    minutes to build: all checkouts share those. uv's downloads are shared too."""
    if os.environ.get("SEATRIAL_CACHE") == str(CACHE):  # a worker of xdist inherits it
        return
    programs = cache_place()
    programs.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    link = CACHE / "cluster"
    if not link.is_symlink() or link.readlink() != programs:
        link.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # another run of the tests was quicker
            link.symlink_to(programs)
    os.environ["SEATRIAL_CACHE"] = str(CACHE)


_use_own_cache()


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """For whatever has no state of its own, as the tests of one world have."""
    os.environ["SEATRIAL_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling anew takes as long as all the rest that a command does
    env["SEATRIAL_CACHE"] = str(CACHE)
    env["SEATRIAL_STATE"] = str(tmp_path / "state")
    made = World(tmp_path, env)
    yield made
    made.reap()
