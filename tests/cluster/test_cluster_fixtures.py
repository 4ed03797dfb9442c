"""Clusters that test runs share: two users have the same one, and a test run that was killed leaves nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import left_of

from cluster.cluster import clusters
from cluster.fixtures import _take_down_unused

pytestmark = pytest.mark.cluster
USER = """
import sys
from cluster.fixtures import shared
with shared("fake", {}) as made:
    print(made.folder, flush=True)
    sys.stdin.read()
"""


def _user(temporary: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", USER],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TMPDIR": str(temporary), "PYTEST_XDIST_TESTRUNUID": "one-run"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_last_user_takes_it_down_and_a_killed_one_does_not_count(tmp_path: Path, kubernetes: Path) -> None:
    place = tmp_path / f"seatrial-test-clusters-{os.getuid()}"
    first, second, killed = _user(tmp_path), _user(tmp_path), _user(tmp_path)
    try:
        for user in (first, second, killed):
            assert user.stdout is not None
        folders = {user.stdout.readline().strip() for user in (first, second, killed) if user.stdout}
        assert len(folders) == 1, "all have the same"
        folder = Path(folders.pop())
        first.communicate(timeout=600)
        _take_down_unused(place)
        assert [one.folder for one in clusters(place / "clusters")] == [folder], "others still use it"
        killed.kill()
        killed.communicate()
        second.kill()
        second.communicate()
        assert left_of(folder) != []
        _take_down_unused(place)
        assert left_of(folder) == []
    finally:
        for user in (first, second, killed):
            user.kill()
            user.communicate()
        _take_down_unused(place)
