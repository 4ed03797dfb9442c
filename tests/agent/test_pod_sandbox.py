"""In a pod the kernel holds the steps to their memory; where it would end the agent with them, the agent is quicker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.agent.contain.sandbox import Sandbox, pod_sandbox

LIMIT = 1 << 30


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """The files of version 2 as a container sees them."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "memory.oom.group").write_text("1\n")
    (folder / "memory.current").write_text("1000\n")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 3\noom_group_kill 1\n")
    held(folder, 1000)
    return folder


def held(folder: Path, anonymous: int) -> None:
    (folder / "memory.stat").write_text(f"anon {anonymous}\nfile 999999999999\nshmem 0\n")


def test_the_kernel_counts_where_it_ends_single_processes(groups: Path, tmp_path: Path) -> None:
    (groups / "memory.oom.group").write_text("0\n")
    sandbox = pod_sandbox(LIMIT, str(tmp_path / "oom"), str(groups))
    assert (type(sandbox), sandbox.oom_kills(), sandbox.next_check_s()) == (Sandbox, 3, None)


def test_the_kernel_counts_on_version_1(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert pod_sandbox(LIMIT, str(tmp_path / "oom"), str(tmp_path)).oom_kills() == 2


def test_nothing_is_watched_without_a_limit(groups: Path, tmp_path: Path) -> None:
    assert pod_sandbox(None, str(tmp_path / "oom"), str(groups)).next_check_s() is None


def test_without_any_control_group_no_kill_is_claimed(tmp_path: Path) -> None:
    assert pod_sandbox(LIMIT, str(tmp_path / "oom"), str(tmp_path / "none")).oom_kills() == 0


# A process of its own, for a sandbox kills what is below it.
CHILD = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from seatrial.agent.contain.sandbox import pod_sandbox
sandbox = pod_sandbox(%d, sys.argv[2], sys.argv[3])
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
while child.poll() is None:
    sandbox.check_memory()
    time.sleep(0.01)
print(child.returncode, sandbox.oom_kills(), flush=True)
"""


def test_where_the_whole_container_would_go_the_largest_process_goes_a_little_before(
    groups: Path, tmp_path: Path
) -> None:
    import seatrial

    source = str(Path(seatrial.__file__).parent.parent)
    argv = [sys.executable, "-c", CHILD % LIMIT, source, str(tmp_path / "oom"), str(groups)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        child = int(watcher.stdout.readline())
        held(groups, int(LIMIT * 0.94))
        time.sleep(0.3)
        os.kill(child, 0)  # it is still there
        held(groups, int(LIMIT * 0.96))
        assert watcher.stdout.readline().split() == [str(-signal.SIGKILL), "1"]
    assert (tmp_path / "oom").read_text() == "oom_kill 1\n"


TWICE = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from seatrial.agent.contain import sandbox
sandbox.CHECK_S = 0.0
watched = sandbox.pod_sandbox(%d, sys.argv[2], sys.argv[3])
child = subprocess.Popen(["sleep", "1000"])
for _ in range(100):
    watched.check_memory()
print(child.wait(), watched.oom_kills())
"""


def test_a_process_that_takes_a_moment_to_die_is_killed_for_memory_once(groups: Path, tmp_path: Path) -> None:
    import seatrial

    held(groups, LIMIT)
    source = str(Path(seatrial.__file__).parent.parent)
    argv = [sys.executable, "-c", TWICE % LIMIT, source, str(tmp_path / "oom"), str(groups)]
    assert subprocess.check_output(argv, text=True).split() == [str(-signal.SIGKILL), "1"]


def test_without_a_counter_that_can_be_read_the_processes_are_counted(groups: Path, tmp_path: Path) -> None:
    (groups / "memory.stat").unlink()
    sandbox = pod_sandbox(LIMIT, str(tmp_path / "oom"), str(groups))
    assert sandbox._held_bytes([5, 6]) == 11
