"""What tests of the Kubernetes target have in common: jobs, a target in a namespace, and what is left there."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from cluster.api import ApiError
from cluster.cluster import Cluster
from seatrial.job import Environment, Job, Limits, Step
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.target import KubernetesTarget

IMAGE = "localhost/python:3"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
EVERYTHING = "jobs,pods,configmaps,secrets,services"
NEEDED_BY_PODS = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
WITHIN_S = 600.0


def job(*commands: str, image: str = IMAGE, **fields: Any) -> Job:
    run = fields.pop("run", None) or f"run-{uuid.uuid4().hex[:8]}"
    steps = tuple(Step(f"run {command}", "command", {"command": command}) for command in commands)
    limits = fields.pop("limits", Limits(run_s=600, grace_s=1))
    return Job(
        name=f"{run}-69b56f04-1", run=run, cell="69b56f04", attempt=1, title="t[n=1]", steps=steps,
        environment=Environment(image=image), limits=limits, **fields,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, namespace: str, **options: Any) -> AsyncIterator[KubernetesTarget]:
    target = kind.open(
        "cluster",
        kind.options(**{"kubeconfig": cluster.kubeconfig, "namespace": namespace, "pull": "Never", **options}),
    )
    await target.open()
    try:
        yield target
    finally:
        await target.close()


def objects(cluster: Cluster, namespace: str) -> list[str]:
    """All that carries Seatrial's label, but for records of deleted jobs."""
    labels = "app.kubernetes.io/managed-by=seatrial,seatrial/part!=reaped"
    found = cluster.kubectl("get", EVERYTHING, "-n", namespace, "-l", labels, "-o", "name")
    return sorted(found.stdout.split())


async def nothing_left(cluster: Cluster, namespace: str) -> None:
    """The cluster's own garbage collection needs a moment for what was owned."""
    async with asyncio.timeout(600):
        while await asyncio.to_thread(objects, cluster, namespace):  # noqa: ASYNC110 - not watched
            await asyncio.sleep(0.2)


@contextlib.contextmanager
def namespace_of(cluster: Cluster, *labels: str, prefix: str = "trials") -> Iterator[str]:
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    make_namespace(cluster, name, *labels)
    try:
        yield name
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def make_namespace(cluster: Cluster, name: str, *labels: str) -> None:
    """Returns when pods can be made in it: until controllers have put there what all pods need, the cluster refuses
    them, or their node does, and a watcher of little patience gives them up."""
    metadata = {"name": name, "labels": dict(label.split("=") for label in labels)}
    cluster.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    until_s = time.monotonic() + WITHIN_S
    for needed in NEEDED_BY_PODS:
        while not _is_there(cluster, f"/api/v1/namespaces/{name}/{needed}"):
            assert time.monotonic() < until_s, f"no {needed} in {name}"
            time.sleep(0.05)


def _is_there(cluster: Cluster, path: str) -> bool:
    try:
        cluster.request("GET", path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
