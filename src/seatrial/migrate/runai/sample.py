"""Reads from the cluster how far each workload has come, as Run:ai's `sampler.py` does: at any time, from any machine,
again and again. A workload that has not come far is in the result with what it has, never left out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from seatrial.kubernetes import EVENTS, PODS, Forbidden, Kubernetes, Object, Resource, UnknownKind
from seatrial.migrate.runai.files import NAMESPACE_PREFIX, SampledWorkload
from seatrial.migrate.runai.objects import (
    JOB_KINDS,
    POD_GROUP_KINDS,
    POD_GROUP_LABELS,
    POD_LABELS,
    WORKLOAD_API,
    WORKLOAD_KINDS,
    Condition,
    Happened,
    WorkloadObject,
    WorkloadPod,
    epoch_seconds,
    names_within,
    owner_by,
)

# The group that evicted another, as schedulers older than their annotations told it.
_EVICTOR = re.compile(r"(?:preempted|reclaimed) by (?:higher priority )?(?:job|workload) [^/\s]+/(\S+?)\.?(?:\s|$)")
_EXACT_S = 2.0  # an event belongs to the transition whose second it is near to


class NamespaceSnapshot(msgspec.Struct, frozen=True):
    """Everything of one namespace, as one look found it."""

    workloads: list[WorkloadObject]
    jobs: list[Object]
    pods: list[WorkloadPod]
    groups: list[Object]
    events: list[Happened]
    at: str  # by the server's clock
    backend: Mapping[str, str] = {}  # when the control plane knew of each job, by its name
    remarks: tuple[str, ...] = ()  # what could not be read, and what follows


async def take_snapshot(
    client: Kubernetes, workload_type: str, events: bool, backend: Mapping[str, str]
) -> NamespaceSnapshot:
    """Raises KubernetesError for what no sample can be without."""
    remarks = []
    workloads = await client.discovery.of_kind(WORKLOAD_API, WORKLOAD_KINDS[workload_type])
    jobs = await client.discovery.of_kind(*JOB_KINDS[workload_type])
    groups = await _pod_groups(client)
    if groups is None:
        remarks.append("the cluster has no pod groups of scheduling.run.ai: their times stay empty")
    at_s = await client.now_s()
    happened: list[Happened] = []
    if events:
        try:
            happened = [one async for one in client.list(EVENTS, Happened)]
        except Forbidden as error:
            remarks.append(f"without events there are no times of evictions, of volumes and below a second: {error}")
    return NamespaceSnapshot(
        [one async for one in client.list(workloads, WorkloadObject)],
        [one async for one in client.list(jobs)],
        [one async for one in client.list(PODS, WorkloadPod)],
        [one async for one in client.list(groups)] if groups else [],
        happened,
        datetime.fromtimestamp(at_s, UTC).isoformat(),
        backend,
        tuple(remarks),
    )


async def _pod_groups(client: Kubernetes) -> Resource | None:
    for api_version, kind in POD_GROUP_KINDS:
        try:
            return await client.discovery.of_kind(api_version, kind)
        except UnknownKind:
            continue
    return None


def sampled(seen: NamespaceSnapshot) -> list[SampledWorkload]:
    """Each workload of the namespace once, in the order in which they were made. Pure."""
    pods, groups = defaultdict[str, list[WorkloadPod]](list), dict[str, Object]()
    for pod in seen.pods:
        pods[owner_by(pod.metadata.labels, POD_LABELS)].append(pod)
    for group in seen.groups:
        groups.setdefault(owner_by(group.metadata.labels, POD_GROUP_LABELS), group)
    jobs = {job.metadata.name: job for job in seen.jobs}
    happened = _Happenings(seen.events, {group.metadata.name: name for name, group in groups.items()})
    made = []
    for workload in sorted(seen.workloads, key=lambda one: (one.metadata.creation_timestamp or "", one.job_name)):
        name = workload.job_name
        created = sorted(one.metadata.creation_timestamp or "" for one in pods[name])
        decided, decision = happened.decision(pods[name])
        made.append(
            SampledWorkload(
                job_name=name,
                job_namespace=workload.metadata.namespace,
                project_name=workload.metadata.namespace.removeprefix(NAMESPACE_PREFIX),
                workload_created_timestamp=workload.metadata.creation_timestamp,
                job_created_timestamp=_created(jobs.get(name)),
                first_pod_created_timestamp=created[0] if created else None,
                last_pod_created_timestamp=created[-1] if created else None,
                pod_group_created_timestamp=_created(groups.get(name)),
                pod_scheduling_decision_timestamp=decided,
                first_eviction_timestamp=happened.evictions.get(name),
                first_pvc_bind_request_timestamp=happened.requested.get(name),
                first_pvc_bind_timestamp=happened.bound.get(name),
                backend_job_created_timestamp=seen.backend.get(name),
                pod_scheduling_decision=decision,
                sampled_timestamp=seen.at,
            )
        )
    return made


def _created(one: Object | None) -> str | None:
    return one.metadata.creation_timestamp if one else None


class _Happenings:
    """The events of a namespace, by the workload that each is of: the first one counts."""

    def __init__(self, events: Iterable[Happened], groups: Mapping[str, str]) -> None:
        """`groups`: the workload of each pod group."""
        self.evictions: dict[str, str] = {}  # by who was given room
        self.requested: dict[str, str] = {}
        self.bound: dict[str, str] = {}
        self._of_pods: dict[tuple[str, str], list[str]] = defaultdict(list)
        names = set(groups.values())
        for event in events:
            at, involved = event.at, event.involved_object
            if at is None:
                continue
            if event.reason == "Evict":
                _earliest(self.evictions, groups.get(evictor_of(event), ""), at)
            elif event.reason in ("ExternalProvisioning", "ProvisioningSucceeded"):
                owner = next((name for name in names_within(involved.name) if name in names), "")
                _earliest(self.requested if event.reason == "ExternalProvisioning" else self.bound, owner, at)
            elif event.reason in ("Scheduled", "FailedScheduling"):
                self._of_pods[involved.uid, event.reason].append(at)

    def decision(self, pods: list[WorkloadPod]) -> tuple[str | None, str | None]:
        """When the last of these pods was decided on, and how; nothing while one of them waits."""
        found = [(one, pod.metadata.uid) for pod in pods if (one := pod.decision)]
        if not pods or len(found) < len(pods):
            return None, None
        times = [self._exactly(one, uid) for one, uid in found]
        decision = "scheduled" if all(one.status == "True" for one, _ in found) else "unschedulable"
        return max(times, key=lambda text: epoch_seconds(text) or 0.0), decision

    def _exactly(self, decision: Condition, uid: str) -> str | None:
        """The scheduler's own event of the same transition has microseconds."""
        at_s = epoch_seconds(decision.last_transition_time)
        reason = "Scheduled" if decision.status == "True" else "FailedScheduling"
        for event in self._of_pods.get((uid, reason), ()):
            event_s = epoch_seconds(event)
            if at_s is not None and event_s is not None and abs(event_s - at_s) <= _EXACT_S:
                return event
        return decision.last_transition_time


def _earliest(found: dict[str, str], name: str, at: str) -> None:
    if name and (name not in found or (epoch_seconds(at) or 0.0) < (epoch_seconds(found[name]) or 0.0)):
        found[name] = at


def evictor_of(event: Happened) -> str:
    """The pod group that another was evicted for: by the annotation of newer schedulers, else by what is said."""
    named = (event.metadata.annotations or {}).get("evictor-pod-group-name")
    if named:
        return named
    found = _EVICTOR.search(event.message or "")
    return found[1] if found else ""
