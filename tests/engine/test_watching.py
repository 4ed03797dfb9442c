"""A run that another process works on: seen live, and left alone."""

import os
import signal
from pathlib import Path

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
        assert first.startswith(f"watching {world.run().run}, which process ")
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
        assert "goes on; `seatrial cancel" in watching.stdout.read()
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
        assert f"process {owner.pid} is gone, and {world.run().run} is not finished" in watching.stdout.read()
        assert watching.wait() == 3
        (world.folder / "go").touch()
        world.seatrial("attach", "last", check=0)
    assert world.verdicts() == {"quick": "passed", "slow": "passed"}


def test_of_another_machine_the_lock_says_whether_somebody_works_on_it(tmp_path: Path) -> None:
    import fcntl

    elsewhere = Owner("another", "boot", 17, 1, 0.0)
    assert not elsewhere.works_on(tmp_path)
    with open(tmp_path / "lock", "w") as file:
        assert not elsewhere.works_on(tmp_path)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert elsewhere.works_on(tmp_path)
