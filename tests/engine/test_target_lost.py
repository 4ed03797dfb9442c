"""A target on which this process can do nothing any more: the run stops at once and says so, its jobs go on, and attach
finishes it as if nothing had happened."""

import signal
import time
from pathlib import Path

import pytest
from far_world import FarWorld, ran, waiting_world

from world import World

WHY = "nobody here knows you any more\nlog in again"


@pytest.fixture
def far(world: World) -> FarWorld:
    return waiting_world(world, "lost")


def stopped(far: FarWorld, how: int) -> str:
    """A run of two cells that is lost, and then hears that signal, or of which the jobs end. What it said."""
    process = far.start("run", "suite.yaml", "--target", far.target, "--parallel", "2")
    try:
        while len(ran(far)) < 2 or far.started() < 2:  # else an interrupt ends what is being submitted
            assert process.poll() is None
            time.sleep(0.02)
        far.say("lost", WHY)
        process.send_signal(how) if how else (far.place / "go").touch()
        told = process.communicate(timeout=600)[0]
    finally:
        process.kill()
    assert process.returncode == 3, told
    assert "the run stopped: nobody here knows you any more" in told
    assert f"seatrial attach {far.run().run}" in told
    assert far.run().read_results() is None
    return told


def test_a_run_that_is_lost_is_taken_up_and_nothing_runs_twice(far: FarWorld) -> None:
    stopped(far, 0)
    still = far.seatrial("attach", "last", check=3)
    assert "nobody here knows you any more" in still.stderr
    far.unsay("lost")
    far.seatrial("attach", "last", check=0)
    assert ran(far) == ["1", "2", "3"]
    assert far.far_jobs() == []
    assert all("out of" in path.read_text() for path in Path(far.run().path).glob("cells/*/1/log.txt"))


def test_an_interrupt_does_not_wait_for_jobs_that_cannot_be_told(far: FarWorld) -> None:
    stopped(far, signal.SIGINT)
    far.unsay("lost")
    (far.place / "go").touch()
    far.seatrial("attach", "last", check=0)
    assert ran(far) == ["1", "2", "3"]
    assert far.far_jobs() == []
