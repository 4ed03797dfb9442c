"""Questions that are asked once, when what the watches told is not enough: whose deletion was it, what have nodes?

What may not be asked, or is not answered, is not known; nothing fails for it.
"""

import time

import msgspec

from seatrial.kubernetes import (
    NAMESPACES,
    NODES,
    PODS,
    Forbidden,
    Kubernetes,
    KubernetesError,
    NotFound,
    Object,
    Part,
    Resource,
)
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.watch.feeds import JobFeed
from seatrial.target.kubernetes.watch.objects import Condition, Regarding, RootObject, TrackedJob, WarningEvent
from seatrial.target.kubernetes.watch.waiting import INSUFFICIENT, KUEUE_WORKLOAD, quantity

WORKLOAD_LABEL, WORKLOAD_VERSIONS = "kueue.x-k8s.io/job-uid", ("v1beta1", "v1beta2")
NODES_S = 60.0  # that what is known of nodes counts


class NodeStatus(Part, frozen=True, gc=False):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class NodeObject(Object, frozen=True, gc=False):
    status: NodeStatus = NodeStatus()


class WorkloadStatus(Part, frozen=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class Workload(Object, frozen=True, gc=False):
    status: WorkloadStatus = WorkloadStatus()


class Inquiries:
    def __init__(self, client: Kubernetes, namespace: str, resource: Resource) -> None:
        self._client, self._namespace, self._resource = client, namespace, resource
        self._most: dict[str, float] | None = None
        self._ask_nodes_s: float | None = 0.0  # not before; None: never again

    async def root(self, known: TrackedJob) -> tuple[RootObject | None, bool]:
        """A job's root as it is now, and whether it is gone."""
        try:
            found = await self._client.get(self._resource, known.name, RootObject, namespace=self._namespace)
        except NotFound:
            return None, True
        except KubernetesError:
            return None, False
        return found, found.metadata.uid != known.uid

    async def has_other_pods(self, feed: JobFeed) -> bool:
        """Whether there are pods of it of which the watch has not told yet."""
        labels = names.selector(job=feed.known.name)
        try:
            async for pod in self._client.list(PODS, namespace=self._namespace, labels=labels):
                if pod.metadata.uid not in feed.pods:
                    return True
        except KubernetesError:
            return False
        return False

    async def workload(self, known: TrackedJob) -> WarningEvent | None:
        """What Kueue says of a job that it does not admit, as if it had warned: of some reasons it does not."""
        labels = f"{WORKLOAD_LABEL}={known.uid}"
        for version in WORKLOAD_VERSIONS:
            resource = Resource("kueue.x-k8s.io", version, KUEUE_WORKLOAD, "workloads")
            try:
                async for found in self._client.list(resource, Workload, namespace=self._namespace, labels=labels):
                    return _held_back(found)
            except NotFound:
                continue
            except KubernetesError:
                return None
        return None

    async def namespace_going(self) -> bool:
        try:
            found = await self._client.get(NAMESPACES, self._namespace)
        except NotFound:
            return True
        except KubernetesError:
            return False
        return found.metadata.deletion_timestamp is not None

    def most(self) -> dict[str, float] | None:
        """The most of each resource that any node has; None when that is not known."""
        return self._most

    def wants_nodes(self, why: str) -> bool:
        """Whether a reason can be judged better with what nodes have. Says so once in a while."""
        if INSUFFICIENT not in why or self._ask_nodes_s is None or time.monotonic() < self._ask_nodes_s:
            return False
        self._ask_nodes_s = time.monotonic() + NODES_S
        return True

    async def learn_nodes(self) -> None:
        most: dict[str, float] = {}
        try:
            async for node in self._client.list(NODES, NodeObject):
                for name, text in node.status.allocatable.items():
                    most[name] = max(most.get(name, 0.0), quantity(text) or 0.0)
        except Forbidden:
            self._ask_nodes_s = None
            return
        except KubernetesError:
            return
        self._most = most


def _held_back(workload: Workload) -> WarningEvent | None:
    about = Regarding(KUEUE_WORKLOAD, workload.metadata.name, workload.metadata.uid)
    held = (one for one in workload.status.conditions if one.status == "False" and one.message)
    return next((WarningEvent(involved_object=about, reason=one.reason, message=one.message) for one in held), None)
