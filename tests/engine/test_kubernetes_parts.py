"""A server on a cluster, asked by a driver on this machine through the API server: each of them killed in the middle.
Nothing is asked twice, nothing lost, nothing left in either place."""

import os
import signal
from collections.abc import Iterator

import pytest
from asking import COUNT, DRIVER, WAIT_S, asked_so_far, assert_asked_at_most_once, finding, pid_of, until
from cluster_world import SHARED, ClusterWorld, cluster_world
from far_world import PLUGINS

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from seatrial.job import Stage
from targets.kubernetes.on_cluster import namespace_of
from world import World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    world.env["PYTHONPATH"] = str(PLUGINS)
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        hold(made, COUNT // 2)
        made.trials(f"""
  a:
    kind: asking
    retries: 0
    count: {COUNT}
    within: 600
    env: {{HOLD_FROM: {SHARED}/hold}}
    matrix: {{runtime: python, machine: one}}
""")
        yield made


def hold(far: ClusterWorld, number: int) -> None:
    """From this thing on the server keeps its answers back: whoever is to be killed before the end is there."""
    draft = far.shared / "hold.draft"
    draft.write_text(f"{number}")
    draft.rename(far.shared / "hold")


def test_a_server_on_the_cluster_is_asked_by_a_driver_here(far: ClusterWorld) -> None:
    hold(far, COUNT)
    far.seatrial("run", "suite.yaml", check=0)
    assert_asked_at_most_once(far, kills=0)
    (attempt,) = far.results().cells[0].attempts
    assert attempt.parts["server"].place.target == "cluster"
    assert attempt.parts["driver"].place.target == "here"
    assert Stage.READY in [one.stage for one in attempt.parts["server"].stages]
    far.gone()


def test_seatrial_killed_in_the_middle_is_attached(far: ClusterWorld) -> None:
    process = far.start("run", "suite.yaml")
    until(lambda: asked_so_far(far) > COUNT // 3 or process.poll() is not None)
    process.kill()
    process.communicate()
    hold(far, COUNT)
    far.seatrial("attach", "last", check=0)
    assert_asked_at_most_once(far, kills=0)
    far.gone()


def test_a_driver_killed_in_the_middle_goes_on(far: ClusterWorld) -> None:
    process = far.start("run", "suite.yaml")
    until(lambda: asked_so_far(far) > COUNT // 3 or process.poll() is not None)
    driver = pid_of(far, DRIVER)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    hold(far, COUNT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert_asked_at_most_once(far, kills=1)
    far.gone()


def test_a_server_whose_pod_is_deleted_ends_the_attempt_and_is_what_the_verdict_names(far: ClusterWorld) -> None:
    process = far.start("run", "suite.yaml")
    until(lambda: asked_so_far(far) > COUNT // 3 or process.poll() is not None)
    far.kubectl("delete", "pods", "--all", "--wait=false")
    process.communicate(timeout=WAIT_S)
    (cell,) = far.results().cells
    assert cell.why.startswith("server: ")
    data = finding(far, "driver", "asked").data
    assert data["finished"] + data["unknown"] + data["undone"] == COUNT
    assert far.left() == []
    far.gone()
