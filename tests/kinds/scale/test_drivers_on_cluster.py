"""Drivers as jobs on the cluster that they load, each with namespaces of its own, merged afterwards."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from cluster.image import BUSYBOX
from engine.cluster_world import ClusterWorld, cluster_world, until
from kinds.serving import seatrial_image
from seatrial.job import Verdict
from targets.kubernetes.on_cluster import namespace_of, objects
from world import EVERY, World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
DOCS = Path(__file__).parents[3] / "docs/scale.md"
ACCOUNT = "loader"
DRIVERS, EACH = 4 if EVERY else 2, 5  # beside other tests two are enough: each takes of their CPU
SHARD = """
  {name}:
    kind: scale
    target: cluster
    retries: 0
    driver: {{image: {image}, cpu: 0.25, memory: 512Mi}}
    namespaces: [{namespace}]
    workload: {{kind: job, pods: 2, cpu: 1m, memory: 1Mi, image: {busybox}}}
    count: {count}
    arrivals: {{rate: 5/s}}
    until: scheduled
    bounds: {{scheduled.p99: 10m}}
"""


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        yield cluster_world(world, real_cluster, namespace)


def documented_role() -> str:
    """The Role of the documentation for the account of a driver."""
    blocks = [yaml.safe_load_all(one.partition("```")[0]) for one in DOCS.read_text().split("```yaml")[1:]]
    (role,) = [one for block in blocks for one in block if isinstance(one, dict) and one.get("kind") == "Role"]
    return json.dumps(role)


def allow(far: ClusterWorld, namespace: str) -> None:
    far.cluster.kubectl("-n", namespace, "apply", "-f", "-", input=documented_role())
    account = f"--serviceaccount={far.namespace}:{ACCOUNT}"
    far.cluster.kubectl("-n", namespace, "create", "rolebinding", ACCOUNT, "--role=seatrial-driver", account)


def test_shards_run_as_jobs_on_the_cluster_and_are_merged(far: ClusterWorld) -> None:
    far.cluster.load(seatrial_image.archive())
    far.kubectl("create", "serviceaccount", ACCOUNT)
    with ExitStack() as stack:
        shards = [stack.enter_context(namespace_of(far.cluster)) for _ in range(DRIVERS)]
        for namespace in (far.namespace, *shards):
            allow(far, namespace)
        given = {"image": seatrial_image.IMAGE, "busybox": BUSYBOX, "count": EACH}
        text = "".join(SHARD.format(name=f"part{at}", namespace=name, **given) for at, name in enumerate(shards))
        far.trials(text, service_account=ACCOUNT)
        far.seatrial("run", "suite.yaml", "--parallel", str(DRIVERS), check=0)
        cells = far.results().cells
        assert [cell.attempts[0].place.target for cell in cells] == ["cluster"] * DRIVERS
        assert {cell.verdict for cell in cells} == {Verdict.PASSED}
        told = json.loads(far.seatrial("scale", "merge", "last", "--json", check=0).stdout)
        assert told["drivers"] == DRIVERS
        assert told["whole"]["count"] == told["whole"]["submitted"] == DRIVERS * EACH
        far.gone()
        until(lambda: not any(objects(far.cluster, one) for one in shards), "something is left of the workloads")
