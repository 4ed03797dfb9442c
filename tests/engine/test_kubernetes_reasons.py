"""What a user of `seatrial run` sees of jobs that a cluster does not start: the reason within seconds, with the right
verdict, and not a queue limit after an hour."""

import json
import re
from collections.abc import Iterator

import pytest
from cluster_world import ClusterWorld, cluster_world

from cluster.cluster import Cluster
from cluster.fixtures import cluster, real_cluster
from target.kubernetes.on_cluster import RESTRICTED, namespace_of
from world import World

__all__ = ["cluster", "real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SUITE = """
name: suite
targets: {{cluster: {target}}}
machines: {{{machines}}}
runtimes: {{image: {{image: "{image}"}}}}
trials:
  works:
    kind: runtime
    facts: false
    matrix: {{n: [1, 2], runtime: image, machine: all}}
    run: ["true"]
    retries: 0
    timeout: {{queue: 1h}}
"""


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        yield cluster_world(world, real_cluster, namespace)


@pytest.fixture
def fake(world: World, cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(cluster) as namespace:
        yield cluster_world(world, cluster, namespace)


def ran(
    world: ClusterWorld, machines: str | dict[str, str], image: str = "localhost/python:3", **target: object
) -> tuple[int, str]:
    """The exit code and all that was printed, in one line: where it breaks depends on the terminal.

    `machines` is of one machine, or of several by their names."""
    options = {
        "kind": "kubernetes", "pull": "Never", "kubeconfig": str(world.kubeconfig), "namespace": world.namespace,
        **target,
    }  # fmt: skip
    shapes = machines if isinstance(machines, dict) else {"one": machines}
    entries = ", ".join(f"{name}: {{target: cluster{shape and ', '}{shape}}}" for name, shape in shapes.items())
    world.suite(SUITE.format(target=json.dumps(options), machines=entries, image=image))
    done = world.seatrial("run", "suite.yaml")
    world.gone()
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def verdict(world: ClusterWorld) -> str:
    """Of all cells: none waits longer than the others for a reason that they share."""
    (found,) = {str(cell.verdict) for cell in world.results().cells}
    return found


def test_an_image_that_is_not_there(far: ClusterWorld) -> None:
    code, output = ran(far, "", image="localhost/no-such:1")
    assert (code, verdict(far)) == (1, "invalid"), output
    assert "its image cannot be had (ErrImageNeverPull)" in output
    assert "localhost/no-such:1" in output


def test_an_image_that_cannot_be_pulled(far: ClusterWorld) -> None:
    code, output = ran(far, "", image="127.0.0.1:1/no-such:1", pull="IfNotPresent")
    assert (code, verdict(far)) == (3, "infra"), output
    assert "its image cannot be had" in output
    assert "127.0.0.1:1/no-such:1" in output
    assert "connection refused" in output


def test_a_quota_that_would_never_allow_it(fake: ClusterWorld) -> None:
    fake.kubectl("create", "quota", "small", "--hard=requests.cpu=1,requests.memory=1Gi")
    code, output = ran(fake, "cpu: 4, memory: 64Mi")
    assert (code, verdict(fake)) == (1, "invalid"), output
    assert "its pods cannot be made: exceeded quota: small" in output
    assert "requests.cpu=4" in output


def test_a_quota_that_others_have_used_up(fake: ClusterWorld) -> None:
    fake.kubectl("create", "quota", "pods", "--hard=pods=1")
    fake.kubectl("run", "other", "--image=x", "--restart=Never")
    code, output = ran(fake, "cpu: 1, memory: 64Mi")
    assert (code, verdict(fake)) == (3, "infra"), output
    assert "its pods cannot be made: exceeded quota: pods" in output


def test_nodes_that_are_not_there_and_more_than_any_node_has(fake: ClusterWorld) -> None:
    machines = {"pool": "cpu: 1, select: {pool: h100}", "many": "cpu: 1, gpu: {count: 64}"}
    code, output = ran(fake, machines, parallel=4)
    assert (code, verdict(fake)) == (1, "invalid"), output
    # A reason is shown for the first cell that has it, and which of the two that is the cluster decides.
    lines = re.findall(r"\[\d/4\] (\w+) works\[n=\d,runtime=image,machine=many\]", output)
    assert lines[0] == "waiting", "before the verdicts"
    assert lines.count("invalid") == 2
    assert "no node of this cluster can take it" in output
    assert "didn't match Pod's node affinity/selector" in output
    assert "it asks for 64 of nvidia.com/gpu, and no node has more than 8" in output


def test_what_the_namespace_forbids(far: ClusterWorld) -> None:
    far.cluster.kubectl("label", "namespace", far.namespace, RESTRICTED)
    volume = {"host": "/var/tmp", "at": "/data"}
    code, output = ran(far, "", volumes=[volume])
    assert (code, verdict(far)) == (1, "invalid"), output
    assert "its pods cannot be made: violates PodSecurity" in output
    assert "hostPath" in output


def test_a_namespace_that_is_not_there(far: ClusterWorld) -> None:
    far.namespace, there = "no-such-namespace", far.namespace
    code, output = ran(far, "")
    assert code == 3, output
    assert "kubectl create namespace no-such-namespace" in output
    far.namespace = there
