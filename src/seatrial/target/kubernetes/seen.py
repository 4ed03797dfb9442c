"""What is read of a job's objects on a cluster: its root, its pods, and warnings about them. Small structs, each with
the questions that others ask of it; what they do not name is never kept."""

from datetime import datetime

import msgspec

from seatrial.job import StageTime
from seatrial.kubernetes import Meta, Object, Part
from seatrial.target.kubernetes.names import JOB, TRIAL

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
REPLICA_TYPE, REPLICA_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-global-index"
FIRST_REPLICA = "master"  # of a PyTorchJob: host 0, before its workers
CANNOT_START = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
ENDED_PHASES = frozenset({"Succeeded", "Failed"})


def epoch_s(stamp: str | None) -> float | None:
    """Seconds of a time that a server wrote; None for none, and for the zero that stands for none."""
    if not stamp:
        return None
    try:
        seconds = datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if seconds > 0 else None


class Condition(Part, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Running(Part, frozen=True, gc=False):
    started_at: str | None = None


class NotYet(Part, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class Terminated(Part, frozen=True, gc=False):
    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Part, frozen=True, gc=False):
    waiting: NotYet | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True, gc=False):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()
    ready: bool = False  # its readiness probe passed last time


class Probe(Part, frozen=True, gc=False):
    """That there is one is all that matters."""


class Asks(Part, frozen=True, gc=False):
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class ContainerSpec(Part, frozen=True, gc=False):
    name: str = ""
    readiness_probe: Probe | None = None
    resources: Asks = Asks()


class PodSpec(Part, frozen=True, gc=False):
    node_name: str = ""
    containers: tuple[ContainerSpec, ...] = ()


class PodStatus(Part, frozen=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodMeta(Meta, frozen=True, gc=False):
    deletion_grace_period_seconds: int | None = None


class PodSeen(Object, frozen=True, gc=False):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def job(self) -> str:
        return self.metadata.labels.get(JOB, "")

    @property
    def number(self) -> int:
        """Of the host; whoever has none is the only one."""
        labels = self.metadata.labels
        if REPLICA_INDEX in labels:
            first = labels.get(REPLICA_TYPE, "").lower() == FIRST_REPLICA
            return 0 if first else _whole(labels[REPLICA_INDEX]) + 1
        within, across = _whole(labels.get(INDEX_LABEL, "")), _whole(labels.get(JOBSET_INDEX, ""))
        return within or across  # a JobSet has its hosts either in one Job or in one Job each

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def phase_ended(self) -> bool:
        return self.status.phase in ENDED_PHASES

    def condition(self, type_: str, status: str = "True") -> Condition | None:
        return _condition(self.status.conditions, type_, status)

    def state(self, container: str) -> ContainerState:
        found = (one.state for one in self.status.container_statuses if one.name == container)
        return next(found, ContainerState())

    def states(self) -> list[tuple[str, ContainerState]]:
        """Of all containers, those first that must be done before the others begin."""
        return [
            (one.name, one.state) for one in (*self.status.init_container_statuses, *self.status.container_statuses)
        ]

    def started(self, container: str) -> bool:
        state = self.state(container)
        if state.terminated is not None:
            return epoch_s(state.terminated.started_at) is not None and state.terminated.reason not in CANNOT_START
        return state.running is not None

    def probed(self, container: str) -> bool:
        return any(one.name == container and one.readiness_probe is not None for one in self.spec.containers)

    def ready(self, container: str) -> bool:
        """Whether its readiness probe has passed. Of one that has ended, whether it ever had: a pod that was ready is
        not any more since some time after the container's start; one that never was, since before it."""
        if not self.probed(container):
            return False
        ended = self.state(container).terminated
        if ended is None:
            return any(one.name == container and one.ready for one in self.status.container_statuses)
        not_ready = self.condition("Ready", "False")
        since_s = epoch_s(not_ready.last_transition_time) if not_ready is not None else None
        started_s = epoch_s(ended.started_at)
        return since_s is not None and started_s is not None and since_s > started_s


class RootSpec(Part, frozen=True, gc=False):
    suspend: bool | None = None
    run_policy: "RunPolicy | None" = None  # of a PyTorchJob


class RunPolicy(Part, frozen=True, gc=False):
    suspend: bool | None = None


class RootStatus(Part, frozen=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class RootSeen(Object, frozen=True, gc=False):
    """A Job, JobSet or PyTorchJob."""

    spec: RootSpec = RootSpec()
    status: RootStatus = RootStatus()

    @property
    def suspended(self) -> bool:
        policy = self.spec.run_policy
        return bool(self.spec.suspend or (policy is not None and policy.suspend))

    @property
    def failed(self) -> Condition | None:
        """Also while its pods are still being ended for it."""
        conditions = self.status.conditions
        return _condition(conditions, "Failed", "True") or _condition(conditions, "FailureTarget", "True")

    @property
    def completed(self) -> Condition | None:
        conditions = self.status.conditions
        found = (_condition(conditions, type_, "True") for type_ in ("Complete", "Completed", "Succeeded"))
        return next((one for one in found if one is not None), None)


class Regarding(Part, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""


class WarningSeen(Object, frozen=True, gc=False):
    """An event of type Warning."""

    involved_object: Regarding = Regarding()
    reason: str = ""
    message: str = ""


class Known(msgspec.Struct, frozen=True):
    """What whoever submitted or found a job knows of it. `name` is its root's, and the value of its label."""

    name: str
    run: str
    uid: str
    hosts: int
    created: StageTime
    trial: str = TRIAL
    queue: bool = False  # Kueue decides when it starts


class PodNow(msgspec.Struct, frozen=True):
    """A pod of a job as it was last seen."""

    name: str
    number: int
    node: str
    running: bool  # any of its containers does
    trial_running: bool
    trial_ended: bool
    keeper_running: bool
    ended: bool  # nothing of it runs any more, and nothing will
    uid: str
    real: bool = False  # a node made its containers and still has their logs
    exit_code: int | None = None  # of the trial
    step_ends: tuple[tuple[str, int | None], ...] = ()  # as far as the trial said it: outcome and code of each


def _condition(conditions: tuple[Condition, ...], type_: str, status: str) -> Condition | None:
    return next((one for one in conditions if one.type == type_ and one.status == status), None)


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def shown(text: str, most: int = 1000) -> str:
    """What a cluster or a job said, fit to be shown: printable, lines kept, not longer than `most`."""
    lines = ("".join(one if one.isprintable() else " " for one in line) for line in text[: 4 * most].splitlines())
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def one_line(text: str, most: int = 300) -> str:
    return shown(" ".join(text[: 4 * most].split()), most)
