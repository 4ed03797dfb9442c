"""Makes objects of several kinds for a run and waits to be killed: `workload_maker.py KUBECONFIG NAMESPACE RUN`."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from seatrial.kubernetes import Kubernetes, load_access
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.owned import ClusterObjects

CONTAINER = {"name": "main", "image": "localhost/busybox:1", "command": ["sleep", "600"]}
POD = {"terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [CONTAINER]}
MANIFESTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
    {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}},
]


async def main(kubeconfig: str, namespace: str, run: str) -> None:
    access = replace(load_access(kubeconfig), namespace=namespace)
    options = kind.options(kubeconfig=kubeconfig, namespace=namespace)
    async with Kubernetes(access) as client, ClusterObjects(client, options, run, "69b56f04", 1) as mine:
        for manifest in MANIFESTS:
            resource = await client.resource_of(manifest)
            named = {**manifest, "metadata": {"name": f"{run}-workload"}}
            await client.create(mine.own(named, resource), resource=resource)
        print("made", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
