"""The neutral description of something to run. Every kind of trial makes it, every target takes it."""

from collections.abc import Mapping

import msgspec

from seatrial.job.reading import JsonObject


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    count: int = 0
    model: str | None = None
    memory_bytes: int | None = None


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the machine of the cell offers, and so what the job may use."""

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu: Gpu = Gpu()
    select: dict[str, str] = {}


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Three separate clocks: waiting for a place, running, and saying nothing. None is no limit."""

    queue_s: float | None = None
    run_s: float | None = None
    stall_s: float | None = None
    grace_s: float = 10.0  # from a polite end to a forced one


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the job's commands find around them: at most one of `python`, `interpreter` and `image`."""

    name: str = "host"
    python: str | None = None  # a version; the target builds an environment with `packages`
    packages: tuple[str, ...] = ()
    interpreter: str | None = None  # the path of an existing Python
    image: str | None = None
    seatrial: bool = False  # the Python that Seatrial itself runs on: for its own drivers


class Input(msgspec.Struct, frozen=True):
    """A file or folder of this machine that the job finds at `path` (relative) in its work folder.

    Without one that is `required` the job is refused; without another it runs, and whatever needs it will tell."""

    source: str
    path: str
    required: bool = True


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the agent does; `kind` is one of the agent's (see `agent/steps/kinds.py`), `args` are its own."""

    name: str
    kind: str
    args: JsonObject = {}
    timeout_s: float | None = None


class Port(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port that the job listens on. The job reads its number from the variable `SEATRIAL_PORT_<NAME>`, that of its
    first port also from `SEATRIAL_PORT`. Where each job has a network of its own the number is `number`; where jobs
    share one, the target picks a free one."""

    name: str  # lower case letters, digits and dashes, as Kubernetes names ports: at most 15 of them
    number: int = 8000


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a job can be asked: its port accepts a connection, or answers a GET of `path` with a status below 400."""

    port: str  # the name of one of the job's ports
    path: str = ""  # empty: an accepted connection is enough
    within_s: float | None = None  # from its start; the engine ends a job that is not ready by then


ARTIFACTS = "artifacts"  # a root of a step that looks for files: the job's own folder of its place for artifacts
ARTIFACTS_VARIABLE = "SEATRIAL_ARTIFACTS"  # tells the job where that is


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a cell, the same for every attempt at it."""

    title: str
    steps: tuple[Step, ...]
    environment: Environment = Environment()
    resources: Resources = Resources()
    limits: Limits = Limits()
    env: dict[str, str] = {}
    # Variable of the job -> name of a secret, or SECRET_FILE and the path of a file that is one. Values are handed to
    # submit() apart.
    secrets: dict[str, str] = {}
    inputs: tuple[Input, ...] = ()
    part: str = "job"
    ports: tuple[Port, ...] = ()
    ready: Ready | None = None  # None: ready as soon as it has started
    hosts: int = 1  # a target with several gives each its own; on one machine the agent starts the processes itself
    artifacts: str = ""  # folder or fsspec address where the job leaves files

    def for_attempt(
        self, run: str, cell: str, attempt: int, avoid: tuple[str, ...] = (), labels: Mapping[str, str] | None = None
    ) -> "Job":
        """The job of one attempt. A place for artifacts that outlives the job has a folder for each, so that no job
        finds what another one left; a driver learns which attempt it is of."""
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
    """One part of one attempt at one cell. `name` is unique for (run, cell, attempt, part) and known before anything is
    submitted: submitting the same name twice is finding what is there, never running it twice."""

    name: str
    run: str
    cell: str
    attempt: int
    avoid: tuple[str, ...] = ()  # hosts where it should rather not run, where there is an elsewhere
    labels: dict[str, str] = {}


PEER = "SEATRIAL_PEER"  # variable of a job: the Peer that it comes after, as JSON
SECRET_FILE = "file:"  # before the path of a file that is a secret by itself


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job of another part of the same attempt, as a process that knows nothing else can reach it."""

    part: str
    target: str
    kind: str  # of the target
    options: JsonObject  # of the target
    handle: str
    addresses: dict[str, str] = {}  # of its ports, where they lead there straight from the place of this job


class PartSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job of each attempt, and how it goes with the others. An attempt is over when its leading parts have ended;
    the engine then ends the rest."""

    name: str  # "job", "server", "driver"
    job: JobSpec
    target: str  # the name of one of the suite's targets
    after: str = ""  # the part that must be ready before this one is submitted, and whose end ends this one
    leads: bool = True
    uses: str = ""  # a target that the job itself works with: it gets the way there as its Peer, without a job

    def for_attempt(
        self, run: str, cell: str, attempt: int, avoid: tuple[str, ...] = (), labels: Mapping[str, str] | None = None
    ) -> "Part":
        job = self.job.for_attempt(run, cell, attempt, avoid, labels)
        return Part(self.name, job, self.target, self.after, self.leads, self.uses)


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one attempt."""

    name: str
    job: Job
    target: str
    after: str = ""
    leads: bool = True
    uses: str = ""
