"""Objects of any kind that belong to a run: labelled, owned, and removed with it."""

import asyncio
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from on_cluster import opened

from cluster.cluster import Cluster
from seatrial.kubernetes import JOBS, NODES, Access, Kubernetes, Resource
from seatrial.targets import TargetError
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.owned import ClusterObjects

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
POD = {"spec": {"containers": [{"name": "main"}]}}
KINDS = "configmaps,leases,jobs,pods"


async def belongings() -> ClusterObjects:
    client = Kubernetes(Access("http://127.0.0.1:9", namespace="trials"))
    return ClusterObjects(client, kind.options(), "nightly-1", "69b56f04", 1)


async def test_labels_are_on_the_object_and_on_every_pod_that_it_describes() -> None:
    mine = await belongings()
    inner = {"name": "h", "template": {"spec": {"template": POD}}}
    manifest: dict[str, Any] = {
        "metadata": {"name": "set", "labels": {"app": "x"}},
        "spec": {"replicatedJobs": [inner]},
    }
    made = mine.own(manifest, JOB_SETS)
    assert made["metadata"]["labels"] == {"app": "x", **mine.labels}
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["metadata"]["labels"] == mine.labels
    assert manifest["metadata"]["labels"] == {"app": "x"}
    assert "metadata" not in POD


async def test_what_cannot_be_owned_is_refused() -> None:
    mine = await belongings()
    with pytest.raises(TargetError, match="Node n is cluster-scoped"):
        mine.own({"metadata": {"name": "n"}}, NODES)
    with pytest.raises(TargetError, match=r"Job j is in namespace other \(expected one of trials"):
        mine.own({"metadata": {"name": "j", "namespace": "other"}}, JOBS)


async def test_of_a_driver_that_was_killed_everything_goes_with_a_reap(
    real_cluster: Cluster, open_namespace: str
) -> None:
    run = f"run-{uuid.uuid4().hex[:8]}"
    maker = await asyncio.create_subprocess_exec(
        sys.executable, Path(__file__).with_name("workload_maker.py"), real_cluster.kubeconfig, open_namespace, run,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert maker.stdout is not None
        assert await maker.stdout.readline() == b"made\n"
        async with opened(real_cluster, open_namespace) as target:
            found = await target.list()
            assert [(one.run, one.in_use) for one in found] == [(run, True)]
            await left(
                real_cluster, open_namespace, run, {"configmap", "lease.coordination.k8s.io", "job.batch", "pod"}
            )
            maker.kill()
            await maker.wait()
            found = await target.list()
            assert [(one.run, one.in_use) for one in found] == [(run, False)]
            await target.remove(found[0].handle)
            await left(real_cluster, open_namespace, run, set())
    finally:
        if maker.returncode is None:
            maker.kill()
            await maker.wait()


async def left(cluster: Cluster, namespace: str, run: str, wanted: set[str]) -> None:
    """Until these kinds and no others carry the run's label."""
    arguments = ("get", KINDS, "-n", namespace, "-l", f"seatrial/run={run},seatrial/part=workload", "-o", "name")
    async with asyncio.timeout(600):
        while True:
            found = (await asyncio.to_thread(cluster.kubectl, *arguments)).stdout.split()
            if {name.partition("/")[0] for name in found} == wanted:
                return
            await asyncio.sleep(0.2)
