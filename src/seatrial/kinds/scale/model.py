"""What users write of a scale trial: workloads, how many of them come when, and what is asked of their stages."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from seatrial.job.metric import FixedBound
from seatrial.kinds import bounds
from seatrial.kinds.arrivals import Arrivals, ArrivalsModel, Rate
from seatrial.kinds.job import DriverPlace
from seatrial.kinds.scale.followed import STAGES, Followed, ReachedWhen, segments
from seatrial.suite import Duration, Gathered, Model, Runtime, Text, TrialModel

# What users write of one workload.


class Workload(Model):
    """One workload: built in, or any object of any kind from a file."""

    kind: Literal["pod", "job", "jobset", "pytorchjob", "kueue"] | None = Field(
        None, description="One that is built in; kueue: a Workload of Kueue alone, which is admitted and gets no pods."
    )
    template: Text | None = Field(None, description="File with its manifest, relative to the suite.")
    values: dict[Text, Any] = Field({}, description="Texts of the template, and what each is replaced with.")
    claim: Text | None = Field(None, description="File with a volume claim, which goes to the end of the spec.")
    queue: Text | None = Field(None, description="LocalQueue of Kueue that admits it.")
    pods: int = Field(1, strict=True, ge=1, le=10_000, description="Pods that each workload has.")
    gpus: float = Field(
        0, strict=True, ge=0, le=64, description="GPUs of each pod of one that is built in; or a fraction of one."
    )
    cpu: Text = Field("100m", description="CPU of each pod of one that is built in.")
    memory: Text = Field("64Mi", description="Memory of each pod of one that is built in.")
    image: Text = Field("busybox", description="Image of one that is built in.")
    command: tuple[Text, ...] = Field(("true",), description="What one that is built in runs.")
    node_selector: dict[Text, Text] = Field({}, alias="select", description="Labels of the nodes that it may run on.")
    tolerate: tuple[Text, ...] = Field((), description="Keys of taints that it does not mind.")
    priority: Text | None = Field(None, description="PriorityClass of the pods of one that is built in.")
    scheduler: Text | None = Field(None, description="Scheduler of the pods of one that is built in.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.kind is None) == (self.template is None):
            raise ValueError("a workload is exactly one of `kind`, which is built in, and `template`, a file")
        if self.template is None and (self.values or self.claim):
            raise ValueError("`values` and `claim` are for a `template`: a workload that is built in has none")
        if self.kind == "pod" and (self.pods > 1 or self.queue):
            raise ValueError("a pod is one pod, and waits in no queue: take `kind: job`, jobset or pytorchjob")
        if self.bare and (self.queue is None or self.priority):
            raise ValueError("a Workload of Kueue alone needs a `queue`, and no PriorityClass of pods is asked for it")
        if self.gpus > 1 and self.gpus % 1:
            raise ValueError(f"{self.gpus:g} GPUs are neither whole ones nor a fraction of one")
        return self

    @property
    def bare(self) -> bool:
        """It has no pods, whatever it asks for."""
        return self.kind == "kueue"


class MixedWorkload(Workload):
    """One class of a mix."""

    weight: float = Field(1.0, strict=True, gt=0, description="How often it comes, beside the others.")


# What users write of what comes before, after and around the measured workloads.


NOWHERE = {"seatrial/nowhere": "true"}  # labels that no node has

_Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class ScaleArrivals(ArrivalsModel):
    """When workloads are sent: an open loop, or by choice a closed one (`in_flight`, `waves`)."""

    in_flight: _Count | None = Field(
        None, description="A closed loop: so many that are not done; the next is sent when one is."
    )
    waves: _Count | None = Field(None, description="A closed loop: so many together, the next after all are answered.")
    delay_s: Duration | None = Field(None, alias="delay", description="Between two waves; default none.")

    SHAPES: ClassVar[tuple[str, ...]] = (*ArrivalsModel.SHAPES, "in_flight", "waves")

    @model_validator(mode="after")
    def _delay(self) -> Self:
        if self.delay_s is not None and self.waves is None:
            raise ValueError("`delay` is of `waves`")
        return self

    def work(self, times: tuple[float, ...]) -> Arrivals:
        if self.in_flight is not None:
            return Arrivals("in_flight", burst=self.in_flight)
        if self.waves is not None:
            return Arrivals("waves", burst=self.waves, every_s=self.delay_s or 0.0)
        return super().work(times)


class Fill(Model):
    """Workloads that are there before the measured ones come."""

    count: _Count = Field(description="How many.")
    workload: Workload | None = Field(None, description="What they are; default: the same mix.")
    within_s: Duration = Field(300.0, alias="within", description="How long they may take to the stage `until`.")


class Background(Model):
    """Workloads that never find a place, and that the scheduler has to look at again and again."""

    count: _Count = Field(description="How many.")
    workload: Workload = Field(
        default_factory=lambda: Workload(kind="pod", select=NOWHERE),
        description="What they are; default: pods for nodes with a label that none has.",
    )


class LocalMachine(Model):
    """Of a target of kind local, where workloads are processes."""

    places: _Count | None = Field(None, description="How many processes run at once; default: as many as CPUs.")


class ChurnModel(Model):
    """After the measured ones have come: the oldest is deleted and a new one made."""

    rate: Rate = Field(description="How often.")
    seconds: Duration = Field(alias="for", description="For how long.")


# What users write of kinds that are followed beside those that Seatrial knows.


class StageRule(Model):
    """When a stage is reached, by what an object of this kind shows."""

    stage: Text = Field(description="One of the stages of a workload.")
    path: Text | None = Field(
        None,
        description="Where in the object; without it, as soon as the object is there.",
        examples=["status.phase", "status.conditions[Admitted].status"],
    )
    values: tuple[Text, ...] = Field((), description="What is there then; without them, anything.")
    stamp: Text | None = Field(None, description="Where its writer says when that was.")
    by: tuple[Text, ...] = Field((), description="Where it says who caused it; the first that does.")
    failed: bool = Field(False, description="Whether the workload has failed then.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.stage not in STAGES:
            raise ValueError(f"{self.stage!r} is no stage; there are {', '.join(STAGES)}")
        for path in filter(None, (self.path, self.stamp, *self.by)):
            segments(path)  # raises ValueError
        return self


class FollowedKind(Model):
    """One kind of objects. They belong to a workload by their owners, or by a label that has its name."""

    api_version: Text = Field(alias="apiVersion", description="As in its manifests.", examples=["run.ai/v1"])
    kind: Text = Field(description="As in its manifests.", examples=["RunaiJob"])
    labels: tuple[Text, ...] = Field((), description="Labels whose value is the workload's name.")
    stages: tuple[StageRule, ...] = Field(min_length=1, description="What of it shows which stage.")

    def work(self) -> Followed:
        rules = tuple(
            ReachedWhen(one.stage, one.path or "", one.values, one.stamp or "", one.failed, one.by)
            for one in self.stages
        )
        return Followed(self.api_version, self.kind, rules, self.labels, own=rules)


NONE = {"failed": 0, "unfinished": 0}  # unless bounds say otherwise
_COUNTS = {"failed": "<=", "unfinished": "<=", "refused": "<=", "rate": ">="}
FILL, BACKGROUND, ONE = "fill", "background", "workload"  # names of classes that users do not name
# What Kubernetes promises: changes of one object, and the start of pods that fit somewhere without pulling an image.
SLOS = {"kubernetes": {"created.p99": "1s", "started.p99": "5s"}}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PART = re.compile(r"p(50|90|95|99)")


def parse_scale_bound(name: str, value: Any, classes: Collection[str] = ()) -> FixedBound:
    """Of `scheduled.p99: 30s`, `gangs.scheduled.p99: 60s`, `failed: 0`, `rate: ">=45"`."""
    durations = [*STAGES, *(f"{one}.{stage}" for one in classes for stage in STAGES)]
    choice = "{0}.p50, {0}.p90, {0}.p95 or {0}.p99"
    return bounds.parse_bound(name, value, bounds.KnownMetrics("a scale trial", durations, _COUNTS, _PART, choice))


class ScaleGathered(Gathered, frozen=True, omit_defaults=True):
    manifests: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)  # by the name of the workload
    times: tuple[float, ...] = ()  # of a trace


class ScaleTrial(TrialModel):
    GATHERED = ScaleGathered
    kind: Literal["scale"] = "scale"
    workload: Workload | None = Field(None, description="What is made, again and again.")
    workloads: dict[Text, MixedWorkload] = Field(
        {},
        description="Or several classes of workloads by name, each as often as its weight says.",
        examples=[{"single": {"kind": "job", "gpus": 1, "weight": 8}, "gang": {"kind": "job", "pods": 8, "gpus": 1}}],
    )
    namespaces: tuple[Text, ...] = Field((), description="Where they are made, in turn; default: the target's own.")
    count: int = Field(strict=True, ge=1, le=1_000_000, description="How many.")
    arrivals: ScaleArrivals = Field(description="When they are made, whatever became of those before.")
    background: Background | None = Field(None, description="Workloads that find no place, made before all others.")
    fill: Fill | None = Field(None, description="Workloads that are there before the measured ones, in no metric.")
    churn: ChurnModel | None = Field(None, description="Replaces the oldest by new ones, once the others have come.")
    local: LocalMachine = Field(LocalMachine(), description="On a target of kind local, where workloads are processes.")
    find: Literal["limit"] | None = Field(
        None, description="limit: search the highest rate that keeps the bounds, from that of `arrivals`."
    )
    most: Rate = Field(10_000.0, description="The highest rate that a search tries.")
    slo: Literal["kubernetes"] | None = Field(
        None, description="kubernetes: its own objectives as bounds, created.p99 1 s and started.p99 5 s."
    )
    until: Literal["created", "quota_reserved", "admitted", "scheduled", "started", "ready", "finished"] = Field(
        "started", description="The stage at which a workload is done."
    )
    settle_s: Duration = Field(300.0, alias="settle", description="How long the last ones may take to that stage.")
    bounds: dict[Text, Any] = Field(
        {}, description="What metrics must be.", examples=[{"scheduled.p99": "30s", "failed": 0}]
    )
    follow: tuple[FollowedKind, ...] = Field((), description="Kinds between workloads and pods, beside the known ones.")
    driver: DriverPlace | None = Field(
        None, description="Where the driver runs, if not on this machine: as a job on the cluster that it loads."
    )
    audit_log: Text | None = Field(None, description="The API server's audit log on this machine, for exact times.")
    seed: int = Field(0, strict=True, ge=0, description="Of arrivals by chance, and of the order of a mix.")

    JUDGING: ClassVar[frozenset[str]] = frozenset({"bounds"})

    @field_validator("workloads")
    @classmethod
    def _names(cls, workloads: dict[str, MixedWorkload]) -> dict[str, MixedWorkload]:
        for name in workloads:
            if not _NAME.fullmatch(name) or name in (FILL, BACKGROUND, *STAGES, *_COUNTS):
                raise ValueError(f"{name!r} cannot name a class of workloads: small letters, digits and -, no stage")
        return workloads

    @field_validator("namespaces")
    @classmethod
    def _once(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        for one in namespaces:
            if "${" not in one and not _NAMESPACE.fullmatch(one):
                raise ValueError(f"{one!r} is no name of a namespace: small letters, digits and -, at most 63")
            if namespaces.count(one) > 1:
                raise ValueError(f"namespace {one!r} is named twice")
        return namespaces

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.target is None:
            raise ValueError("a scale trial makes its workloads on a cluster, or here: name it, `target: NAME`")
        if self.driver is not None and self.audit_log:
            raise ValueError("`audit_log` is a file of this machine, and the `driver` is on the cluster")
        if (self.workload is None) == (not self.workloads):
            raise ValueError("a scale trial has exactly one of `workload` and `workloads`, several by name")
        measured = self.measured.values()
        if self.until in ("scheduled", "started", "ready") and any(one.bare for one in measured):
            raise ValueError(f"a Workload of Kueue alone has no pods, and is never {self.until}: `until: admitted`")
        if self.until in ("quota_reserved", "admitted") and any(one.kind and not one.queue for one in measured):
            raise ValueError(f"what waits in no `queue` of Kueue is never {self.until}")
        if self.churn is not None and self.until == "finished":
            raise ValueError("churn deletes what is there, and `until: finished` waits until nothing is")
        if self.find and self.arrivals.rate is None and self.arrivals.poisson is None:
            raise ValueError("a search for the limit changes a `rate` or a `poisson` rate")
        if self.find and self.churn is not None:
            raise ValueError(
                "a search for the limit removes all workloads of a rate before the next: there is no churn"
            )
        if self.find and not self.bounds and self.slo is None:
            raise ValueError("a search for the limit needs `bounds` that break, or an `slo`")
        self.scale_bounds()  # raises ValueError
        return self

    def scale_bounds(self) -> tuple[FixedBound, ...]:
        given = {**NONE, **SLOS.get(self.slo or "", {}), **self.bounds}
        return tuple(parse_scale_bound(name, value, self.workloads) for name, value in given.items())

    @property
    def measured(self) -> Mapping[str, Workload]:
        return {ONE: self.workload} if self.workload else self.workloads

    def every_workload(self) -> dict[tuple[str, ...], Workload]:
        """By its place in the suite."""
        found: dict[tuple[str, ...], Workload] = {("workloads", name): one for name, one in self.workloads.items()}
        for field, one in ((ONE, self.workload), (FILL, self.fill), (BACKGROUND, self.background)):
            if isinstance(one, Workload):
                found[field,] = one
            elif one is not None and one.workload is not None:
                found[field, ONE] = one.workload
        return found

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        named = [
            ((*place, field), getattr(one, field))
            for place, one in self.every_workload().items()
            for field in ("template", "claim")
        ]
        return tuple((place, file) for place, file in named if file)

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        return ("driver",)
