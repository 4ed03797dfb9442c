"""Reads the progress of each workload from the cluster, like Run:ai's `sampler.py`: at any time, from any machine.
Incomplete workloads are in the result with the times they have."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.extras import install_command
from seatrial.kubernetes import EVENTS, PODS, Forbidden, Kubernetes, Meta, Object, ObjectPart, UnknownKind
from seatrial.migrate.runai.files import NAMESPACE_PREFIX, SampledWorkload, epoch_seconds

WORKLOAD_API = "run.ai/v2alpha1"
# Type -> kind of its workloads, API version and kind of their jobs.
KINDS = {
    "training": ("TrainingWorkload", "run.ai/v1", "RunaiJob"),
    "interactive": ("InteractiveWorkload", "run.ai/v1", "RunaiJob"),
    "distributed": ("DistributedWorkload", "kubeflow.org/v1", "PyTorchJob"),
}
POD_GROUP_APIS = ("scheduling.run.ai/v2alpha2", "scheduling.run.ai/v1")  # the newer first
EVICTED, REQUESTED, BOUND = "Evict", "ExternalProvisioning", "ProvisioningSucceeded"  # reasons of events
POD_LABELS = ("release", "job-name", "training.kubeflow.org/job-name")
POD_GROUP_LABELS = ("release", "workloadName")

_EVENT_NAME = re.compile(r"\.([0-9a-f]{14,16})$")
_NAME_AGREES_S = 2.0  # maximum difference between the time in an event's name and its first time


class Value(ObjectPart, frozen=True):
    value: Any = None


class WorkloadSpec(ObjectPart, frozen=True):
    name: Value | None = None


class WorkloadObject(Object, frozen=True):
    spec: WorkloadSpec | None = None

    @property
    def job_name(self) -> str:
        """The name of its job; the object's own name may end with a date."""
        named = self.spec.name.value if self.spec and self.spec.name else None
        return named if isinstance(named, str) and named else self.metadata.name


