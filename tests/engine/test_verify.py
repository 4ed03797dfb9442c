"""What a target would never take is told before anything runs."""

import signal
import time

import pytest
from far_world import FarWorld, far_world

from world import World

SUITE = """
name: asked
machines: {small: {cpu: 1}, large: {cpu: 2}}
trials:
  t:
    kind: runtime
    facts: false
    matrix: {n: [1, 2, 3], machine: all}
    run: ["echo ran >> $PLACE/ran"]
    env: {PLACE: "PLACE-OF-JOBS"}
"""


@pytest.fixture
def far(world: World) -> FarWorld:
    made = far_world(world)
    made.suite(SUITE.replace("PLACE-OF-JOBS", str(made.place)))
    return made


def ran(far: FarWorld) -> int:
    path = far.place / "ran"
    return len(path.read_text().split()) if path.exists() else 0


def test_one_job_of_each_shape_is_asked_for(far: FarWorld) -> None:
    far.seatrial("run", "suite.yaml", "--target", far.target, check=0)
    assert sorted(far.asked()) == ["t[n=1,machine=large]", "t[n=1,machine=small]"]
    assert ran(far) == 6
    assert far.far_jobs() == []


def test_a_refusal_stops_the_run_before_anything_runs(far: FarWorld) -> None:
    far.say("refuse", "spec.nodeSelector: Invalid value")
    done = far.seatrial("run", "suite.yaml", "--target", far.target, check=2)
    assert f"target {far.target} rejects t[n=1,machine=small]: spec.nodeSelector: Invalid value" in done.stderr
    assert "t[n=1,machine=large]" in done.stderr
    assert "nothing was run" in done.stderr
    assert ran(far) == 0
    assert far.far_jobs() == []
    assert [entry["event"] for entry in far.journal()] == ["run"]


def test_a_target_that_cannot_be_asked_stops_the_run_and_attach_goes_on(far: FarWorld) -> None:
    far.say("broken", "the server is down")
    done = far.seatrial("run", "suite.yaml", "--target", far.target, check=3)
    assert "the run stopped: the server is down" in done.stderr
    assert ran(far) == 0
    far.unsay("broken")
    far.seatrial("attach", "last", check=0)
    assert ran(far) == 6
    assert {cell.attempts[0].place.target for cell in far.results().cells} == {far.target}


def test_cells_that_were_begun_are_not_asked_for_again(far: FarWorld) -> None:
    two = ("--select", "n=1", "--select", "n=2")
    process = far.start("run", "suite.yaml", "--target", far.target, *two, SEATRIAL_FAILPOINT="25")
    assert process.wait(200) == -signal.SIGKILL
    process.communicate()
    begun = {entry["id"] for entry in far.journal() if entry["event"] == "planned"}
    assert begun
    (far.place / "asked").unlink()
    far.seatrial("attach", "last", check=0)
    assert not begun & set(far.asked())
    assert ran(far) == 4


def test_an_interrupt_does_not_wait_for_the_answer(far: FarWorld) -> None:
    far.say("slow", "yes")
    process = far.start("run", "suite.yaml", "--target", far.target)
    until = time.monotonic() + 200
    while not far.asked():
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(200) == 130
    process.communicate()
    assert ran(far) == 0
    assert {cell.verdict for cell in far.results().cells} == {"skipped"}


def test_an_interrupt_does_not_wait_for_a_target_that_does_not_open(far: FarWorld) -> None:
    far.say("shut", "yes")
    process = far.start("run", "suite.yaml", "--target", far.target)
    until = time.monotonic() + 200
    while not (far.place / "knocked").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(200) == 130
    process.communicate()
    assert {cell.verdict for cell in far.results().cells} == {"skipped"}
