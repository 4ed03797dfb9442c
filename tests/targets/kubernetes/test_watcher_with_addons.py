"""Jobs that are a JobSet, and jobs that Kueue holds back, with the real controllers of these."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from watched import PATIENT, SHORT, Watched, pod_spec, root_manifest, watching

from cluster.cluster import Cluster
from cluster.fixtures import addons_cluster, needs_addon, queue
from seatrial.job import Exit, Outcome, Stage, StageTime
from seatrial.kubernetes import JOBS, Resource
from seatrial.targets.kubernetes.watch.objects import TrackedJob
from seatrial.targets.kubernetes.watch.waiting import Patience
from seatrial.targets.kubernetes.watch.watcher import JobWatcher

__all__ = ["addons_cluster"]

pytestmark = [pytest.mark.cluster, pytest.mark.addons]

ALL_STAGES = ["created", "queued", "scheduled", "started", "finished"]
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
HOSTS = 3


async def _queued(watched: Watched, name: str, gpus: int) -> str:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    handle = await watched.start(root={"suspend": True}, queue=True, trial=limits)
    await watched.client.patch(JOBS, handle, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}})
    return handle


async def test_kueue_admits_holds_back_and_never_admits(addons_cluster: Cluster) -> None:
    needs_addon("kueue")
    async with watching(addons_cluster, SHORT) as watched:
        with queue(addons_cluster, watched.namespace, gpus=2) as name:
            admitted = await _queued(watched, name, 1)
            assert await watched.exit(admitted) == Exit(Outcome.EXITED, 0)
            assert watched.stages(admitted) == ALL_STAGES
            too_much = await watched.exit(await _queued(watched, name, 3))
            assert too_much.outcome is Outcome.REFUSED
            assert "insufficient quota for nvidia.com/gpu" in too_much.message
            nowhere = await watched.exit(await _queued(watched, "none", 1))
            assert nowhere == Exit(
                Outcome.REFUSED, message="Kueue will not admit the job: LocalQueue none doesn't exist"
            )


def _job_set(template: dict[str, Any]) -> dict[str, Any]:
    inner = {"completionMode": "Indexed", "completions": HOSTS, "parallelism": HOSTS, "backoffLimit": 0}
    job = {"name": "h", "replicas": 1, "template": {"spec": {**inner, "template": template}}}
    return {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [job]}


@asynccontextmanager
async def _started(cluster: Cluster, patience: Patience, **pod: Any) -> AsyncIterator[tuple[Watched, str]]:
    async with watching(cluster) as around:
        watched = Watched(around.client, around.namespace, JobWatcher(around.client, JOB_SETS, patience=patience))
        name = f"job-{uuid.uuid4().hex[:6]}"
        manifest = root_manifest(name, watched.run, pod_spec("true", **pod))
        whole = {"apiVersion": JOB_SETS.api_version, "kind": JOB_SETS.kind, "metadata": manifest["metadata"]}
        made = await watched.client.create({**whole, "spec": _job_set(manifest["spec"]["template"])}, resource=JOB_SETS)
        reading = asyncio.create_task(watched.read())
        created = StageTime(Stage.CREATED, 0.0, "api-server")
        watched.watcher.add(name, TrackedJob(name, watched.run, made.metadata.uid, HOSTS, created))
        try:
            yield watched, name
        finally:
            await watched.watcher.close()
            await reading


async def test_a_job_set_is_followed_to_its_end_with_its_hosts_in_order(addons_cluster: Cluster) -> None:
    needs_addon("jobset")
    async with _started(addons_cluster, PATIENT) as (watched, handle):
        assert await watched.exit(handle) == Exit(Outcome.EXITED, 0)
        assert watched.stages(handle) == ALL_STAGES
        assert [pod.number for pod in watched.watcher.pods(handle)] == [0, 1, 2]


async def test_pods_that_cannot_be_made_are_told_whoever_makes_them(addons_cluster: Cluster) -> None:
    needs_addon("jobset")
    async with _started(addons_cluster, SHORT, serviceAccountName="none") as (watched, handle):
        found = await watched.exit(handle)
        assert found.outcome is Outcome.REFUSED
        assert 'serviceaccount "none" not found' in found.message
