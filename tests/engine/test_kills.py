"""`kill -9` of Seatrial at every journal point, and at random instants, then attach: the run finishes as if nothing had
happened, no step runs twice, nothing is left. A sample here; all points and 100 storms with `make test-all`, as many
storms as you like with `make kills`."""

import contextlib
import os
import random
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from asking import until

from world import EVERY, World

SUITE = """
name: kills
machines: {{one: {{cpu: 1}}}}
trials:
  counted:
    kind: runtime
    facts: false
    matrix: {{n: [1, 2, 3], machine: one}}
    run:
      - 'echo "${{n}} first" >> {starts}'
      - {{command: 'echo "${{n}} second" >> {starts}; sleep 0.1; test ${{n}} != 2', exit: 0}}
"""
VERDICTS = {
    "counted[n=1,machine=one]": "passed",
    "counted[n=2,machine=one]": "failed",
    "counted[n=3,machine=one]": "passed",
}
SHARES = 4 if EVERY else 2  # of the points, a test each
ONE_OF = 3  # points: the simulation is killed at all of them, here a sample shows that it is right
ONCE = {f"{n} {step}": 1 for n in (1, 2, 3) for step in ("first", "second")}


def prepared(world: World) -> Path:
    starts = world.folder / "starts"
    world.suite(SUITE.format(starts=starts))
    return starts


def assert_as_if_nothing_had_happened(world: World, starts: Path) -> None:
    assert world.verdicts() == VERDICTS
    assert Counter(starts.read_text().splitlines()) == ONCE
    assert world.left() == []
    assert all((world.run().path / name).exists() for name in ("results.json", "junit.xml", "report.md", "report.html"))
    assert world.run().run in history_of(world)


def history_of(world: World) -> list[str]:
    with contextlib.closing(sqlite3.connect(world.folder / "runs" / "history.db")) as database:
        return [run for (run,) in database.execute("SELECT run FROM runs")]


def points(world: World) -> list[str]:
    """The names of all failpoints, in the order in which an undisturbed run passes them."""
    log = world.folder / "points"
    world.seatrial("run", "suite.yaml", "--parallel", "1", check=1, SEATRIAL_FAILPOINT_LOG=str(log))
    return [line.split(" ", 1)[1] for line in log.read_text().splitlines()]


def kill_and_attach(world: World, point: int, starts: Path) -> None:
    starts.unlink(missing_ok=True)
    killed = world.seatrial("run", "suite.yaml", "--parallel", "1", SEATRIAL_FAILPOINT=str(point))
    assert killed.returncode == -9, f"point {point}: {killed.stdout}{killed.stderr}"
    world.seatrial("attach", "last", check=1)
    assert_as_if_nothing_had_happened(world, starts)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_each_point_and_attach_end_as_an_undisturbed_run(world: World, share: int) -> None:
    starts = prepared(world)
    names = points(world)
    assert_as_if_nothing_had_happened(world, starts)
    assert len(names) > 30
    first_of_each = sorted({names.index(name) + 1 for name in set(names)})
    for point in (range(1, len(names) + 1) if EVERY else first_of_each[::ONE_OF])[share::SHARES]:
        kill_and_attach(world, point, starts)


def test_a_second_kill_during_attach_changes_nothing(world: World) -> None:
    starts = prepared(world)
    names = points(world)
    starts.unlink()
    world.seatrial("run", "suite.yaml", "--parallel", "1", SEATRIAL_FAILPOINT=str(names.index("submit done") + 1))
    for point in (2, 4, 6, 9):
        world.seatrial("attach", "last", SEATRIAL_FAILPOINT=str(point))
    world.seatrial("attach", "last", check=1)
    assert_as_if_nothing_had_happened(world, starts)


def journal_bytes(world: World) -> int:
    return sum(path.stat().st_size for path in world.folder.glob("runs/*/journal.jsonl"))


def storm_seeds() -> range:
    """`SEATRIAL_SEEDS=17:18` is one storm; `make kills` makes many."""
    first, _, end = os.environ.get("SEATRIAL_SEEDS", f"0:{100 if EVERY else 6}").partition(":")
    return range(int(first), int(end))


@pytest.mark.parametrize("seed", storm_seeds())
def test_a_storm_of_kills_and_attach_end_as_an_undisturbed_run(world: World, seed: int) -> None:
    """Seatrial is killed at up to four random instants after it began to work, in `run` and then in `attach`; in some
    storms also while it starts. The last `attach` is left alone."""
    starts = prepared(world)
    instants = random.Random(seed)
    for number in range(instants.randrange(1, 5)):
        written = journal_bytes(world)
        process = world.start(*(("attach", "last") if number else ("run", "suite.yaml")))
        if instants.random() < 0.9:
            until(lambda: journal_bytes(world) > written or process.poll() is not None)  # noqa: B023
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may end first
            process.communicate(timeout=instants.uniform(0.0, 0.7))
        process.kill()
        process.communicate()
        if not list(world.folder.glob("runs/*/plan.json")):  # killed before there was a run
            assert world.left() == []
            return
    world.seatrial("attach", "last", check=1)
    assert_as_if_nothing_had_happened(world, starts)


def test_a_full_disk_at_each_point_stops_the_run_and_attach_finishes_it(world: World) -> None:
    starts = prepared(world)
    names = points(world)
    some = ("jobs written", "before planned", "before submitted", "observation written", "before collected")
    tried = [names.index(name) + 1 for name in some]
    for point in range(1, len(names) + 1) if EVERY else tried:
        starts.unlink(missing_ok=True)
        stopped = world.seatrial("run", "suite.yaml", "--parallel", "1", SEATRIAL_FAILPOINT=f"{point}:ENOSPC")
        assert stopped.returncode == 3, f"point {point} ({names[point - 1]}): {stopped.stdout}{stopped.stderr}"
        assert "No space left on device" in stopped.stderr
        assert "seatrial attach" in stopped.stderr
        world.seatrial("attach", "last", check=1)
        assert_as_if_nothing_had_happened(world, starts)
