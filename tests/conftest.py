"""Fixtures of all tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from world import World

pytest_plugins = ["cluster_selection"]

# How long an example takes says nothing of what is tested, only of what else the machine does. The same examples every
# time: what fails once fails again, for whoever has to find out why.
hypothesis.settings.register_profile("seatrial", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("seatrial")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling anew takes as long as all the rest that a command does
    env["SEATRIAL_STATE"] = str(tmp_path / "state")
    made = World(tmp_path, env)
    yield made
    made.reap()
