"""Plays Run:ai's operator on a real API server: `runai_operator.py KUBECONFIG NAMESPACE`, until its input ends.

Of each workload it makes a job, the job's pods, their pod group, and a volume claim where one is asked for, which it
also provisions. The pods are placed by the cluster's own scheduler. Where a pod of an interactive workload fits
nowhere, a pod of a training workload is evicted for it, told in an event as KAI's scheduler does, and made again."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from seatrial.kubernetes import (
    EVENTS,
    PODS,
    VOLUME_CLAIMS,
    AlreadyExists,
    Kubernetes,
    KubernetesError,
    Resource,
    Tree,
    load_access,
)
from seatrial.kubernetes import watch as kubernetes_watch

VERSION = "v2alpha1"
KINDS = {
    kind: Resource("run.ai", VERSION, kind, f"{kind.lower()}s")
    for kind in ("TrainingWorkload", "InteractiveWorkload", "DistributedWorkload")
}
RUNAI_JOBS = Resource("run.ai", "v1", "RunaiJob", "runaijobs")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
POD_GROUPS = Resource("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups")
VOLUMES = Resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
READY = "ready"
PROVISIONER = "runai.example/lvm"


class Operator:
    def __init__(self, client: Kubernetes) -> None:
        self._client, self._namespace = client, client.access.namespace
        self._kinds: dict[str, str] = {}  # of the workload of each name
        self._evicted: set[str] = set()  # uids of pods for which another was evicted
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            synced = [asyncio.Event() for _ in range(len(KINDS) + 1)]
            for (kind, resource), event in zip(KINDS.items(), synced, strict=False):
                group.create_task(self._workloads(kind, resource, event))
            group.create_task(self._pods(synced[-1]))
            for event in synced:
                await event.wait()
            print(READY, flush=True)

    async def _workloads(self, kind: str, resource: Resource, synced: asyncio.Event) -> None:
        async for event in self._client.watch(resource, Tree):
            if event.object is None:
                synced.set()
            elif event.kind == kubernetes_watch.ADDED:
                self._start(self._make(kind, event.object))

    async def _make(self, kind: str, workload: Tree) -> None:
        spec, name = workload.spec, workload.spec["name"]["value"]
        self._kinds[name] = kind
        distributed = kind == "DistributedWorkload"
        jobs = PYTORCH_JOBS if distributed else RUNAI_JOBS
        owner = _owner(workload.api_version or f"run.ai/{VERSION}", kind, workload.metadata.name, workload.metadata.uid)
        job = await self._create(jobs, name, {"release": name}, owner, spec=_job_spec(distributed))
        own = _owner(jobs.api_version, jobs.kind, name, job)
        claims = list((spec.get("pvcs") or {}).get("items") or {})
        for claim in claims:
            await self._claim(f"{claim}-{name}", spec["pvcs"]["items"][claim]["value"], own)
        workers = int((spec.get("workers") or {}).get("value", 0))
        label = "training.kubeflow.org/job-name" if distributed else "release"
        for number in range(workers + 1 if distributed else 1):
            pod = _pod_spec(spec, [f"{claim}-{name}" for claim in claims])
            await self._create(PODS, f"{name}-{number}", {label: name}, own, spec=pod)
        group = {"minMember": workers + 1}
        await self._create(POD_GROUPS, _group(name), {"release": name, "workloadName": name}, own, spec=group)

    async def _claim(self, name: str, wanted: dict[str, Any], owner: dict[str, Any]) -> None:
        """Provisioned here; that somebody outside should is said by the cluster's own controller."""
        storage = wanted["storageClass"]
        made = {"provisioner": PROVISIONER, "volumeBindingMode": "Immediate"}
        with contextlib.suppress(AlreadyExists):
            await self._client.create({**_object(STORAGE_CLASSES, storage), **made}, resource=STORAGE_CLASSES)
        size = {"storage": wanted["size"]}
        modes = ["ReadWriteOnce"]
        spec = {"accessModes": modes, "storageClassName": storage, "resources": {"requests": size}}
        uid = await self._create(VOLUME_CLAIMS, name, {}, owner, spec=spec)
        claim = {"kind": "PersistentVolumeClaim", "namespace": self._namespace, "name": name, "uid": uid}
        volume = {
            "capacity": size, "accessModes": modes, "storageClassName": storage, "claimRef": claim,
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/nowhere"},
        }  # fmt: skip
        await self._asked_for(name)
        await self._client.create({**_object(VOLUMES, f"pv-{uid}"), "spec": volume}, resource=VOLUMES)
        await self._tell("PersistentVolumeClaim", name, uid, "ProvisioningSucceeded", f"provisioned pv-{uid}")

    async def _asked_for(self, claim: str) -> None:
        """Until the cluster's own controller has said that somebody outside should provision it."""
        fields = f"involvedObject.name={claim},reason=ExternalProvisioning"
        for _ in range(6000):
            if await self._client.has_any(EVENTS, fields=fields):
                return
            await asyncio.sleep(0.1)

    async def _pods(self, synced: asyncio.Event) -> None:
        async for event in self._client.watch(PODS, Tree):
            pod = event.object
            if pod is None:
                synced.set()
            elif event.kind != kubernetes_watch.DELETED and _unschedulable(pod):
                name = pod.metadata.labels.get("release", "")
                if self._kinds.get(name) == "InteractiveWorkload" and pod.metadata.uid not in self._evicted:
                    self._evicted.add(pod.metadata.uid)
                    self._start(self._evict_for(name))

    async def _evict_for(self, preemptor: str) -> None:
        """One pod of a training workload that has a node makes room, and comes back."""
        async for pod in self._client.list(PODS, Tree):
            name = pod.metadata.labels.get("release", "")
            if self._kinds.get(name) == "TrainingWorkload" and (pod.spec or {}).get("nodeName"):
                break
        else:
            return
        by = f"{self._namespace}/{_group(preemptor)}"
        annotations = {
            "evictor-pod-group-name": _group(preemptor), "evictor-pod-group-namespace": self._namespace,
            "evictor-action-type": "preempt", "num-evicted-pods": "1",
        }  # fmt: skip
        message = f"Pod {self._namespace}/{pod.metadata.name} was preempted by higher priority workload {by}"
        await self._tell("PodGroup", _group(name), "", "Evict", message, annotations)
        await self._client.delete(PODS, pod.metadata.name, grace_s=0)
        await self._placed(preemptor)
        spec = {key: value for key, value in pod.spec.items() if key != "nodeName"}
        owner = _owner(
            RUNAI_JOBS.api_version, "RunaiJob", name, (await self._client.get(RUNAI_JOBS, name)).metadata.uid
        )
        await self._create(PODS, f"{pod.metadata.name}-again", {"release": name}, owner, spec=spec)

    async def _placed(self, release: str) -> None:
        """Until its pods have a node: whom another was evicted for has the place, and not who comes first."""
        for _ in range(6000):
            pods = [pod async for pod in self._client.list(PODS, Tree, labels=f"release={release}")]
            if all((pod.spec or {}).get("nodeName") for pod in pods):
                return
            await asyncio.sleep(0.1)

    async def _tell(
        self, kind: str, name: str, uid: str, reason: str, message: str, annotations: dict[str, str] | None = None
    ) -> None:
        at_ns = time.time_ns()
        at = datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = _object(EVENTS, f"{name}.{at_ns:x}")
        event["metadata"]["annotations"] = annotations or {}
        involved = {"kind": kind, "namespace": self._namespace, "name": name, "uid": uid}
        times = {"firstTimestamp": at, "lastTimestamp": at, "count": 1, "type": "Normal"}
        await self._client.create(
            {**event, **times, "involvedObject": involved, "reason": reason, "message": message}, resource=EVENTS
        )

    async def _create(
        self, resource: Resource, name: str, labels: dict[str, str], owner: dict[str, Any], **content: Any
    ) -> str:
        made = _object(resource, name)
        made["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
        return (await self._client.create({**made, **content}, resource=resource)).metadata.uid

    def _start(self, work: Any) -> None:
        async def safely() -> None:
            try:
                await work
            except KubernetesError as error:  # the workload was deleted in between
                print(error, file=sys.stderr)

        task = asyncio.create_task(safely())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _object(resource: Resource, name: str) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _group(name: str) -> str:
    return f"pg-{name}-0"


def _job_spec(distributed: bool) -> dict[str, Any]:
    """Suspended, so that a real training operator, where there is one, makes no pods of its own."""
    container = {"name": "pytorch", "image": "none"}
    master = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": master}} if distributed else {}


def _pod_spec(spec: dict[str, Any], claims: list[str]) -> dict[str, Any]:
    gpus = str((spec.get("gpu") or {}).get("value", "0"))
    limits = {"nvidia.com/gpu": gpus} if gpus.isdigit() and int(gpus) else {}  # a fraction is no resource of the pod
    volumes = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)]
    container = {"name": "main", "image": spec["image"]["value"], "resources": {"limits": limits}}
    node = (spec.get("nodeType") or {}).get("value")
    selected = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes, **selected}


def _unschedulable(pod: Tree) -> bool:
    conditions = (pod.status or {}).get("conditions") or []
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


async def main(kubeconfig: str, namespace: str) -> None:
    over: Callable[[], bytes] = sys.stdin.buffer.read
    async with Kubernetes(replace(load_access(kubeconfig), namespace=namespace)) as client:
        running = asyncio.create_task(Operator(client).run())
        ended = asyncio.create_task(asyncio.to_thread(over))
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
