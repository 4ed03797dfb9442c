"""Workloads that are built in, with the real JobSet, training operator and Kueue."""

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.fixtures import addons_cluster, needs_addon, queue
from kinds.scale.scale_world import ScaleWorld, scale_world, wait_for
from world import World

__all__ = ["addons_cluster"]
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def scale(world: World, addons_cluster: Cluster) -> Iterator[ScaleWorld]:
    with scale_world(world, addons_cluster) as made:
        yield made


@pytest.mark.parametrize(
    ("addon", "workload"),
    [
        ("jobset", {"kind": "jobset", "pods": 2, "gpus": 1}),
        ("training-operator", {"kind": "pytorchjob", "pods": 3}),
        ("training-operator", {"kind": "pytorchjob"}),
    ],
)
def test_pods_of_workloads_of_other_controllers_are_followed_to_their_start(
    scale: ScaleWorld, addon: str, workload: dict[str, Any]
) -> None:
    needs_addon(addon)
    scale.trial(workload=workload, count=4, arrivals={"rate": 4})
    scale.seatrial("run", "suite.yaml", check=0)
    assert "4 of 4 workloads, 0 unfinished" in scale.findings()["bound scheduled.p99"].message
    scale.assert_nothing_left()


def test_workloads_of_kueue_alone_are_admitted_as_far_as_its_quota_goes(scale: ScaleWorld) -> None:
    needs_addon("kueue")
    with queue(scale.cluster, scale.namespace, gpus=8) as name:
        workload = {"kind": "kueue", "gpus": 2, "pods": 2, "queue": name}
        bounds = {"quota_reserved.p99": "10m", "admitted.p99": "10m"}
        scale.trial(workload=workload, count=2, arrivals={"rate": 4}, until="admitted", bounds=bounds)
        scale.seatrial("run", "suite.yaml", check=0)
        assert "2 of 2 workloads, 0 unfinished" in scale.findings()["bound admitted.p99"].message
        assert "2 of 2 workloads, 0 unfinished" in scale.findings()["bound quota_reserved.p99"].message
        scale.trial(workload=workload, count=3, arrivals={"rate": 4}, until="admitted", settle="20s")
        scale.seatrial("run", "suite.yaml", check=1)
        assert "1 of 3" in scale.findings()["bound unfinished"].message
        scale.assert_nothing_left()


def test_what_kueue_never_admits_is_unfinished_and_the_rest_is_followed(scale: ScaleWorld) -> None:
    needs_addon("kueue")
    with queue(scale.cluster, scale.namespace, gpus=3) as name:
        workload = {"kind": "job", "gpus": 1, "queue": name, "command": ["sleep", "600"]}
        scale.trial(workload=workload, count=3, arrivals={"rate": 4})
        scale.seatrial("run", "suite.yaml", check=0)
        scale.trial(workload={**workload, "gpus": 4}, count=2, arrivals={"rate": 4}, settle="2s")
        scale.seatrial("run", "suite.yaml", check=1)
        assert "2 of 2" in scale.findings()["bound unfinished"].message
        wait_for(lambda: not scale.left())
