"""Which objects a scale trial follows, which workload each belongs to, and which field shows which stage. Data only:
to follow another kind, add an entry.

A path is `spec.nodeName`, for a map `metadata.annotations[KEY]`, for a list `status.conditions[TYPE].status`."""

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import combinations, pairwise

import msgspec

# The stages of a workload, in the order of its life. A workload with several pods reaches a stage when all have;
# one pod is enough for the stages that begin with `first` and for unschedulable, evicted and failed.
STAGES = (
    "created", "job_created", "group_created", "quota_reserved", "admitted", "first_pod_created", "pod_created",
    "claim_bound", "decided", "scheduled", "unschedulable", "evicted", "started", "ready", "finished", "deleted",
)  # fmt: skip
(
    CREATED, JOB_CREATED, GROUP_CREATED, QUOTA_RESERVED, ADMITTED, FIRST_POD_CREATED, POD_CREATED, CLAIM_BOUND, DECIDED,
    SCHEDULED, UNSCHEDULABLE, EVICTED, STARTED, READY, FINISHED, DELETED,
) = STAGES  # fmt: skip
# From one stage to a later one. Not every workload passes through those that are left out.
IN_TURN = tuple(stage for stage in STAGES if stage not in (UNSCHEDULABLE, EVICTED, DELETED))
DELTAS = tuple(f"{first}..{then}" for first, then in combinations(IN_TURN, 2))


def next_stages(stages: Collection[str]) -> list[str]:
    """Each of these stages with the next one: `created..scheduled`."""
    return [f"{first}..{then}" for first, then in pairwise(stage for stage in IN_TURN if stage in stages)]


OF_PODS = (POD_CREATED, SCHEDULED, STARTED, READY, FINISHED, DELETED)  # reached when all pods have


_SEGMENT = re.compile(r"(?P<name>[^.\[\]]+)(?:\[(?P<key>[^\]]+)\])?(?:\.|$)")


@lru_cache(maxsize=1024)
def segments(path: str) -> tuple[tuple[str, str], ...]:
    """(name, key) of each segment; the key is empty except for maps and lists. Raises ValueError."""
    found, at = [], 0
    while at < len(path):
        match = _SEGMENT.match(path, at)
        if match is None:
            raise ValueError(f"invalid path {path!r}; use for example status.phase or status.conditions[Ready].status")
        found.append((match["name"], match["key"] or ""))
        at = match.end()
    return tuple(found)


class ReachedWhen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage is reached when the value at `path` is one of `values`; without values, when there is any value; without
    a path, when the object exists."""

    stage: str
    path: str = ""
    values: tuple[str, ...] = ()
    stamp: str = ""  # path of the time that the server recorded, in whole seconds
    failed: bool = False  # the workload has then failed
    by: tuple[str, ...] = ()  # paths of the cause; the first that has a value counts


class Followed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind. An object belongs to a workload by Seatrial's label, by an owner that belongs to the workload, or by a
    label that holds the workload's name."""

    api_version: str
    kind: str
    rules: tuple[ReachedWhen, ...]
    labels: tuple[str, ...] = ()  # labels that may hold the workload's name
    about: str = ""  # path of the uid of the object that this one describes; the stages are that object's
    gone: str = ""  # stage that its deletion reaches
    fields: str = ""  # field selector, so that the server sends only useful objects
    labelled: bool = False  # objects carry the attempt's labels; the server sends only those
    own: tuple[ReachedWhen, ...] = ()  # rules for a workload that is itself of this kind, instead of `rules`


_MADE = "metadata.creationTimestamp"
# Labels in which operators name the workload of a pod or pod group.
_NAMES = ("release", "workloadName", "job-name", "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name")
_PREEMPTED = ("Preempted", "Evict", "Evicted", "EvictedDueToPreempted", "EvictedDueToPodsReadyTimeout")
_EVICTOR = ("metadata.annotations[evictor-pod-group-name]", "related.name", "message")

