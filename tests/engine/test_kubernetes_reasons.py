"""What a user of `seatrial run` sees of jobs that a cluster does not start: the reason within seconds, with the right
verdict where waiting cannot help."""

import json
import signal
from collections.abc import Iterator

import pytest
from cluster_world import ClusterWorld, cluster_world, until

from cluster.cluster import Cluster
from cluster.fixtures import cluster, real_cluster
from targets.kubernetes.on_cluster import RESTRICTED, namespace_of
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
    suite(world, machines, image, **target)
    done = world.seatrial("run", "suite.yaml")
    world.gone()
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def suite(
    world: ClusterWorld, machines: str | dict[str, str], image: str = "localhost/python:3", **target: object
) -> None:
    options = {
        "kind": "kubernetes", "pull": "Never", "kubeconfig": str(world.kubeconfig), "namespace": world.namespace,
        **target,
    }  # fmt: skip
    shapes = machines if isinstance(machines, dict) else {"one": machines}
    entries = ", ".join(f"{name}: {{target: cluster{shape and ', '}{shape}}}" for name, shape in shapes.items())
    world.suite(SUITE.format(target=json.dumps(options), machines=entries, image=image))


def verdict(world: ClusterWorld) -> str:
    """Of all cells: none waits longer than the others for a reason that they share."""
    (found,) = {str(cell.verdict) for cell in world.results().cells}
    return found


def test_an_image_that_is_not_there(far: ClusterWorld) -> None:
    code, output = ran(far, "", image="localhost/no-such:1")
    assert (code, verdict(far)) == (1, "invalid"), output
    assert "cannot pull image (ErrImageNeverPull)" in output
    assert "localhost/no-such:1" in output


def test_an_image_that_cannot_be_pulled(far: ClusterWorld) -> None:
    code, output = ran(far, "", image="127.0.0.1:1/no-such:1", pull="IfNotPresent")
    assert (code, verdict(far)) == (3, "infra"), output
    assert "cannot pull image" in output
    assert "127.0.0.1:1/no-such:1" in output
    assert "connection refused" in output


def quota(world: ClusterWorld, name: str, hard: str) -> None:
    """Until it is counted, the server refuses everything."""
    world.kubectl("create", "quota", name, f"--hard={hard}")
    until(lambda: world.kubectl("get", "quota", name, "-o", "jsonpath={.status.used}"))


def test_a_quota_that_would_never_allow_it(fake: ClusterWorld) -> None:
    quota(fake, "small", "requests.cpu=1,requests.memory=1Gi")
    code, output = ran(fake, "cpu: 4, memory: 64Mi")
    assert code == 2, output
    assert "exceeded quota: small" in output
    assert "requests.cpu=4" in output


def test_what_others_have_used_up_and_what_no_node_has_yet_is_waited_for_and_shown(fake: ClusterWorld) -> None:
    """Six cells that cannot start, with the reason of each, until the user ends it."""
    quota(fake, "full", "requests.memory=10Gi")
    holder = {"name": "other", "image": "x", "resources": {"requests": {"memory": "8Gi"}}}
    overrides = json.dumps({"spec": {"containers": [holder]}})
    fake.kubectl("run", "other", "--image=x", "--restart=Never", f"--overrides={overrides}")
    small = "cpu: 1, memory: 64Mi"
    machines = {
        "pool": f"{small}, select: {{pool: h100}}",
        "many": f"{small}, gpu: {{count: 64}}",
        "full": "cpu: 1, memory: 4Gi",
    }
    suite(fake, machines, parallel=6)
    process = fake.start("run", "suite.yaml")
    assert process.stdout is not None
    output, wanted = (
        "",
        [
            "didn't match Pod's node affinity/selector",
            "64 of nvidia.com/gpu requested, no node has more than 8",
            "waiting for room in the namespace's quota: exceeded quota: full",
        ],
    )
    for line in process.stdout:
        output = f"{output} {' '.join(line.split())}"
        if all(text in output for text in wanted):
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output + rest
    assert "invalid" not in output
    fake.gone()


def test_what_the_namespace_forbids(far: ClusterWorld) -> None:
    far.cluster.kubectl("label", "namespace", far.namespace, RESTRICTED)
    volume = {"host": "/var/tmp", "at": "/data"}
    code, output = ran(far, "", volumes=[volume])
    assert code == 2, output
    assert "violates PodSecurity" in output
    assert "hostPath" in output


def test_a_namespace_that_is_not_there(far: ClusterWorld) -> None:
    far.namespace, there = "no-such-namespace", far.namespace
    code, output = ran(far, "")
    assert code == 3, output
    assert "namespace no-such-namespace does not exist" in output
    assert "kubectl create namespace no-such-namespace" in output
    far.namespace = there
