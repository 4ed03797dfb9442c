"""What an older Python of the same minor version does otherwise: that of Debian 12 (3.11.2) wraps an exception that is
raised out of `except*` into a group, so that nobody catches it."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

import seatrial
from world import World

SYSTEM = "/usr/bin/python3"
VERSION = "import sys; print(*sys.version_info[:3])"


@pytest.fixture
def system_python() -> str:
    """Of the same minor version, so that the installed packages work with it."""
    done = subprocess.run([SYSTEM, "-c", VERSION], capture_output=True, text=True) if os.path.exists(SYSTEM) else None
    version = tuple(map(int, done.stdout.split())) if done is not None and done.returncode == 0 else ()
    if version[:2] != sys.version_info[:2] or version == sys.version_info[:3]:
        pytest.skip(f"{SYSTEM} is no other Python {sys.version_info[0]}.{sys.version_info[1]}")
    return SYSTEM


def test_a_full_disk_stops_the_run_with_the_reason(world: World, system_python: str) -> None:
    world.suite('name: old\ntrials: {t: {kind: runtime, facts: false, run: ["true"]}}')
    path = os.pathsep.join([str(Path(seatrial.__file__).parent.parent), *site.getsitepackages()])
    stopped = subprocess.run(
        [system_python, "-m", "seatrial", "run", "suite.yaml"],
        cwd=world.folder,
        env={**world.env, "PYTHONPATH": path, "SEATRIAL_FAILPOINT": "7:ENOSPC"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert "the run stopped: " in stopped.stderr
    assert "No space left on device" in stopped.stderr
