"""A run on a cluster while that is disturbed: its servers and its node come and go, its namespace or its rights are
taken away. The verdicts are right, each step ran once, and what cannot go on says what to do."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from cluster_world import SHARED, ClusterWorld, cluster_world, until, waiting

from cluster.cluster import Cluster, up
from cluster.errors import Unavailable
from cluster.fixtures import real_cluster
from targets.kubernetes.on_cluster import namespace_of
from world import World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

APART_S = 20.0  # that a node is out of reach: longer than it takes to be noticed

# Cells end in the middle of the trouble and after it; one is still to begin.
TRIALS = f"""
  counted:
    kind: runtime
    facts: false
    matrix: {{n: [1, 2, 3, 4], runtime: python, machine: one}}
    run: ["echo ${{n}} >> {SHARED}/ran; while ! test -e {SHARED}/go-${{n}}; do sleep 0.1; done; test ${{n}} != 2"]
"""


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Disturbed on purpose: not one that others use."""
    try:
        made = up(f"trouble-{uuid.uuid4().hex[:6]}", kubelet=True, place=tmp_path_factory.mktemp("clusters"))
    except Unavailable as error:
        pytest.skip(f"no cluster here: {error.what}")
    with made:
        yield made


def restarted(part: str) -> Callable[[Cluster], None]:
    def disturb(cluster: Cluster) -> None:
        cluster.kill(part)
        time.sleep(2)
        up(cluster.name, place=cluster.folder.parent)

    return disturb


def unreachable(cluster: Cluster) -> None:
    cluster.connect_node(False)
    try:
        time.sleep(APART_S)
    finally:
        cluster.connect_node(True)
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")


TROUBLE = {
    "api server": restarted("apiserver"),
    "kubelet": restarted("kubelet"),
    "containerd": restarted("containerd"),
    "node": unreachable,
}


@pytest.mark.parametrize("what", TROUBLE)
def test_a_run_outlives_it(world: World, own_cluster: Cluster, what: str) -> None:
    with namespace_of(own_cluster) as namespace:
        far = cluster_world(world, own_cluster, namespace)
        far.trials(TRIALS)
        with far.begun(3, "--parallel", "3") as process:
            (far.shared / "go-1").touch()  # it ends in the middle of it, and the fourth begins
            TROUBLE[what](own_cluster)
            for number in (2, 3, 4):
                (far.shared / f"go-{number}").touch()
            output = process.communicate()[0]
        assert process.returncode == 1, output
        verdicts = [str(cell.verdict) for cell in far.results().cells]
        assert verdicts == ["passed", "failed", "passed", "passed"], output
        assert not any(cell.flaky for cell in far.results().cells)
        assert far.ran() == {"1": 1, "2": 1, "3": 1, "4": 1}
        assert far.left() == []
        far.gone()


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        made.trials(waiting("[1, 2]"))
        yield made


def test_a_namespace_that_is_deleted_under_a_run_is_told_as_the_reason_and_nobody_waits(far: ClusterWorld) -> None:
    with far.begun(2) as process:
        far.cluster.kubectl("delete", "namespace", far.namespace, "--wait=false")
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 3, output
    assert {str(cell.verdict) for cell in far.results().cells} == {"infra"}
    assert f"the namespace {far.namespace} is being deleted" in output
    assert far.left() == []


# ---- rights


def refused(far: ClusterWorld, name: str) -> None:
    """From now on that service account's token does not count; a server remembers one that did for some seconds."""
    far.kubectl("delete", "serviceaccount", name)
    who = ("--kubeconfig", str(far.kubeconfig), "auth", "whoami")
    until(lambda: far.cluster.kubectl(*who, check=False).returncode != 0)


def test_a_token_that_counts_no_more_stops_the_run_and_with_a_new_one_attach_finishes_it(far: ClusterWorld) -> None:
    far.become("me")
    far.trials(waiting("[1, 2, 3]"))
    with far.begun(2, "--parallel", "2") as process:
        refused(far, "me")
        far.go()
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 3, output
    assert "rejected the credentials" in output
    assert "log in again" in output
    assert f"seatrial attach {far.run().run}" in output
    assert far.run().read_results() is None
    stopped = far.seatrial("attach", "last")
    assert stopped.returncode == 3
    assert "log in again" in stopped.stderr
    far.kubectl("create", "serviceaccount", "me")
    far.log_in("me")
    far.seatrial("attach", "last", check=0)
    assert far.ran() == {"1": 1, "2": 1, "3": 1}
    assert set(far.verdicts().values()) == {"passed"}
    far.gone()


def test_a_token_that_counts_no_more_is_noticed_while_all_cells_just_run(far: ClusterWorld) -> None:
    far.become("me")
    with far.begun(2, "--parallel", "2") as process:
        refused(far, "me")
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 3, output
    assert "log in again" in output
    until(lambda: far.kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name").count("pod/") == 2)


def test_a_right_without_which_results_cannot_be_fetched_stops_the_run_and_loses_none(far: ClusterWorld) -> None:
    most = "jobs.batch,pods,pods/log,configmaps,secrets,services,events"
    far.kubectl("create", "role", "most", "--verb=*", f"--resource={most}")
    far.become("me", "--role=most")
    far.go()
    output = far.seatrial("run", "suite.yaml", check=3).stderr
    assert "pods/exec" in output
    assert "kind: Role" in output
    assert f"seatrial attach {far.run().run}" in output
    far.grant("me", "--clusterrole=admin")
    far.seatrial("attach", "last", check=0)
    assert far.ran() == {"1": 1, "2": 1}
    far.gone()