POD_RULES = (
    ReachedWhen(POD_CREATED, stamp=_MADE),
    ReachedWhen(SCHEDULED, "spec.nodeName", stamp="status.conditions[PodScheduled].lastTransitionTime"),
    ReachedWhen(UNSCHEDULABLE, "status.conditions[PodScheduled].reason", ("Unschedulable",)),
    ReachedWhen(EVICTED, "status.conditions[DisruptionTarget].status", ("True",),
                by=("status.conditions[DisruptionTarget].reason",)),
    ReachedWhen(STARTED, "status.phase", ("Running", "Succeeded", "Failed")),
    ReachedWhen(READY, "status.conditions[Ready].status", ("True",),
                stamp="status.conditions[Ready].lastTransitionTime"),
    ReachedWhen(FINISHED, "status.phase", ("Succeeded",)),
    ReachedWhen(FINISHED, "status.phase", ("Failed",), failed=True),
)  # fmt: skip
# Pods carry Seatrial's labels if they are made from a template in the manifest; other pods may not.
PODS_LABELLED = Followed("v1", "Pod", POD_RULES, labels=_NAMES, gone=DELETED, labelled=True)
PODS_OF_OTHERS = Followed("v1", "Pod", POD_RULES, labels=_NAMES, gone=DELETED)

_JOBS = (("batch/v1", "Job"), ("kubeflow.org/v1", "PyTorchJob"), ("run.ai/v1", "RunaiJob"))
_GROUPS = (
    ("scheduling.run.ai/v2alpha2", "PodGroup"),
    ("scheduling.run.ai/v1", "PodGroup"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
)
_ADMISSION = (
    ReachedWhen(QUOTA_RESERVED, "status.conditions[QuotaReserved].status", ("True",)),
    ReachedWhen(ADMITTED, "status.conditions[Admitted].status", ("True",)),
    ReachedWhen(EVICTED, "status.conditions[Evicted].status", ("True",),
                by=("status.conditions[Preempted].message", "status.conditions[Evicted].reason")),
)  # fmt: skip
_END = (
    ReachedWhen(FINISHED, "status.conditions[Finished].reason", ("Failed",), failed=True),
    ReachedWhen(FINISHED, "status.conditions[Finished].status", ("True",)),
)
# Frequent events that are never evictions.
_NOT_THESE = ",".join(
    f"reason!={reason}"
    for reason in ("Scheduled", "FailedScheduling", "Pulling", "Pulled", "Created", "Started", "SuccessfulCreate",
                   "SuccessfulDelete", "Completed", "Killing", "QuotaReserved", "Admitted", "CreatedWorkload")
)  # fmt: skip
# Kinds between a workload and its pods. Those that the cluster lacks or does not let us watch are left out.
BETWEEN = (
    *(Followed(version, kind, (ReachedWhen(JOB_CREATED, stamp=_MADE),), _NAMES) for version, kind in _JOBS),
    *(Followed(version, kind, (ReachedWhen(GROUP_CREATED, stamp=_MADE),), _NAMES) for version, kind in _GROUPS),
    *(
        Followed(
            f"kueue.x-k8s.io/{version}",
            "Workload",
            (ReachedWhen(GROUP_CREATED, stamp=_MADE), *_ADMISSION),
            own=(*_ADMISSION, *_END),
        )
        for version in ("v1beta2", "v1beta1")
    ),
    Followed("v1", "PersistentVolumeClaim", (ReachedWhen(CLAIM_BOUND, "status.phase", ("Bound",)),), _NAMES),
    Followed(
        "v1",
        "Event",
        (ReachedWhen(EVICTED, "reason", _PREEMPTED, by=_EVICTOR),),
        about="involvedObject.uid",
        fields=_NOT_THESE,
    ),
)


def follow_root(api_version: str, kind: str) -> Followed:
    """Follows the workload itself: to find what it owns, and for the stages that its own status shows."""
    own = next((one.own for one in BETWEEN if (one.api_version, one.kind) == (api_version, kind)), ())
    return Followed(api_version, kind, (), labelled=True, own=own)
