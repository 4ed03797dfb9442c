"""Seatrial and the driver killed at any point of a scale trial of processes: every workload is there once, its stages
are known, and nothing is left. `SEATRIAL_TEST_ALL=1` tries all points, with 1,000 workloads; on a cluster it is
test_faults_cluster.py that does."""

import contextlib
import itertools
import json
import os
import random
import signal

import pytest

from kinds.scale.scale_world import WITHIN_S, driver_process, wait_for
from seatrial.job import Finding, Verdict
from world import EVERY, World

pytestmark = pytest.mark.timeout(3600)
COUNT = 1000 if EVERY else 30
POINTS = ("written submitted", "fetched")  # of every run, where only a few are tried
TRIAL = {
    "kind": "scale",
    "target": "here",
    "retries": 0,
    "workload": {"kind": "job", "gpus": 1},
    "local": {"places": 8},
    "count": COUNT,
    "arrivals": {"rate": 250 if EVERY else 60},
    "until": "finished",
    "settle": "10m",
    "bounds": {"finished.p99": "1h"},
}


@pytest.fixture
def here(world: World) -> World:
    world.suite(json.dumps({"name": "here", "trials": {"t": TRIAL}}))
    return world


def assert_each_once(world: World) -> None:
    (files,) = world.run().path.glob("cells/*/1/driver/files")
    numbers = [json.loads(line)["number"] for line in (files / "submitted.jsonl").read_text().splitlines()]
    assert sorted(numbers) == list(range(COUNT))
    stamps = [json.loads(line) for line in (files / "stamps.jsonl").read_text().splitlines()]
    for stage in ("pod_created", "scheduled", "started", "finished"):
        assert sorted(one["workload"] for one in stamps if one["stage"] == stage) == list(range(COUNT)), stage
    findings = findings_of(world)
    assert findings["bound failed"].verdict is Verdict.PASSED
    assert findings["bound unfinished"].verdict is Verdict.PASSED
    assert findings["clean-up"].verdict is Verdict.PASSED
    assert world.left() == []


def test_seatrial_that_is_killed_at_any_point_alone_or_with_its_driver_disturbs_nothing(here: World) -> None:
    log = here.folder / "points"
    here.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    points = range(1, len(names) + 1) if EVERY else [names.index(name) + 1 for name in POINTS]
    for point, victim in itertools.product(points, ("seatrial", "driver")):
        killed = here.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
        assert killed.returncode == -signal.SIGKILL, f"{point} {names[point - 1]}: {killed.stdout}{killed.stderr}"
        other = victim == "driver" and kill_driver(here)
        here.seatrial("attach", "last", check=None if other else 0)
        assert_each_once(here)


@pytest.mark.parametrize("seed", range(20 if EVERY else 1))
def test_a_driver_that_is_killed_at_a_random_instant_begins_anew_and_says_so(here: World, seed: int) -> None:
    """Up to three times, as often as it is started again. It has no end before all the kills."""
    go = here.folder / "go"
    workload = {"kind": "job", "gpus": 1, "command": ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]}
    here.suite(json.dumps({"name": "here", "trials": {"t": {**TRIAL, "workload": workload}}}))
    chance = random.Random(seed)
    process, kills = here.start("run", "suite.yaml"), 0
    for instant in sorted(chance.sample(range(COUNT), chance.randrange(1, 4))):
        wait_for(lambda instant=instant: written(here) > instant or process.poll() is not None)
        kills += kill_driver(here)
    go.touch()
    process.communicate(timeout=3 * WITHIN_S)
    assert_each_once(here)
    assert (findings_of(here)["measurement"].verdict is Verdict.INVALID) == bool(kills)


def kill_driver(world: World) -> bool:
    with contextlib.suppress(ValueError, ProcessLookupError):  # it is between two lives, or has ended
        os.kill(driver_process(world), signal.SIGKILL)
        return True
    return False


def findings_of(world: World) -> dict[str, Finding]:
    return {one.check: one for one in world.results().cells[0].findings}


def written(world: World) -> int:
    with contextlib.suppress(StopIteration, FileNotFoundError):
        return next(iter(world.state.glob("jobs/*/*/files/submitted.jsonl"))).read_text().count("\n")
    return 0
