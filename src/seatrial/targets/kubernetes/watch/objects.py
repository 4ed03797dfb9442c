"""What is read of a job's objects on a cluster: its root, its pods, warnings about them, and its trial's termination
message. Small structs, each with the questions that others ask of it; what they do not name is never kept."""

from datetime import datetime

import msgspec

from seatrial.job import Outcome, StageTime, Unreadable, decode
from seatrial.kubernetes import Meta, Object, ObjectPart
from seatrial.targets.kubernetes.names import JOB, TRIAL

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"
KUEUE_WORKLOAD = "Workload"
CANNOT_START = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
MESSAGE_VERSION = 1
MESSAGE_BYTES = 4096
KILLED = 128  # an exit code of 128 + N is a shell's and a container's way to say signal N
# A trial cannot know these of itself.
UNKNOWN_TO_TRIAL = frozenset({Outcome.EVICTED, Outcome.LOST, Outcome.QUEUE})


def epoch_s(stamp: str | None) -> float | None:
    """Seconds of a time that a server wrote; None for none, and for the zero that stands for none."""
    if not stamp:
        return None
    try:
        seconds = datetime.fromisoformat(stamp).timestamp()
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
    """That there is one is all that matters."""


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
        """Of the host; a pod without one is the only one."""
        labels = self.metadata.labels
        within, across = _index(labels.get(INDEX_LABEL, "")), _index(labels.get(JOBSET_INDEX, ""))
        return within or across  # a JobSet has its hosts either in one Job or in one Job each

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def deleted_s(self) -> float | None:
        """When it was deleted. What the API calls so is when its grace is over."""
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
        """Of all containers, those first that must be done before the others begin."""
        return [
            (one.name, one.state) for one in (*self.status.init_container_statuses, *self.status.container_statuses)
        ]

    @property
    def started(self) -> bool:
        """Its trial has."""
        state = self.trial
        if state.terminated is not None:
            return epoch_s(state.terminated.started_at) is not None and state.terminated.reason not in CANNOT_START
        return state.running is not None

    @property
    def ready(self) -> bool:
        """Whether its trial's readiness probe has passed. Of one that has ended, whether it ever had: a pod that
        was ready is not any more since some time after the container's start; one that never was, since before it."""
        if not any(one.name == TRIAL and one.readiness_probe is not None for one in self.spec.containers):
            return False
        ended = self.trial.terminated
        if ended is None:
            return any(one.name == TRIAL and one.ready for one in self.status.container_statuses)
        since_s, started_s = self.transition_s("Ready", "False"), epoch_s(ended.started_at)
        return since_s is not None and started_s is not None and since_s > started_s


class RootSpec(ObjectPart, frozen=True, gc=False):
    suspend: bool | None = None


class RootObject(Object, frozen=True, gc=False):
    """A Job or JobSet; also Kueue's Workload, of which only the conditions are read."""

    spec: RootSpec = RootSpec()
    status: Conditions = Conditions()

    @property
    def suspended(self) -> bool:
        return bool(self.spec.suspend)

    @property
    def failed(self) -> ObjectCondition | None:
        """Also while its pods are still being ended for it."""
        return self.status.condition("Failed") or self.status.condition("FailureTarget")

    @property
    def completed(self) -> ObjectCondition | None:
        return self.status.condition("Complete") or self.status.condition("Completed")


class Regarding(ObjectPart, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""


class WarningEvent(Object, frozen=True, gc=False):
    """An event that says why something does not go on: a warning, or the word of an autoscaler."""

    type: str = "Warning"
    involved_object: Regarding = Regarding()
    reason: str = ""
    message: str = ""


class TrackedJob(msgspec.Struct, frozen=True):
    """What the submitter or finder of a job knows of it. `name` is its root's, and the value of its label."""

    name: str
    run: str
    uid: str
    hosts: int
    created: StageTime
    queue: bool = False  # Kueue decides when it starts
    limited: bool = False  # its waiting for a place has a limit, which the engine keeps


class TerminationMessage(msgspec.Struct, frozen=True):
    """A trial's own, as its agent writes it."""

    seatrial: int
    outcome: Outcome
    code: int | None = None
    message: str = ""
    steps: tuple[tuple[Outcome, int | None], ...] = ()


def read_termination_message(ended: Terminated | None) -> TerminationMessage | None:
    """None where there is none, or another program's, or one that contradicts the exit code."""
    if ended is None:
        return None
    try:
        found = decode(ended.message.encode(errors="replace")[:MESSAGE_BYTES], TerminationMessage)
    except Unreadable:
        return None
    if found.seatrial != MESSAGE_VERSION or found.outcome in UNKNOWN_TO_TRIAL:
        return None
    # A message from before the trial was killed, or written by what it ran, is not how it ended.
    if found.outcome is Outcome.EXITED:
        agrees = found.code is None or ended.exit_code in (found.code & 0xFF, min(found.code, 255))
    else:
        agrees = ended.exit_code not in (0, KILLED + 9)
    return found if agrees else None


def _index(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def clean_text(text: str, most: int = 1000) -> str:
    """The text of a cluster or a job, fit to be shown: printable, lines kept, not longer than `most`."""
    lines = ("".join(one if one.isprintable() else " " for one in line) for line in text[: 4 * most].splitlines())
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def clean_line(text: str, most: int = 300) -> str:
    return clean_text(" ".join(text[: 4 * most].split()), most)
