"""`kill -9` of Seatrial while its jobs are on a cluster, then attach: the run finishes as if nothing had happened, no
step runs twice, nothing is left there. A sample here; all points and 100 instants with `make test-all`."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster_world import SHARED, ClusterWorld, cluster_world

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from targets.kubernetes.on_cluster import namespace_of
from world import EVERY, World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

TRIALS = f"""
  counted:
    kind: runtime
    facts: false
    matrix: {{n: [1, 2], runtime: python, machine: one}}
    run: ['echo "${{n}}" >> {SHARED}/ran; test ${{n}} != 2']
"""
VERDICTS = {
    "counted[n=1,runtime=python,machine=one]": "passed",
    "counted[n=2,runtime=python,machine=one]": "failed",
}
ONCE = {"1": 1, "2": 1}
POINTS = 5  # of which a sample is made
AT_ONCE = 3  # most of the time is spent waiting for the cluster


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        made.trials(TRIALS)
        yield made


def assert_as_if_nothing_had_happened(far: ClusterWorld) -> None:
    assert far.verdicts() == VERDICTS
    assert far.ran() == ONCE
    assert far.left() == []
    far.gone()


def points(far: ClusterWorld) -> list[str]:
    """The names of all failpoints, in the order in which an undisturbed run passes them."""
    log = far.folder / "points"
    far.seatrial("run", "suite.yaml", "--parallel", "1", check=1, SEATRIAL_FAILPOINT_LOG=str(log))
    return [line.split(" ", 1)[1] for line in log.read_text().splitlines()]


def kill_and_attach(far: ClusterWorld, point: int, name: str) -> None:
    """In a folder and a namespace of its own: the points do not disturb each other."""
    folder = far.folder / f"point-{point}"
    folder.mkdir()
    with namespace_of(far.cluster) as namespace:
        own = cluster_world(World(folder, {**far.env, "SEATRIAL_STATE": str(folder / "state")}), far.cluster, namespace)
        own.trials(TRIALS)
        killed = own.seatrial("run", "suite.yaml", "--parallel", "1", SEATRIAL_FAILPOINT=str(point))
        assert killed.returncode == -9, f"point {point} ({name}): {killed.stdout}{killed.stderr}"
        own.seatrial("attach", "last", check=1)
        assert_as_if_nothing_had_happened(own)


def test_a_kill_at_each_point_and_attach_end_as_an_undisturbed_run(far: ClusterWorld) -> None:
    names = points(far)
    assert_as_if_nothing_had_happened(far)
    assert len(names) > 25
    spread = {round(1 + number * (len(names) - 1) / (POINTS - 1)) for number in range(POINTS)}
    between = names.index("submit done") + 1  # the cluster has it, and nobody has written that down
    chosen = range(1, len(names) + 1) if EVERY else sorted({*spread, between})
    with ThreadPoolExecutor(AT_ONCE) as executor:
        for done in [executor.submit(kill_and_attach, far, point, names[point - 1]) for point in chosen]:
            done.result()


@pytest.mark.parametrize("seed", range(100 if EVERY else 2))
def test_a_kill_at_a_random_instant_and_attach_end_as_an_undisturbed_run(far: ClusterWorld, seed: int) -> None:
    process = far.start("run", "suite.yaml")
    time.sleep(random.Random(seed).uniform(0.2, 5.0))
    process.kill()
    process.communicate()
    if not list(far.folder.glob("runs/*/plan.json")):  # killed before there was a run
        assert far.left() == []
        assert far.objects() == []
        return
    far.seatrial("attach", "last", check=1)
    assert_as_if_nothing_had_happened(far)
