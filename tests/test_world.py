"""The tests' own eyes: `World.left()` finds a leftover of each sort, and only while it is there."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from world import World

SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.fixture
def others() -> Iterator[None]:
    """Processes that are none of the world's, before and after the one that is to be found."""
    started = [subprocess.Popen(SLEEPS, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    yield
    for process in started:
        process.communicate()


def started(command: list[str], **more: object) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)  # type: ignore[call-overload]
    assert process.stdout.readline() == b"up\n"
    return process  # type: ignore[no-any-return]


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("mark", ["SEATRIAL_STATE={}", "SEATRIAL_FILES={}/jobs/run/job/files"])
def test_a_process_is_found_by_its_environment(world: World, mark: str) -> None:
    name, _, value = mark.format(world.state).partition("=")
    process = started(SLEEPS, env={**os.environ, name: value})
    assert [line.split()[0] for line in world.left()] == [str(process.pid)]
    process.communicate()
    assert world.left() == []


@pytest.mark.usefixtures("others")
def test_every_process_is_found_that_holds_a_file_open(world: World) -> None:
    world.state.mkdir()
    processes = []
    for name in ("first", "second", "third"):
        with (world.state / name).open("w") as file:
            processes.append(started(SLEEPS, pass_fds=(file.fileno(),)))
    assert {line.split()[0] for line in world.left()} == {str(process.pid) for process in processes}
    for process in processes:
        process.communicate()
    assert world.left() == []


def test_a_process_that_ended_and_waits_for_its_parent_is_none(world: World) -> None:
    with started(SLEEPS, env={**os.environ, "SEATRIAL_STATE": str(world.state)}) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert world.left() == []


def test_the_folder_of_a_job_is_found(world: World) -> None:
    folder = world.state / "jobs" / "run" / "run-69b56f04-1"
    folder.mkdir(parents=True)
    assert world.left() == [str(folder)]
    folder.rmdir()
    assert world.left() == []


def test_a_control_group_of_a_run_is_found(world: World) -> None:
    (world.folder / "runs" / "brave-hen").mkdir(parents=True)
    hierarchies = [path for path in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*")) if path.is_dir()]
    group = next((made for path in hierarchies if (made := made_group(path))), None)
    if group is None:
        pytest.skip("may not make a control group here")
    try:
        assert world.left() == [str(group)]
    finally:
        group.rmdir()
    assert world.left() == []


def made_group(hierarchy: Path) -> Path | None:
    if not (hierarchy / "cgroup.procs").exists():
        return None
    group = hierarchy / f"seatrial-brave-hen-69b56f04-1-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    return group


def test_a_mount_in_the_folder_of_a_job_is_found(world: World) -> None:
    point = world.state / "jobs" / "run" / "job" / "files"
    point.mkdir(parents=True)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point]).returncode != 0:
        pytest.skip("may not mount here")
    try:
        assert f"mount {point}" in world.left()
    finally:
        subprocess.run(["umount", point], check=True)
    assert f"mount {point}" not in world.left()


def test_what_a_job_left_is_reaped_and_what_is_not_ours_to_reap_fails_the_test(world: World) -> None:
    (world.state / "jobs" / "run" / "run-69b56f04-1").mkdir(parents=True)
    gone = world.state / "jobs" / "run" / "run-69b56f04-2"
    with started(SLEEPS, env={**os.environ, "SEATRIAL_FILES": str(gone / "files")}) as stray:
        world.reap()
        assert world.left() == []
        assert stray.wait() == -signal.SIGKILL
    seatrial = started(SLEEPS, env={**os.environ, "SEATRIAL_STATE": str(world.state)})
    with pytest.raises(AssertionError, match="still there"):
        world.reap()
    seatrial.communicate()


def test_the_process_of_a_detached_run_may_take_its_time_to_exit(world: World) -> None:
    code = "import time; print('up', flush=True); time.sleep(1)"
    process = started(
        [sys.executable, "-c", code, "-m", "seatrial", "attach", "last"],
        env={**os.environ, "SEATRIAL_STATE": str(world.state)},
    )
    world.reap()
    process.communicate()
    assert process.returncode == 0
