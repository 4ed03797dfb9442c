"""Which objects a scale trial follows, which workload each belongs to, and which field shows which stage.
`followed.yaml` has those of all trials.

A path is `spec.nodeName`, for a map `metadata.annotations[KEY]`, for a list `status.conditions[TYPE].status`, or `[*]`
for the largest value of all elements: `True` if any is."""

import re
from collections.abc import Collection
from functools import cache, lru_cache
from importlib.resources import files
from itertools import combinations, pairwise

import msgspec

from seatrial.job import convert
from seatrial.limited_yaml import load_all

# The stages of a workload, in the order of its life. A workload with several pods reaches a stage when all have;
# one pod is enough for the stages that begin with `first` and for unschedulable, evicted and failed.
STAGES = (
    "created", "job_created", "group_created", "quota_reserved", "admitted", "first_pod_created", "pod_created",
    "claim_bound", "claim_allocated", "decided", "scheduled", "unschedulable", "evicted", "started", "ready",
    "endpoint_ready", "finished", "deleted",
)  # fmt: skip
(
    CREATED, JOB_CREATED, GROUP_CREATED, QUOTA_RESERVED, ADMITTED, FIRST_POD_CREATED, POD_CREATED, CLAIM_BOUND,
    CLAIM_ALLOCATED, DECIDED, SCHEDULED, UNSCHEDULABLE, EVICTED, STARTED, READY, ENDPOINT_READY, FINISHED, DELETED,
) = STAGES  # fmt: skip
# From one stage to a later one. Not every workload passes through those that are left out.
IN_TURN = tuple(stage for stage in STAGES if stage not in (UNSCHEDULABLE, EVICTED, DELETED))
DELTAS = tuple(f"{first}..{then}" for first, then in combinations(IN_TURN, 2))


def next_stages(stages: Collection[str]) -> list[str]:
    """Each of these stages with the next one: `created..scheduled`."""
    return [f"{first}..{then}" for first, then in pairwise(stage for stage in IN_TURN if stage in stages)]


OF_PODS = (POD_CREATED, DECIDED, SCHEDULED, STARTED, READY, FINISHED, DELETED)  # reached when all pods have
OF_ALL = (CLAIM_BOUND, CLAIM_ALLOCATED, ENDPOINT_READY)  # reached when all such objects of the workload have


_SEGMENT = re.compile(r"(?P<name>[^.\[\]]+)(?:\[(?P<key>[^\]]+)\])?(?:\.|$)")


@lru_cache(maxsize=1024)
def segments(path: str) -> tuple[tuple[str, str], ...]:
    """(name, key) of each segment; the key is empty except for maps and lists. Raises ValueError."""
    found = [*_SEGMENT.finditer(path)]
    if "".join(match[0] for match in found) != path:
        raise ValueError(f"invalid path {path!r}; use for example status.phase or status.conditions[Ready].status")
    return tuple((match["name"], match["key"] or "") for match in found)


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


class _Known(msgspec.Struct, frozen=True):
    """`followed.yaml`."""

    pods: Followed
    between: tuple[Followed, ...]


@cache
def _known() -> _Known:
    return convert(load_all((files(__package__) / "followed.yaml").read_text("utf-8"))[0], _Known)


def kinds_between() -> tuple[Followed, ...]:
    """Kinds between a workload and its pods."""
    return _known().between


def followed_pods(labelled: bool) -> Followed:
    """Pods carry Seatrial's labels if they are made from a template in the manifest; other pods may not."""
    return msgspec.structs.replace(_known().pods, labelled=labelled)


def follow_root(api_version: str, kind: str) -> Followed:
    """Follows the workload itself: to find what it owns, and for the stages that its own status shows."""
    own = next((one.own for one in kinds_between() if (one.api_version, one.kind) == (api_version, kind)), ())
    return Followed(api_version, kind, (), labelled=True, own=own)
