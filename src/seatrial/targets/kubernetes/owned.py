"""Objects of any kind that a driver creates on a cluster, with the labels of their run and deleted with it.

async with ClusterObjects(client, options, "nightly-1", "69b56f04", 1) as mine:
    await client.create(mine.own(manifest, resource), resource=resource)

1. While the block is open, the run counts as in use. When it ends, all objects of this attempt are deleted, and none of
   another. If the driver is killed, `seatrial reap` deletes them, or the cluster itself after some days.
2. An owner must be in the same namespace, so each namespace has an owner object for the attempt. The one in the
   target's own namespace lists the others, which are deleted with it. Other namespaces and cluster-scoped kinds are
   refused.
"""

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import seatrial.kubernetes as k8s
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.manifest import marked, owner, secure
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.run_object import RunObject
from seatrial.targets.kubernetes.watch.feeds import NodeObject, largest_on
from seatrial.targets.kubernetes.watch.objects import PodObject
from seatrial.targets.kubernetes.watch.waiting import Patience, WaitContext, why_waiting
from seatrial.targets.protocol import refused

_WORKLOAD = "workload"  # value of the part label


def workload_labels(run: str) -> dict[str, str]:
    """Labels of all objects of a run other than its jobs."""
    return names.run_labels(run, _WORKLOAD)


class ClusterObjects:
    """Implements `targets.OwnedObjects`."""

    def __init__(
        self,
        client: k8s.Kubernetes,
        options: KubernetesOptions,
        run: str,
        cell: str,
        attempt: int,
        namespaces: Iterable[str] = (),
    ) -> None:
        home = client.access.namespace
        self.client, self._options = client, options
        self.namespaces = tuple(dict.fromkeys((home, *namespaces)))
        self.kubeconfig = options.kubeconfig.expanduser().absolute() if options.kubeconfig else None
        self.context = options.context
        of = f"{cell}-{attempt}"
        self._runs = {one: RunObject(client.within(one), options, run, of=of) for one in self.namespaces}
        self._runs[home].elsewhere = self.namespaces[1:]
        own = {"cell": names.label_value(cell), "attempt": str(attempt)}
        self.labels = {**workload_labels(run), names.CELL: own["cell"], names.ATTEMPT: own["attempt"]}
        # Only of this attempt: others of the same run may exist at the same time.
        self.selector = names.selector(run=names.label_value(run), part=_WORKLOAD, **own)
        self._owners: dict[str, k8s.Manifest] = {}

    async def __aenter__(self) -> "ClusterObjects":
        try:
            for namespace, run in self._runs.items():
                self._owners[namespace] = await self._owner(namespace, await run.owner())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for run in reversed(self._runs.values()):
            await run.close()

    async def _owner(self, namespace: str, run_object: k8s.Manifest) -> k8s.Manifest:
        """A ConfigMap of the run object. The run object itself is a Job, and fake nodes complete the pods of Jobs."""
        name, client = str(run_object["name"]), self.client.within(namespace)
        metadata = {"name": name, "namespace": namespace, "labels": self.labels, "ownerReferences": [run_object]}
        wanted = marked({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, self._options)
        with target_errors(f"cannot create the ConfigMap {name} in namespace {namespace}"):
            try:
                made = await client.create(wanted, k8s.Object, resource=k8s.CONFIG_MAPS)
            except k8s.AlreadyExists:  # from before a restart
                made = await client.get(k8s.CONFIG_MAPS, name, k8s.Object)
        return owner(k8s.CONFIG_MAPS, name, made.metadata.uid)

    def own(self, manifest: Mapping[str, Any], resource: k8s.Resource, secured: bool = False) -> k8s.Manifest:
        what = f"{resource.kind} {(manifest.get('metadata') or {}).get('name', '')}".strip()
        if not resource.namespaced:
            raise refused(f"{what} is cluster-scoped and cannot belong to a run")
        made = copy.deepcopy(dict(manifest))
        metadata = made.setdefault("metadata", {})
        namespace = metadata.setdefault("namespace", self.namespaces[0])
        if namespace not in self.namespaces:
            raise refused(f"{what} is in namespace {namespace} (expected one of {', '.join(self.namespaces)})")
        metadata["ownerReferences"] = [*metadata.get("ownerReferences", []), self._owners.get(namespace, {})]
        for one in (metadata, *k8s.pod_metadata(made.get("spec"))):
            one["labels"] = {**(one.get("labels") or {}), **self.labels}
        for template in k8s.pod_templates({"template": made}) if secured else ():
            secure(template["spec"], self._options)
        return marked(made, self._options)

    async def waiting(
        self, name_of: Callable[[k8s.Object], str], selector: str | None = None
    ) -> dict[str, tuple[str, bool]]:
        most: dict[str, float] | None = None
        with contextlib.suppress(k8s.Forbidden):
            most = largest_on([node async for node in self.client.list(k8s.NODES, NodeObject)])
        found: dict[str, tuple[str, bool]] = {}
        for namespace in self.namespaces:
            labels = self.selector if selector is None else selector
            async for pod in self.client.list(k8s.PODS, PodObject, labels=labels, namespace=namespace):
                why = why_waiting([pod], WaitContext(most=most), Patience())
                if why is not None and (name := name_of(pod)):
                    found.setdefault(name, (why.why, why.final))
        return found

    def errors(self) -> AbstractContextManager[None]:
        return target_errors()
