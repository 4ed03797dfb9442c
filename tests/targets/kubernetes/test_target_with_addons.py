"""The whole target where a job is a JobSet, and where Kueue decides when it starts, on fake nodes."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from on_cluster import job, namespace_of, nothing_left, objects, opened

from cluster.cluster import Cluster
from cluster.fixtures import addons_cluster, needs_addon, queue
from seatrial.job import Gpu, Outcome, Resources, Stage
from seatrial.targets.kubernetes.target import KubernetesTarget
from targets.contract import until_exit

__all__ = ["addons_cluster"]

pytestmark = [pytest.mark.cluster, pytest.mark.addons]

STAGES = [Stage.CREATED, Stage.QUEUED, Stage.SCHEDULED, Stage.STARTED, Stage.FINISHED]


@pytest.fixture
def addons_namespace(addons_cluster: Cluster) -> Iterator[str]:
    with namespace_of(addons_cluster) as name:
        yield name


def gpus(count: int) -> dict[str, Any]:
    return {"resources": Resources(gpu=Gpu(count=count)), "image": "registry.example/any"}


async def test_a_job_set_of_several_hosts_lives_and_goes(addons_cluster: Cluster, addons_namespace: str) -> None:
    needs_addon("jobset")
    async with opened(addons_cluster, addons_namespace, workload="jobset", pull="IfNotPresent") as target:
        wanted = job("true", hosts=3, **gpus(1), secrets={"TOKEN": "token"})
        await target.verify(wanted)
        handle = await target.submit(wanted, {"TOKEN": "hush-hush"})
        async with opened(addons_cluster, addons_namespace, workload="jobset") as other:
            assert [found.handle for found in await other.list(wanted.run)] == [handle]
        events = await until_exit(target, handle)
        assert events[-1].exit is not None
        assert (events[-1].exit.outcome, events[-1].exit.code) == (Outcome.EXITED, 0)
        assert [event.time.stage for event in events if event.time] == STAGES
        await target.remove(handle)
        assert await target.list(wanted.run) == []
    await nothing_left(addons_cluster, addons_namespace)


async def test_a_queued_job_says_why_it_waits_and_runs_when_there_is_room(
    addons_cluster: Cluster, addons_namespace: str
) -> None:
    needs_addon("kueue")
    with queue(addons_cluster, addons_namespace, gpus=2) as name, every_job_queued(addons_cluster, addons_namespace):
        holder = blocker(addons_namespace, name, gpus=2)
        addons_cluster.request("POST", f"/apis/batch/v1/namespaces/{addons_namespace}/jobs", holder)
        async with asyncio.timeout(600):  # it has the room when it is not suspended any more
            while _suspended(addons_cluster, addons_namespace):  # noqa: ASYNC110 - not watched
                await asyncio.sleep(0.2)
        async with opened(addons_cluster, addons_namespace, queue=name, pull="IfNotPresent") as target:
            wanted = job("true", **gpus(2))
            await target.verify(wanted)
            handle = await target.submit(wanted, {})
            found = await progress(target, handle, "nvidia.com/gpu")
            assert found.startswith("waiting: ")
            # The object of the run, which needs no room, is complete, and so goes by itself some day.
            complete = ("wait", "--for=condition=complete", f"job/seatrial-{wanted.run}", "--timeout=600s")
            await asyncio.to_thread(addons_cluster.kubectl, "-n", addons_namespace, *complete)
            path = f"/apis/batch/v1/namespaces/{addons_namespace}/jobs/holder?propagationPolicy=Background"
            await asyncio.to_thread(addons_cluster.request, "DELETE", path)
            events = await until_exit(target, handle)
            assert events[-1].exit is not None
            assert (events[-1].exit.outcome, events[-1].exit.code) == (Outcome.EXITED, 0)
            assert events[-1].hosts[0].startswith("fake-")
            await target.remove(handle)
        await nothing_left(addons_cluster, addons_namespace)
    assert objects(addons_cluster, addons_namespace) == []


@contextlib.contextmanager
def every_job_queued(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Kueue's own sample of a policy: a Job without a queue is refused."""
    name = f"queued-{namespace}"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
            ]
        },
        "validations": [
            {"expression": "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels"}
        ],
    }
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": chosen}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        cluster.kubectl("apply", "-f", "-", input=json.dumps({**head, "kind": kind, "spec": spec}))
    try:
        other = ("-n", namespace, "create", "job", "other", "--image=x", "--dry-run=server")
        until_s = time.monotonic() + 600
        while name not in cluster.kubectl(*other, check=False).stderr:
            assert time.monotonic() < until_s
            time.sleep(0.2)
        yield
    finally:
        kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies"
        cluster.kubectl("delete", kinds, name, "--ignore-not-found")


def _suspended(cluster: Cluster, namespace: str) -> bool:
    found = cluster.kubectl("get", "job", "holder", "-n", namespace, "-o", "jsonpath={.spec.suspend}").stdout
    return found.strip() != "false"


async def progress(target: KubernetesTarget, handle: str, part: str) -> str:
    """The first progress that has this in it."""
    async with asyncio.timeout(600):
        async for event in target.watch():
            if event.handle == handle and part in event.progress:
                return event.progress
    raise AssertionError("the watch ended")


def blocker(namespace: str, queue: str, gpus: int) -> dict[str, Any]:
    """A job of another user that holds the queue's GPUs; for a selector that no node has, it never ends."""
    container = {"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    pod = {"restartPolicy": "Never", "nodeSelector": {"no": "node"}, "containers": [container]}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "holder", "namespace": namespace, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
