"""A run that is taken up on another machine than it was begun on, and what is not this machine's to touch."""

import shutil
import signal
import socket
import time
from pathlib import Path

import pytest
from far_world import FarWorld, another_machine, ran, waiting_world

from seatrial.record import RunFolder
from world import World


@pytest.fixture
def far(world: World) -> FarWorld:
    return waiting_world(world, "moves")


def known(far: FarWorld) -> int:
    """Jobs whose handle is written down: a job may begin before that is."""
    return far.run().journal.read_bytes().count(b'"event":"submitted"')


def killed_and_copied(far: FarWorld, at_least: int, *options: str) -> Path:
    """A run of which so many jobs have begun when its process is killed; its folder, carried to another place."""
    process = far.start("run", "suite.yaml", *options)
    try:
        while len(ran(far)) < at_least or known(far) < at_least:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    copy = far.folder / "carried" / far.run().run
    shutil.copytree(far.run().path, copy)
    return copy


@another_machine
def test_a_carried_run_is_finished_on_another_machine_and_nothing_runs_twice(far: FarWorld) -> None:
    copy = killed_and_copied(far, 2, "--target", far.target, "--parallel", "2")
    (far.place / "go").touch()
    done = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on {socket.gethostname()}; cannot check from here" in done.stderr
    assert ran(far) == ["1", "2", "3"]
    logs = "".join(path.read_text() for path in copy.glob("cells/*/1/log.txt"))
    assert all(f"out of {number}\n" in logs for number in (1, 2, 3))
    assert far.far_jobs() == []


@another_machine
def test_a_job_of_another_machine_alone_is_told_as_that_and_not_tried_again(far: FarWorld) -> None:
    copy = killed_and_copied(far, 2, "--parallel", "2")
    (far.place / "go").touch()
    done = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "runs on another machine; use it there (this is elsewhere)" in done.stdout
    cells = RunFolder(copy).read_results().cells  # type: ignore[union-attr]
    assert sorted(str(cell.verdict) for cell in cells) == ["invalid", "invalid", "passed"]
    assert all(len(cell.attempts) == 1 for cell in cells)
    assert ran(far) == ["1", "2", "3"]


@another_machine
def test_a_local_job_that_was_only_meant_on_another_machine_is_not_started_here(far: FarWorld) -> None:
    (far.place / "go").touch()
    options = ("suite.yaml", "--select", "n=1")
    log = far.folder / "points"
    far.seatrial("run", *options, check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    planned = next(line.split()[0] for line in log.read_text().splitlines() if line.endswith("synced planned"))
    (far.place / "ran").unlink()
    assert far.seatrial("run", *options, SEATRIAL_FAILPOINT=planned).returncode == -signal.SIGKILL
    copy = far.folder / "carried" / far.run().run
    shutil.copytree(far.run().path, copy)
    done = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert done.returncode == 1
    assert f"the job may still be running on {socket.gethostname()}" in done.stdout
    assert "out of reach from elsewhere" in done.stdout
    assert ran(far) == []


@another_machine
@pytest.mark.parametrize("command", ["attach", "cancel"])
def test_a_run_that_somebody_else_works_on_stops_and_nothing_is_changed(far: FarWorld, command: str) -> None:
    copy = killed_and_copied(far, 2, "--target", far.target, "--parallel", "2")
    far.say("holder", socket.gethostname())
    done = far.elsewhere(command, str(copy), "--runs", "carried")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"the run stopped: the run is being worked on by {socket.gethostname()}" in done.stderr
    assert ran(far) == ["1", "2"]
    assert len(far.far_jobs()) == 2
    (far.place / "go").touch()
    far.seatrial("attach", "last", check=0)
    assert ran(far) == ["1", "2", "3"]


def test_reap_goes_by_the_targets_word_where_the_owner_is_not_of_this_machine(far: FarWorld) -> None:
    killed_and_copied(far, 2, "--target", far.target, "--parallel", "2")
    lock = far.run().path / "lock"
    there = lock.read_bytes().replace(socket.gethostname().encode(), b"elsewhere")
    lock.write_bytes(there)
    far.say("holder", "elsewhere")
    left = far.seatrial("reap", "--target", far.target, check=0).stdout
    assert left.count("kept: its run is in progress") == 2
    far.unsay("holder")
    removed = far.seatrial("reap", "--target", far.target, check=0).stdout
    assert len([line for line in removed.splitlines() if "local://far/" in line and line.endswith(": deleted")]) == 2
    assert far.far_jobs() == []


def test_reap_leaves_what_the_target_says_is_worked_on_though_the_owner_of_this_machine_is_gone(far: FarWorld) -> None:
    killed_and_copied(far, 2, "--target", far.target, "--parallel", "2")
    far.say("holder", "elsewhere")  # that took the run over, with a copy of its folder
    left = far.seatrial("reap", "--target", far.target, check=0).stdout
    assert left.count("kept: its run is in progress") == 2
    far.unsay("holder")
    removed = far.seatrial("reap", "--target", far.target, check=0).stdout
    assert len([line for line in removed.splitlines() if "local://far/" in line and line.endswith(": deleted")]) == 2


def test_reap_of_a_suite_reaches_its_targets_and_one_that_is_closed_hides_no_other(far: FarWorld) -> None:
    far.seatrial("reap", check=0)
    text = (far.folder / "suite.yaml").read_text()
    entries = f"{{gone: {{kind: far, place: {far.folder / 'gone'}}}, far: {{kind: far, place: {far.place}}}}}"
    far.suite(f"targets: {entries}\n{text}", "both.yaml")
    (far.folder / "gone").mkdir()
    (far.folder / "gone" / "closed").write_text("the door is locked")
    killed_and_copied(far, 2, "--target", far.target, "--parallel", "2")
    done = far.seatrial("reap", "--suite", "both.yaml", check=3)
    assert "cannot search target gone: the door is locked" in done.stderr
    assert len([line for line in done.stdout.splitlines() if "local://far/" in line and ": deleted" in line]) == 2
    assert far.seatrial("reap", "--suite", "both.yaml", "--target", "far", check=0).stdout == "nothing to delete\n"
