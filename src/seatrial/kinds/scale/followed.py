"""Which objects a scale trial follows, to which workload each belongs, and what of them shows which stage. Data only:
another kind is followed by another entry, not by code.

A path is `spec.nodeName`; of a map, `metadata.annotations[KEY]`; of a list, `status.conditions[TYPE].status`."""

import re
from functools import lru_cache

import msgspec

# The stages of a workload, in the order of its life. Of one with several pods a stage is reached when all of them have,
# but for those that begin with `first`, and for being declared unschedulable, evicted or failed, where one is enough.
STAGES = (
    "created", "job_created", "group_created", "quota_reserved", "admitted", "first_pod_created", "pod_created",
    "claim_bound", "decided", "scheduled", "unschedulable", "evicted", "started", "ready", "finished", "deleted",
)  # fmt: skip
(
    CREATED, JOB_CREATED, GROUP_CREATED, QUOTA_RESERVED, ADMITTED, FIRST_POD_CREATED, POD_CREATED, CLAIM_BOUND, DECIDED,
    SCHEDULED, UNSCHEDULABLE, EVICTED, STARTED, READY, FINISHED, DELETED,
) = STAGES  # fmt: skip
OF_PODS = (POD_CREATED, SCHEDULED, STARTED, READY, FINISHED, DELETED)  # reached when all pods have


_SEGMENT = re.compile(r"(?P<name>[^.\[\]]+)(?:\[(?P<key>[^\]]+)\])?(?:\.|$)")


@lru_cache(maxsize=1024)
def segments(path: str) -> tuple[tuple[str, str], ...]:
    """(name, key) of each; the key is empty but for maps and lists. Raises ValueError."""
    found, at = [], 0
    while at < len(path):
        match = _SEGMENT.match(path, at)
        if match is None:
            raise ValueError(f"{path!r} is no path: write status.phase, or status.conditions[Ready].status")
        found.append((match["name"], match["key"] or ""))
        at = match.end()
    return tuple(found)


class ReachedWhen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stage is reached when what is at `path` is one of `values`; without values, when something is there; without
    a path, when the object is."""

    stage: str
    path: str = ""
    values: tuple[str, ...] = ()
    stamp: str = ""  # where its writer says when that was, in whole seconds
    failed: bool = False  # and that is no success
    by: tuple[str, ...] = ()  # where it says who caused it; the first that does


class Followed(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind. An object belongs to a workload by the label that Seatrial gave it, by an owner that belongs to it, or
    by a label whose value is the workload's name."""

    api_version: str
    kind: str
    rules: tuple[ReachedWhen, ...]
    labels: tuple[str, ...] = ()  # those whose value may be the workload's name
    about: str = ""  # path to the uid of the object that it is about; then its stages are that object's
    gone: str = ""  # the stage when it is deleted
    fields: str = ""  # a field selector: what is of no use is not even sent
    labelled: bool = False  # it carries the attempt's own labels: others are not even sent
    own: tuple[ReachedWhen, ...] = ()  # of a workload that is itself of this kind, in place of `rules`


_MADE = "metadata.creationTimestamp"
# Labels by which operators name the workload that a pod or a pod group was made for.
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
# Of workloads whose pods are made from a template that Seatrial saw, pods carry its labels; of others they may not.
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
# What every pod says of itself: many, and none of them an eviction.
_NOT_THESE = ",".join(
    f"reason!={reason}"
    for reason in ("Scheduled", "FailedScheduling", "Pulling", "Pulled", "Created", "Started", "SuccessfulCreate",
                   "SuccessfulDelete", "Completed", "Killing", "QuotaReserved", "Admitted", "CreatedWorkload")
)  # fmt: skip
# Between a workload and its pods. Those that a cluster does not have, or does not let us watch, are left out.
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
    """The workload itself: for what it owns, and for what it shows of itself."""
    own = next((one.own for one in BETWEEN if (one.api_version, one.kind) == (api_version, kind)), ())
    return Followed(api_version, kind, (), labelled=True, own=own)
