"""The neutral description of something to run. Every kind of trial produces it, every target accepts it."""

import math
from collections.abc import Mapping

import msgspec

from seatrial.job.reading import JsonObject


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    count: int = 0
    model: str | None = None
    memory_bytes: int | None = None


class Tpu(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    topology: str  # of each slice: 2x2, 4x4x8
    slices: int = 1
    chips: int = 0  # of each host; 0: 4, or all chips of a smaller slice

    @property
    def slice_chips(self) -> int:
        return math.prod(map(int, self.topology.split("x")))

    @property
    def host_chips(self) -> int:
        return self.chips or min(4, self.slice_chips)

    @property
    def slice_hosts(self) -> int:
        return self.slice_chips // self.host_chips

    @property
    def hosts(self) -> int:
        return self.slices * self.slice_hosts


class Accelerator(msgspec.Struct, frozen=True, omit_defaults=True):
    resource: str  # as the target calls it
    count: int = 1


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources of the cell's machine, which the job may use."""

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu: Gpu = Gpu()
    select: dict[str, str] = {}
    tpu: Tpu | None = None
    accelerator: Accelerator | None = None

    @property
    def slices(self) -> int:
        return self.tpu.slices if self.tpu else 1

    @property
    def scarce(self) -> bool:
        """Whether the job should free its machine soon after its end."""
        return bool(self.gpu.count or self.tpu or self.accelerator)


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Time limits: in the queue, running, and without output. None means no limit."""

    queue_s: float | None = None
    run_s: float | None = None
    stall_s: float | None = None
    grace_s: float = 10.0  # from SIGTERM to SIGKILL


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The environment of the job's commands: at most one of `python`, `interpreter` and `image`."""

    name: str = "host"
    python: str | None = None  # a version; the target builds an environment with `packages`
    packages: tuple[str, ...] = ()
    interpreter: str | None = None  # the path of an existing Python
    image: str | None = None
    seatrial: bool = False  # the Python that runs Seatrial, for its own drivers


class Input(msgspec.Struct, frozen=True):
    """A local file or folder that is copied to `path` (relative) in the job's work folder.

    The job is refused if a `required` one is missing; without an optional one it runs."""

    source: str
    path: str
    required: bool = True


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the agent; `kind` is one of those in `agent/steps/kinds.py`, `args` are specific to it."""

    name: str
    kind: str
    args: JsonObject = {}
    timeout_s: float | None = None


class Port(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port that the job listens on. The job gets its number in the variable `SEATRIAL_PORT_<NAME>`, that of its
    first port also in `SEATRIAL_PORT`. If each job has its own network, the number is `number`; if jobs share a
    network, the target picks a free one."""

    name: str  # at most 15 lower case letters, digits and dashes, as in Kubernetes
    number: int = 8000


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a job is ready: its port accepts a connection, or answers a GET of `path` with a status below 400."""

    port: str  # the name of one of the job's ports
    path: str = ""  # empty: an accepted connection is enough
    within_s: float | None = None  # from its start; the engine stops a job that is not ready by then


ARTIFACTS = "artifacts"  # a root of a step that searches files: the job's own artifacts folder
ARTIFACTS_VARIABLE = "SEATRIAL_ARTIFACTS"  # the job's variable with that folder


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a cell, the same for every attempt."""

    title: str
    steps: tuple[Step, ...]
    environment: Environment = Environment()
    resources: Resources = Resources()
    limits: Limits = Limits()
    env: dict[str, str] = {}
    # Variable of the job -> name of a secret, or SECRET_FILE and the path of a file with one. submit() gets the values
    # separately.
    secrets: dict[str, str] = {}
    inputs: tuple[Input, ...] = ()
    part: str = "job"
    ports: tuple[Port, ...] = ()
    ready: Ready | None = None  # None: ready as soon as it has started
    hosts: int = 1  # separate hosts if the target has several; on one machine the agent starts the processes
    artifacts: str = ""  # folder or fsspec address to which the job writes files

    def for_attempt(
        self, run: str, cell: str, attempt: int, avoid: tuple[str, ...] = (), labels: Mapping[str, str] | None = None
    ) -> "Job":
        """The job of one attempt. If `artifacts` outlives the job, each job gets its own folder there, so that it does
        not find files of another job. A driver gets the attempt that it belongs to."""
        name = f"{run}-{cell}-{attempt}" + ("" if self.part == "job" else f"-{self.part}")
        artifacts = self.artifacts
        if "://" in artifacts or artifacts.startswith("/"):
            artifacts = f"{artifacts.rstrip('/')}/{name}"

        def of_attempt(step: Step) -> Step:
            args = step.args
            if step.kind == "drive":
                args = {**args, "job": {"run": run, "cell": cell, "attempt": attempt}}
            elif ARTIFACTS in args.get("roots", ()):
                args = {**args, "roots": [artifacts if root == ARTIFACTS else root for root in args["roots"]]}
            return msgspec.structs.replace(step, args=args)

        fields = {one: getattr(self, one) for one in JobSpec.__struct_fields__ if one != "artifacts"}
        fields["steps"] = tuple(map(of_attempt, self.steps))
        fields["env"] = {**self.env, ARTIFACTS_VARIABLE: artifacts} if artifacts else self.env
        labels = dict(labels or {})
        return Job(**fields, name=name, run=run, cell=cell, attempt=attempt, avoid=avoid, labels=labels)


class Job(JobSpec, frozen=True, kw_only=True, omit_defaults=True):
    """One part of one attempt at one cell. `name` is unique for (run, cell, attempt, part) and known before the
    submission: submitting the same name twice finds the existing job and never runs it twice."""

    name: str
    run: str
    cell: str
    attempt: int
    avoid: tuple[str, ...] = ()  # hosts to avoid if there are others
    labels: dict[str, str] = {}


PEER = "SEATRIAL_PEER"  # variable of a job with its Peer, as JSON
SECRET_FILE = "file:"  # prefix of the path of a file with a secret


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a process can reach the job of another part of the same attempt."""

    part: str
    target: str
    kind: str  # of the target
    options: JsonObject  # of the target
    handle: str
    addresses: dict[str, str] = {}  # of its ports, if this job can reach them directly


class PartSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job of each attempt, and its relation to the others. An attempt is over when its leading parts have ended;
    the engine then stops the rest."""

    name: str  # "job", "server", "driver"
    job: JobSpec
    target: str  # the name of one of the suite's targets
    after: str = ""  # the part that must be ready before this one is submitted; when it ends, this one is stopped
    leads: bool = True
    uses: str = ""  # a target that the job itself uses; the job gets access to it as its Peer

    def for_attempt(
        self, run: str, cell: str, attempt: int, avoid: tuple[str, ...] = (), labels: Mapping[str, str] | None = None
    ) -> "Part":
        job = self.job.for_attempt(run, cell, attempt, avoid, labels)
        return Part(self.name, job, self.target, self.after, self.leads, self.uses)


class Part(PartSpec, frozen=True, omit_defaults=True):
    """A part of one attempt."""

    job: Job
