"""The objects of a job that are read: root, pods, warnings and termination message. Small structs: fields that are not
declared are never decoded."""

from datetime import datetime

import msgspec

from seatrial.job import Outcome, StageTime, Unreadable, decode
from seatrial.kubernetes import Meta, Object, ObjectPart
from seatrial.targets.kubernetes.names import JOB, SLICE_HOSTS, TRIAL

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"
KUEUE_WORKLOAD = "Workload"
CANNOT_START = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
MESSAGE_VERSION = 1
MESSAGE_BYTES = 4096
KILLED = 128  # exit code 128 + N: killed by signal N
# A trial cannot report these itself.
UNKNOWN_TO_TRIAL = frozenset({Outcome.EVICTED, Outcome.LOST, Outcome.QUEUE})


def epoch_s(stamp: str | None) -> float | None:
    """Seconds since the epoch of a server's timestamp; None if it is missing, zero or invalid."""
    try:
        seconds = datetime.fromisoformat(stamp or "").timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if seconds > 0 else None


class ObjectCondition(ObjectPart, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Conditions(ObjectPart, frozen=True, gc=False):
    conditions: tuple[ObjectCondition, ...] = ()

    def condition(self, type_: str, status: str = "True") -> ObjectCondition | None:
        return next((one for one in self.conditions if one.type == type_ and one.status == status), None)


class RunningState(ObjectPart, frozen=True, gc=False):
    started_at: str | None = None


class WaitingState(ObjectPart, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class Terminated(ObjectPart, frozen=True, gc=False):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ObjectPart, frozen=True, gc=False):
    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: Terminated | None = None


class ContainerStatus(ObjectPart, frozen=True, gc=False):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()
    ready: bool = False  # its readiness probe passed last time


class Probe(ObjectPart, frozen=True, gc=False):
    """Only its presence matters."""


class ContainerResources(ObjectPart, frozen=True, gc=False):
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class ContainerSpec(ObjectPart, frozen=True, gc=False):
    name: str = ""
    readiness_probe: Probe | None = None
    resources: ContainerResources = ContainerResources()


class PodSpec(ObjectPart, frozen=True, gc=False):
    node_name: str = ""
    containers: tuple[ContainerSpec, ...] = ()


class PodStatus(Conditions, frozen=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodMeta(Meta, frozen=True, gc=False):
    deletion_grace_period_seconds: int | None = None


class PodObject(Object, frozen=True, gc=False):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def job(self) -> str:
        return self.metadata.labels.get(JOB, "")

    @property
    def number(self) -> int:
        """Number of the host; 0 for a pod without one."""
        labels = self.metadata.labels
        within, across = _index(labels.get(INDEX_LABEL, "")), _index(labels.get(JOBSET_INDEX, ""))
        if each := _index(labels.get(SLICE_HOSTS, "")):
            return across * each + within  # a JobSet with a Job for each slice
        return within or across  # a JobSet has its hosts either in one Job or in one Job each

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def deleted_s(self) -> float | None:
        """When its deletion was requested. `deletionTimestamp` is the end of its grace period."""
        over_s = epoch_s(self.metadata.deletion_timestamp)
        return None if over_s is None else over_s - (self.metadata.deletion_grace_period_seconds or 0)

    @property
    def phase_ended(self) -> bool:
        return self.status.phase in ENDED_PHASES

    def transition_s(self, type_: str, status: str = "True") -> float | None:
        """Since when a condition holds, by the server's clock."""
        found = self.status.condition(type_, status)
        return epoch_s(found.last_transition_time) if found is not None else None

    @property
    def trial(self) -> ContainerState:
        found = (one.state for one in self.status.container_statuses if one.name == TRIAL)
        return next(found, ContainerState())

    def states(self) -> list[tuple[str, ContainerState]]:
        """States of all containers, init containers first."""
        return [
            (one.name, one.state) for one in (*self.status.init_container_statuses, *self.status.container_statuses)
        ]

    @property
    def started(self) -> bool:
        """Whether its trial has started."""
        state = self.trial
        if state.terminated is not None:
            return epoch_s(state.terminated.started_at) is not None and state.terminated.reason not in CANNOT_START
        return state.running is not None

    @property
    def ready(self) -> bool:
        """Whether its trial's readiness probe has passed. For an ended trial, whether it ever had: if so, the pod's
        Ready condition turned false after the container's start, else before it."""
        if not any(one.name == TRIAL and one.readiness_probe is not None for one in self.spec.containers):
            return False
        ended = self.trial.terminated
        if ended is None:
            return any(one.name == TRIAL and one.ready for one in self.status.container_statuses)
        since_s, started_s = self.transition_s("Ready", "False"), epoch_s(ended.started_at)
        return since_s is not None and started_s is not None and since_s > started_s


class RootSpec(ObjectPart, frozen=True, gc=False):
    suspend: bool = False
    ttl_seconds_after_finished: int = 0


class RootObject(Object, frozen=True, gc=False):
    """A Job or JobSet, or Kueue's Workload, of which only the conditions are read."""

    spec: RootSpec = RootSpec()
    status: Conditions = Conditions()

    @property
    def failed(self) -> ObjectCondition | None:
        """Set while its pods are still being stopped, too."""
        return self.status.condition("Failed") or self.status.condition("FailureTarget")

    @property
    def completed(self) -> ObjectCondition | None:
        return self.status.condition("Complete") or self.status.condition("Completed")


class Regarding(ObjectPart, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""


class WarningEvent(Object, frozen=True, gc=False):
    """An event that explains why something is stuck: a warning, or a message of an autoscaler."""

    type: str = "Warning"
    involved_object: Regarding = Regarding()
    reason: str = ""
    message: str = ""


class TrackedJob(msgspec.Struct, frozen=True):
    """What the process that submitted or adopted a job knows. `name` is that of its root and the value of its label."""

    name: str
    run: str
    uid: str
    hosts: int
    created: StageTime
    queue: bool = False  # Kueue decides when it starts
    limited: bool = False  # it has a queue limit, which the engine enforces


class TerminationMessage(msgspec.Struct, frozen=True):
    """The termination message that the agent writes."""

    seatrial: int
    outcome: Outcome
    code: int | None = None
    message: str = ""
    steps: tuple[tuple[Outcome, int | None], ...] = ()


def read_termination_message(ended: Terminated | None) -> TerminationMessage | None:
    """The agent's message; None if it is missing, of another program, or contradicts the exit code."""
    if ended is None:
        return None
    try:
        found = decode(ended.message.encode(errors="replace")[:MESSAGE_BYTES], TerminationMessage)
    except Unreadable:
        return None
    if found.seatrial != MESSAGE_VERSION or found.outcome in UNKNOWN_TO_TRIAL:
        return None
    # A message written before the trial was killed, or by another program, does not tell how it ended.
    if found.outcome is Outcome.EXITED:
        agrees = found.code is None or ended.exit_code in (found.code & 0xFF, min(found.code, 255))
    else:
        agrees = ended.exit_code not in (0, KILLED + 9)
    return found if agrees else None


def _index(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def clean_text(text: str, most: int = 1000) -> str:
    """Text of a cluster or a job made safe to show: printable, with its lines, at most `most` characters."""
    lines = ("".join(one if one.isprintable() else " " for one in line) for line in text[: 4 * most].splitlines())
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def clean_line(text: str, most: int = 300) -> str:
    return clean_text(" ".join(text[: 4 * most].split()), most)
