"""A run that another process works on: seen live, and left alone."""

import os
import signal
import time
from pathlib import Path

import pytest

from engine.asking import until
from seatrial.record import Owner, owner_of
from world import World

SUITE = """
name: watched
trials:
  quick: {kind: runtime, run: [echo quick]}
  slow: {kind: runtime, run: ["until test -e GO; do sleep 0.05; done"]}
"""


def begun(world: World) -> Owner:
    """A detached run, of which one cell goes on until there is a file `go`."""
    suite = world.suite(SUITE.replace("GO", str(world.folder / "go")))
    world.seatrial("run", str(suite), "--detach", check=0)
    owner = owner_of(world.run().path)
    assert owner is not None
    assert owner.alive()
    return owner


def test_attach_shows_what_another_process_runs_and_ends_with_its_exit_code(world: World) -> None:
    begun(world)
    with world.start("attach", "last") as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        assert first.startswith(f"watching {world.run().run} (owned by process ")
        assert watching.stdout.readline().startswith("[1/2] passed quick")
        (world.folder / "go").touch()
        rest = watching.stdout.read()
        assert "[2/2] passed slow" in rest
        assert "✓ passed  watched" in rest
        assert watching.wait() == 0
    assert world.verdicts() == {"quick": "passed", "slow": "passed"}


def test_ctrl_c_ends_the_view_and_not_the_run(world: World) -> None:
    owner = begun(world)
    with world.start("attach", "last") as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert "still in progress; stop it with `seatrial cancel" in watching.stdout.read()
        assert watching.wait() == 130
    assert owner.alive()
    (world.folder / "go").touch()
    world.seatrial("attach", "last", check=0)


def test_a_process_that_is_killed_while_it_is_watched_is_said_and_the_run_can_be_taken_up(world: World) -> None:
    owner = begun(world)
    with world.start("attach", "last") as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.stdout.readline()
        os.kill(owner.pid, signal.SIGKILL)
        assert f"process {owner.pid} exited before {world.run().run} finished" in watching.stdout.read()
        assert watching.wait() == 3
        (world.folder / "go").touch()
        world.seatrial("attach", "last", check=0)
    assert world.verdicts() == {"quick": "passed", "slow": "passed"}


# Whoever begins to write the report says so, and waits until it may; whoever sends a signal writes down which.
HOOK = """
import os, sys, time
folder = os.path.dirname(__file__)
def hook(event, args):
    if event == "open" and str(args[0]).endswith("/report.html.part"):
        open(folder + "/writing", "w").close()
        while not os.path.exists(folder + "/go"):
            time.sleep(0.01)
    if event == "os.kill":
        with open(folder + "/sent", "a") as file:
            print(int(args[1]), file=file)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize("command", ["attach", "cancel"])
def test_a_run_whose_reports_are_being_written_is_left_to_who_writes_them(world: World, command: str) -> None:
    hook, own = world.folder / "hook", world.folder / "own"
    for folder in (hook, own):
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(HOOK)
    (own / "go").touch()
    suite = world.suite("name: reported\ntrials: {t: {kind: runtime, facts: false, run: ['true']}}")
    world.seatrial("run", str(suite), "--detach", check=0, PYTHONPATH=str(hook))
    while not (hook / "writing").exists():
        time.sleep(0.02)
    with world.start(command, "last", PYTHONPATH=str(own)) as beside:
        assert beside.stdout is not None
        if command == "attach":
            assert beside.stdout.readline().startswith("watching ")
        while command == "cancel" and not (own / "sent").exists() and beside.poll() is None:
            time.sleep(0.02)
        (hook / "go").touch()
        told = beside.stdout.read()
        assert beside.wait() == 0, told
    assert command == "attach" or (own / "sent").read_text().split() == [str(int(signal.SIGCONT))]
    assert (world.run().path / "report.html").exists()
    assert "✓ passed  reported" in (world.run().path / "console.txt").read_text()  # nobody disturbed it


def test_of_another_machine_the_lock_says_whether_somebody_works_on_it(tmp_path: Path) -> None:
    import fcntl

    elsewhere = Owner("another", "boot", 17, 1, 0.0)
    assert not elsewhere.works_on(tmp_path)
    with open(tmp_path / "lock", "w") as file:
        assert not elsewhere.works_on(tmp_path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert elsewhere.works_on(tmp_path)


def killed_during(world: World, command: str) -> None:
    """Leaves a run without an owner, with its job still running."""
    world.suite(f"name: n\ntrials: {{t: {{kind: runtime, facts: false, run: ['{command}']}}}}")
    with world.start("run", "suite.yaml") as process:
        until(lambda: world.jobs() and world.started() == 1)
        process.kill()


def test_several_who_attach_at_once_all_exit_as_the_run_does(world: World) -> None:
    killed_during(world, "sleep 5; exit 3")
    attached = [world.start("attach", "last") for _ in range(4)]
    outputs = [one.communicate(timeout=600)[0] for one in attached]
    assert [one.returncode for one in attached] == [1] * 4, outputs
    assert sum(entry["event"] == "attached" for entry in world.journal()) == 1
    assert world.left() == []


def test_cancel_that_finds_the_run_taken_by_another_waits_for_it(world: World) -> None:
    killed_during(world, "sleep 60")
    cancelling = [world.start("cancel", "last") for _ in range(3)]
    outputs = [one.communicate(timeout=600)[0] for one in cancelling]
    assert [one.returncode for one in cancelling] == [0] * 3, outputs
    assert world.results().verdict == "interrupted"
    assert world.left() == []
