"""Why a job does not start, and whether waiting can help. Pure.

A reason that only the user can fix is REFUSED, one that may be the cluster's is INFRA; both are `final`: the job is
stopped if one lasts for `after_s`. For other reasons the job waits until the engine's queue limit.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

import msgspec

from seatrial.job import Outcome
from seatrial.kubernetes import parse_quantity
from seatrial.kubernetes.errors import OF_QUOTA
from seatrial.targets.kubernetes.watch.objects import (
    KUEUE_WORKLOAD,
    ObjectCondition,
    PodObject,
    RootObject,
    WaitingState,
    WarningEvent,
    clean_line,
)

# Message of the scheduler: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match ...".
UNSCHEDULABLE = re.compile(r"^0/\d+ nodes are available: (?P<reasons>.*?)\.?(?:$|\. .*)", re.DOTALL)
BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*": (?=.)')
INSUFFICIENT = "Insufficient "
NO_MATCH = ("didn't match Pod's node affinity/selector", "didn't match node selector")
TAINT = re.compile(r"had untolerated taint(?:\(s\)|s)? ?\{?(?P<key>[^:}\s]*)")
OF_NODES = "node.kubernetes.io/"  # taints for the condition of a node; they are temporary
MISSING_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')
# Each attempt names another pod, with a random name.
NAMELESS = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')
CREATE_CHARACTERS = 800  # violations of a namespace's security standard are long
_MESSAGE_CHARACTERS = 8000  # read from a condition
QUOTA = re.compile(r"requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>\S+)")

# Reasons of nodes for image errors: those that only the user can fix, and all.
WRONG_IMAGE = frozenset({"ErrImageNeverPull", "InvalidImageName", "SignatureValidationFailed"})
IMAGE = WRONG_IMAGE | {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"}
CONTAINER = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
CRASH_LOOP = "CrashLoopBackOff"  # of a container from the user's template: ours are started once
MOUNT = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "FailedCreatePodContainer", "FailedPodSandBoxStatus"})
CREATE = frozenset({"FailedCreate", "FailedCreatePod"})
NO_QUEUE, OVER_WHOLE_QUEUE = "doesn't exist", "> maximum capacity"
_CHANGE = "request less, or change the node selector or tolerations"
NEVER = "never"  # kind of a reason that depends on the capacity of nodes
# Event reasons of autoscalers: the cluster autoscaler (also GKE's), and Karpenter.
ADDS_NODE = frozenset({"TriggeredScaleUp", "Nominated"})
NO_SCALE_UP = "NotTriggerScaleUp"
AUTOSCALER = ADDS_NODE | {NO_SCALE_UP, "FailedScaleUp"}
NOT_TRIGGERED = re.compile(r"^pod didn't trigger scale-up(?: \([^)]*\))?: (?=\d)")
KARPENTER = "Failed to schedule pod, "


MESSAGES = tomllib.loads((files(__package__) / "messages.toml").read_text(encoding="utf-8"))


def only_user_can_fix(problem: str, message: str) -> bool:
    """Whether the message tells of that problem of `messages.toml`."""
    known, lower = MESSAGES[problem], message.lower()
    return any(part in lower for part in known["some"]) and not any(part in lower for part in known["none"])


class Patience(msgspec.Struct, frozen=True):
    """How long a reason must last before the job is stopped because of it."""

    refused_s: float = 8.0  # nodes retry, and a missing object may be about to be created
    infra_s: float = 20.0
    never_s: float = 900.0  # no node fits, and there is no queue limit: adding a GPU node takes up to ten minutes
    setup_s: float = 60.0  # a node cannot set up the pod or mount a volume
    lost_s: float = 30.0  # a node has not stopped a deleted pod, after the pod's own grace


class Waiting(msgspec.Struct, frozen=True):
    why: str
    outcome: Outcome = Outcome.QUEUE
    after_s: float = 0.0
    kind: str = ""  # reasons of the same kind count as one; empty if waiting may help

    @property
    def final(self) -> bool:
        return bool(self.kind)


class WaitContext(msgspec.Struct, frozen=True):
    """State other than that of the pods. `most`: largest amount of each resource on a node; None if unknown."""

    root: RootObject | None = None
    warnings: tuple[WarningEvent, ...] = ()
    hosts: int = 1
    queue: bool = False
    limited: bool = False  # it has a queue limit
    most: Mapping[str, float] | None = None
    gpu_labels: str = ""  # of the nodes


def why_waiting(pods: Sequence[PodObject], context: WaitContext, patience: Patience) -> Waiting | None:
    """The most important reason; None if no obstacle is known."""
    found = list(_reasons(pods, context, patience))
    return next((one for one in found if one.final), found[0] if found else None)


def _reasons(pods: Sequence[PodObject], context: WaitContext, patience: Patience) -> Iterator[Waiting]:
    root = context.root
    if root is not None and root.spec.suspend:
        if context.queue:
            yield _queued(context.warnings, patience)
        return
    for pod in pods:
        if pod.started or pod.phase_ended or pod.being_deleted:
            continue
        for one in _of_pod(pod, context, patience):
            yield msgspec.structs.replace(one, why=f"host {pod.number}: {one.why}") if context.hosts > 1 else one
    if len(pods) < context.hosts:
        others = [one for one in context.warnings if one.involved_object.kind != "Pod" and one.reason in CREATE]
        if others:
            yield _not_created(others[-1].message, patience)


def _of_pod(pod: PodObject, context: WaitContext, patience: Patience) -> Iterator[Waiting]:
    about = ("Pod", pod.metadata.name)
    warnings = [one for one in context.warnings if (one.involved_object.kind, one.involved_object.name) == about]
    for name, state in pod.states():
        waiting = state.waiting
        if waiting is None:
            continue
        if waiting.reason in IMAGE:
            yield _image(waiting, warnings, patience)
        elif waiting.reason in CONTAINER:
            why = f"cannot create container {name} ({waiting.reason}): {clean_line(waiting.message)}"
            yield _refused_or_infra(only_user_can_fix("wrong_container", waiting.message), why, "container", patience)
        elif waiting.reason == CRASH_LOOP:
            why = f"container {name} of `template` keeps restarting: {clean_line(waiting.message)}"
            yield Waiting(why, Outcome.REFUSED, patience.infra_s, "crash")
    scheduled = pod.status.condition("PodScheduled", "False")
    if scheduled is not None and not pod.spec.node_name:
        yield _unscheduled(scheduled, pod, context, warnings, patience)
    elif not any(state.running for _, state in pod.states()):
        # The latest warning about its volumes or its sandbox.
        found = next((one for one in reversed(warnings) if one.reason in MOUNT | _SANDBOX), None)
        if found is not None:
            yield _not_set_up(found, patience)


def _refused_or_infra(refused: bool, why: str, kind: str, patience: Patience) -> Waiting:
    if refused:
        return Waiting(why, Outcome.REFUSED, patience.refused_s, kind)
    return Waiting(why, Outcome.INFRA, patience.infra_s, kind)


# ---- on a node


def _image(waiting: WaitingState, warnings: list[WarningEvent], patience: Patience) -> Waiting:
    # Between two attempts some versions report only the back-off; the error is in a warning then.
    pulls = [one.message for one in warnings if "pull image" in one.message]
    missing = only_user_can_fix("no_such_image", " ".join([waiting.message, *pulls[-1:]]))
    detail = BACK_OFF.sub("", waiting.message)
    detail = pulls[-1] if pulls and detail.startswith("Back-off pulling") else detail
    why = f"cannot pull image ({waiting.reason}): {clean_line(detail or waiting.reason)}"
    return _refused_or_infra(waiting.reason in WRONG_IMAGE or missing, why, "image", patience)


def _not_set_up(found: WarningEvent, patience: Patience) -> Waiting:
    if found.reason in _SANDBOX:
        why = f"the node cannot set up the pod: {clean_line(found.message)}"
        return Waiting(why, Outcome.INFRA, patience.setup_s, "sandbox")
    why = f"cannot mount a volume: {clean_line(found.message)}"
    if only_user_can_fix("no_such_volume", found.message):
        return Waiting(why, Outcome.REFUSED, patience.refused_s, "mount")
    return Waiting(why, Outcome.INFRA, patience.setup_s, "mount")


# ---- for a node


def _unscheduled(
    condition: ObjectCondition, pod: PodObject, context: WaitContext, events: list[WarningEvent], patience: Patience
) -> Waiting:
    """A node may still be added, and the queue limit is the user's: final only if an autoscaler reports that no node
    that it could add would fit, or without a queue limit."""
    whole = " ".join(condition.message[:_MESSAGE_CHARACTERS].split())
    matched = UNSCHEDULABLE.match(whole)
    # The rest of the message is about preemption and does not help users.
    text = clean_line(whole[: matched.end("reasons")] if matched else whole)
    why = f"waiting: {text or condition.reason}"
    if MISSING_CLAIM.search(text):
        return Waiting(f"the pod cannot be scheduled: {text}", Outcome.REFUSED, patience.refused_s, "claim")
    autoscaler = next((one for one in reversed(events) if one.reason in AUTOSCALER or KARPENTER in one.message), None)
    if autoscaler is not None:
        if autoscaler.reason in ADDS_NODE:
            return Waiting(f"waiting for a new node: {clean_line(autoscaler.message)}")
        why += f"; the autoscaler says: {clean_line(autoscaler.message)}"
    if matched is None:
        return Waiting(why)
    reasons = re.split(r", (?=\d+ )", matched["reasons"])
    too_much = [_too_much(reason, pod, context.most) for reason in reasons]
    if not all(more or _never(reason) for reason, more in zip(reasons, too_much, strict=True)):
        return Waiting(why)
    listed = "; ".join(dict.fromkeys(filter(None, too_much)))
    never = f"no node in this cluster fits: {text}" + (f" ({listed})" if listed else "")
    wants_gpu = any("/" in name for one in pod.spec.containers for name in one.resources.requests)
    if wants_gpu and context.gpu_labels and any(words in text for words in NO_MATCH):
        never += f"; {context.gpu_labels.rstrip('; ')}"
    if autoscaler is not None and _adds_none(autoscaler):
        why = f"{never}; the autoscaler cannot add one that fits: {clean_line(autoscaler.message)}; {_CHANGE}"
        return Waiting(why, Outcome.REFUSED, patience.infra_s, NEVER)
    if context.limited:
        return Waiting(f"{never}; waiting for a new node")
    return Waiting(f"{never}; {_CHANGE}", Outcome.REFUSED, patience.never_s, NEVER)


def _adds_none(event: WarningEvent) -> bool:
    """Whether an autoscaler has considered every node that it could add, and none would fit. False if it only cannot
    add one now (a group at its maximum, a back-off)."""
    found = NOT_TRIGGERED.match(event.message)
    if event.reason != NO_SCALE_UP or found is None:
        return False
    reasons = re.split(r", (?=\d+ )", event.message[found.end() :])
    return all(INSUFFICIENT in reason or _never(reason) for reason in reasons)


def _never(reason: str) -> bool:
    """Whether the reason remains even when other jobs end."""
    if any(text in reason for text in NO_MATCH):
        return True
    taint = TAINT.search(reason)
    return taint is not None and bool(taint["key"]) and not taint["key"].startswith(OF_NODES)


def _too_much(reason: str, pod: PodObject, most: Mapping[str, float] | None) -> str:
    """Message if the pod requests more than even an empty node has; "" if a node has enough or that is unknown."""
    _, found, resource = reason.partition(INSUFFICIENT)
    if not found or most is None:
        return ""
    resource = resource.strip().rstrip(".")
    requested = sum(parse_quantity(one.resources.requests.get(resource, "0")) or 0.0 for one in pod.spec.containers)
    has = most.get(resource, 0.0)
    if requested <= has:
        return ""
    return f"{requested:g} of {resource} requested, no node has " + (f"more than {has:g}" if has else "any")


# ---- before there are pods


def _not_created(message: str, patience: Patience) -> Waiting:
    text = clean_line(NAMELESS.sub("", message), CREATE_CHARACTERS)
    why = f"cannot create the pods: {text}"
    if not any(words in message for words in OF_QUOTA):
        return _refused_or_infra(only_user_can_fix("not_admitted", message), why, "create", patience)
    if over_whole_quota(message):
        return Waiting(why, Outcome.REFUSED, patience.refused_s, "create")
    return Waiting(f"waiting for room in the namespace's quota: {text}")


def over_whole_quota(message: str) -> bool:
    """Whether the request exceeds the whole quota."""
    found = QUOTA.search(message)
    if found is None:
        return False
    requested, limited = (_amounts(found[part]) for part in ("requested", "limited"))
    return any(amount > limited[name] for name, amount in requested.items() if name in limited)


def _amounts(text: str) -> dict[str, float]:
    pairs = (one.partition("=") for one in text.split(","))
    amounts = ((name, parse_quantity(amount)) for name, _, amount in pairs)
    return {name: amount for name, amount in amounts if amount is not None}


def _queued(warnings: Sequence[WarningEvent], patience: Patience) -> Waiting:
    messages = [one.message for one in warnings if one.involved_object.kind == KUEUE_WORKLOAD]
    if not messages:
        return Waiting("waiting: not admitted by Kueue yet")
    text = clean_line(messages[-1])
    if NO_QUEUE in text:
        return Waiting(f"Kueue will not admit the job: {text}", Outcome.REFUSED, patience.refused_s, "queue")
    if OVER_WHOLE_QUEUE in text:
        return Waiting(f"Kueue can never admit the job: {text}", Outcome.REFUSED, patience.setup_s, "queue")
    return Waiting(f"waiting: not admitted by Kueue yet: {text}")