class Condition(ObjectPart, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class _PodStatus(ObjectPart, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class WorkloadPod(Object, frozen=True):
    status: _PodStatus | None = None

    @property
    def decision(self) -> Condition | None:
        """The condition that it was scheduled, or why it was not."""
        for one in (self.status.conditions or ()) if self.status else ():
            if one.type == "PodScheduled" and (one.status == "True" or one.reason):
                return one
        return None


class EventMeta(Meta, frozen=True):
    annotations: dict[str, str] | None = None


class Involved(ObjectPart, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class EventObject(Object, frozen=True):
    """A Kubernetes event."""

    metadata: EventMeta = EventMeta()
    reason: str = ""
    message: str | None = None
    first_timestamp: str | None = None
    event_time: str | None = None
    involved_object: Involved = msgspec.field(default_factory=Involved)

    @property
    def at(self) -> str | None:
        """The most exact time: the event time has microseconds, the name nanoseconds, the first time seconds."""
        if self.event_time:
            return self.event_time
        first_s = epoch_seconds(self.first_timestamp)
        named = _EVENT_NAME.search(self.metadata.name)
        if named and first_s is not None:
            at_s = int(named[1], 16) / 1e9
            if first_s - _NAME_AGREES_S <= at_s <= first_s + _NAME_AGREES_S:
                return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")
        return self.first_timestamp


def names_within(name: str) -> Iterator[str]:
    """All names that this one may contain, longest first: `pvc-new-0-j-1a2b3c` contains `j-1a2b3c`."""
    parts = name.split("-")
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            yield "-".join(parts[start : start + length])


# The evicting pod group in the message of older schedulers, which set no annotation.
_EVICTOR = re.compile(r"(?:preempted|reclaimed) by (?:higher priority )?(?:job|workload) [^/\s]+/(\S+?)\.?(?:\s|$)")
_EXACT_S = 2.0  # maximum difference between an event and its transition


class NamespaceSnapshot(msgspec.Struct, frozen=True):
    """All relevant objects of a namespace at one time."""

    workloads: list[WorkloadObject]
    jobs: list[Object]
    pods: list[WorkloadPod]
    groups: list[Object]
    events: list[EventObject]
    at: str  # by the server's clock
    backend: Mapping[str, str] = {}  # job name -> when the control plane knew it
    remarks: tuple[str, ...] = ()  # what could not be read, and the consequence


async def take_snapshot(
    client: Kubernetes, workload_type: str, events: bool, backend: Mapping[str, str]
) -> NamespaceSnapshot:
    """Raises KubernetesError if something essential cannot be read."""
    remarks = []
    workload_kind, job_api, job_kind = KINDS[workload_type]
    workloads = await client.discovery.of_kind(WORKLOAD_API, workload_kind)
    jobs = await client.discovery.of_kind(job_api, job_kind)
    groups = None
    for api_version in POD_GROUP_APIS:
        with contextlib.suppress(UnknownKind):
            groups = groups or await client.discovery.of_kind(api_version, "PodGroup")
    if groups is None:
        remarks.append("no scheduling.run.ai pod groups on the cluster; their times stay empty")
    at_s = await client.now_s()
    happened: list[EventObject] = []
    if events:
        try:
            happened = [one async for one in client.list(EVENTS, EventObject)]
        except Forbidden as error:
            remarks.append(f"no eviction and volume times, and no fractions of seconds, without events: {error}")
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


def sampled(seen: NamespaceSnapshot) -> list[SampledWorkload]:
    """Each workload of the namespace once, in order of creation. Pure."""
    pods, groups = defaultdict[str, list[WorkloadPod]](list), dict[str, Object]()
    for pod in seen.pods:
        pods[_named_by(pod, POD_LABELS)].append(pod)
    for group in seen.groups:
        groups.setdefault(_named_by(group, POD_GROUP_LABELS), group)
    created = {job.metadata.name: job.metadata.creation_timestamp for job in seen.jobs}
    happened = _EventTimes(seen.events, {group.metadata.name: name for name, group in groups.items()})
    made = []
    for workload in sorted(seen.workloads, key=lambda one: (one.metadata.creation_timestamp or "", one.job_name)):
        name = workload.job_name
        pods_created = sorted(one.metadata.creation_timestamp or "" for one in pods[name])
        decided, decision = happened.decision(pods[name])
        made.append(
            SampledWorkload(
                job_name=name,
                job_namespace=workload.metadata.namespace,
                project_name=workload.metadata.namespace.removeprefix(NAMESPACE_PREFIX),
                workload_created_timestamp=workload.metadata.creation_timestamp,
                job_created_timestamp=created.get(name),
                first_pod_created_timestamp=pods_created[0] if pods_created else None,
                last_pod_created_timestamp=pods_created[-1] if pods_created else None,
                pod_group_created_timestamp=groups[name].metadata.creation_timestamp if name in groups else None,
                pod_scheduling_decision_timestamp=decided,
                first_eviction_timestamp=happened.first.get((EVICTED, name)),
                first_pvc_bind_request_timestamp=happened.first.get((REQUESTED, name)),
                first_pvc_bind_timestamp=happened.first.get((BOUND, name)),
                backend_job_created_timestamp=seen.backend.get(name),
                pod_scheduling_decision=decision,
                sampled_timestamp=seen.at,
            )
        )
    return made


def _named_by(one: Object, labels: tuple[str, ...]) -> str:
    """The workload named by one of these labels; empty for a foreign object."""
    return next((one.metadata.labels[key] for key in labels if one.metadata.labels.get(key)), "")


class _EventTimes:
    """The first event of each reason per workload."""

    def __init__(self, events: Iterable[EventObject], groups: Mapping[str, str]) -> None:
        """`groups`: the workload of each pod group."""
        # (reason, workload) -> time; for an eviction, the workload that got the room
        self.first: dict[tuple[str, str], str] = {}
        self._of_pods: dict[tuple[str, str], list[str]] = defaultdict(list)
        names = set(groups.values())
        for event in sorted(events, key=lambda one: epoch_seconds(one.at) or 0.0):
            at, involved, owner = event.at, event.involved_object, ""
            if at is None:
                continue
            if event.reason == EVICTED:
                owner = groups.get(evictor_of(event), "")
            elif event.reason in (REQUESTED, BOUND):
                owner = next((name for name in names_within(involved.name) if name in names), "")
            elif event.reason in ("Scheduled", "FailedScheduling"):
                self._of_pods[involved.uid, event.reason].append(at)
            if owner:
                self.first.setdefault((event.reason, owner), at)

    def decision(self, pods: list[WorkloadPod]) -> tuple[str | None, str | None]:
        """When the scheduler decided on the last of these pods, and how; None while one is pending."""
        found = [(one, pod.metadata.uid) for pod in pods if (one := pod.decision)]
        if not pods or len(found) < len(pods):
            return None, None
        times = [self._exactly(one, uid) for one, uid in found]
        decision = "scheduled" if all(one.status == "True" for one, _ in found) else "unschedulable"
        return max(times, key=lambda text: epoch_seconds(text) or 0.0), decision

    def _exactly(self, decision: Condition, uid: str) -> str | None:
        """Prefers the scheduler's event of the same transition, which has microseconds."""
        at_s = epoch_seconds(decision.last_transition_time)
        reason = "Scheduled" if decision.status == "True" else "FailedScheduling"
        for event in self._of_pods.get((uid, reason), ()):
            event_s = epoch_seconds(event)
            if at_s is not None and event_s is not None and abs(event_s - at_s) <= _EXACT_S:
                return event
        return decision.last_transition_time


def evictor_of(event: EventObject) -> str:
    """The pod group that caused an eviction: from the annotation of newer schedulers, else from the message."""
    found = _EVICTOR.search(event.message or "")
    return (event.metadata.annotations or {}).get("evictor-pod-group-name") or (found[1] if found else "")


_ASKED = """
    SELECT name, min(time_created) FROM jobs
    WHERE project = %(project)s AND exists_in_cluster = 'true' AND (kind = 'RunaiJob') = %(runai_job)s
      AND (%(cluster)s::text IS NULL OR cluster_uuid::text = %(cluster)s) GROUP BY name
"""
_CONNECT_S = 10
_URL = re.compile(r"postgres(ql)?://([^:@/]*@)?[^@]*")  # with a password, a part of it could be read as a host
_FORM = "invalid database URL; use postgresql://USER@HOST:PORT/DATABASE"


def backend_times(url: str, project: str, workload_type: str, cluster: str | None) -> dict[str, str]:
    """When Run:ai's control plane knew each job, from its database: job name -> time, in milliseconds. `cluster`
    selects one of several by uuid. Raises SeatrialError."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SeatrialError(f"psycopg is not installed; run `{install_command('postgres')}`") from None
    try:
        parameters = conninfo_to_dict(url, connect_timeout=_CONNECT_S, application_name="seatrial")
    except psycopg.Error:  # its message may quote a password
        parameters = {}
    if not parameters or not _URL.fullmatch(url):
        raise SeatrialError(f"{_FORM} and set the password in PGPASSWORD or ~/.pgpass")
    asked = {"project": project, "runai_job": workload_type != "distributed", "cluster": cluster}
    try:
        with psycopg.connect(**parameters) as connection:  # type: ignore[arg-type]
            rows = connection.execute(_ASKED, asked).fetchall()
            times = {str(name): datetime.fromtimestamp(float(made_ms) / 1000, UTC) for name, made_ms in rows}
            return {name: at.isoformat(timespec="milliseconds") for name, at in times.items()}
    except (psycopg.Error, TypeError, ValueError, OverflowError) as error:
        raise SeatrialError(" ".join(str(error).split())) from None
