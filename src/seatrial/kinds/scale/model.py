"""The suite model of scale trials: workloads, their number and arrivals, and the bounds on their stages."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, Tag, field_validator, model_validator

from seatrial.job.metric import FixedBound
from seatrial.kinds import bounds
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.arrivals_model import ArrivalsModel, Rate
from seatrial.kinds.job import DriverPlace, as_work
from seatrial.kinds.scale.followed import CREATED, DELTAS, STAGES, Followed, ReachedWhen, segments
from seatrial.kinds.scale.work import QUERY_PARTS
from seatrial.kinds.search import LEAST
from seatrial.suite import Duration, Gathered, Model, Runtime, Text, TrialModel
from seatrial.suite.command import Share
from seatrial.suite.models import PLAIN_OR_MAP


class DeviceClaim(Model):
    """Devices of each pod by dynamic resource allocation: a ResourceClaimTemplate per workload, Kubernetes 1.34+."""

    device_class: Text = Field(description="DeviceClass of the devices.")
    count: int = Field(1, strict=True, ge=1, le=64, description="Devices per pod.")


class ObjectWait(Model):
    """A condition of one object before the next object of the workload is created."""

    kind: Text = Field(description="Kind of the object, as in the template.")
    condition: Text = Field(description="Its phase, or the type of a condition that must be true.", examples=["Bound"])


_Claim = Annotated[Annotated[Text | None, Tag("plain")] | Annotated[DeviceClaim, Tag("map")], PLAIN_OR_MAP]
_Wait = Annotated[Annotated[tuple[ObjectWait, ...], Tag("plain")] | Annotated[ObjectWait, Tag("map")], PLAIN_OR_MAP]


class Workload(Model):
    """A workload: built in, or any objects from a file."""

    kind: Literal["pod", "job", "jobset", "pytorchjob", "kueue"] | None = Field(
        None, description="Built-in workload. `kueue` is a Kueue Workload alone: it is admitted but has no pods."
    )
    template: Text | None = Field(
        None, description="File with the manifests, relative to the suite; several objects are created in their order."
    )
    values: dict[Text, Any] = Field({}, description="Texts in the template and their replacements.")
    claim: _Claim = Field(
        None, description="Built-in workloads: devices of each pod. Templates: file with a volume claim for the spec."
    )
    wait: _Wait = Field((), description="Conditions of objects in the template before the next one is created.")
    gang: Literal["kai", "volcano", "coscheduling"] | None = Field(
        None, description="Scheduler that starts all pods together: adds its PodGroup (built-in workloads only)."
    )
    queue: Text | None = Field(
        None, description="Kueue LocalQueue that admits it; with `gang: kai` or `volcano`, the queue of that scheduler."
    )
    pods: int = Field(1, strict=True, ge=1, le=10_000, description="Pods per workload.")
    gpus: float = Field(
        0, strict=True, ge=0, le=64, description="GPUs per pod, or a fraction of one (built-in workloads only)."
    )
    cpu: Text = Field("100m", description="CPU per pod (built-in workloads only).")
    memory: Text = Field("64Mi", description="Memory per pod (built-in workloads only).")
    image: Text = Field("busybox", description="Image (built-in workloads only).")
    command: tuple[Text, ...] = Field(("true",), description="Command (built-in workloads only).")
    node_selector: dict[Text, Text] = Field({}, alias="select", description="Required node labels.")
    tolerate: tuple[Text, ...] = Field((), description="Keys of taints that pods tolerate.")
    priority: Text | None = Field(None, description="PriorityClass of the pods (built-in workloads only).")
    scheduler: Text | None = Field(None, description="Scheduler of the pods (built-in workloads only).")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.kind is None) == (self.template is None):
            raise ValueError("set exactly one of `kind` (built in) and `template` (a file)")
        if self.template is None and (self.values or self.wait or isinstance(self.claim, str)):
            raise ValueError("`values`, `wait` and a file as `claim` apply only to `template`")
        if self.template and (self.gang or isinstance(self.claim, DeviceClaim)):
            raise ValueError("`gang` and devices as `claim` apply only to `kind`; put these objects into the template")
        if self.kind == "pod" and not self.gang and (self.pods > 1 or self.queue):
            raise ValueError("`kind: pod` has one pod and no `queue`; use `kind: job`, jobset or pytorchjob, or `gang`")
        if self.bare and (self.gang or self.claim):
            raise ValueError("`kind: kueue` has no pods, and so no `gang` and no `claim`")
        if self.gang == "kai" and not self.queue:
            raise ValueError("`gang: kai` needs `queue`: KAI schedules nothing without one")
        if self.bare and (self.queue is None or self.priority):
            raise ValueError("`kind: kueue` needs `queue` and cannot be combined with `priority`")
        if self.gpus > 1 and self.gpus % 1:
            raise ValueError(f"invalid `gpus` {self.gpus:g}; use a whole number or a fraction below 1")
        return self

    @property
    def waits(self) -> tuple[ObjectWait, ...]:
        return (self.wait,) if isinstance(self.wait, ObjectWait) else self.wait

    @property
    def bare(self) -> bool:
        """Whether it has no pods, whatever `pods` says."""
        return self.kind == "kueue"


class MixedWorkload(Workload):
    """One class of a mix."""

    weight: float = Field(1.0, strict=True, gt=0, description="Relative frequency among the classes.")


NOWHERE = {"seatrial/nowhere": "true"}  # labels that no node has

_Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class ScaleArrivals(ArrivalsModel):
    """When workloads are sent: an open loop, or a closed one (`in_flight`, `waves`)."""

    waves: _Count | None = Field(None, description="Closed loop: send this many, and the next when all are answered.")
    delay_s: Duration | None = Field(None, alias="delay", description="Pause between waves; default none.")

    SHAPES: ClassVar[tuple[str, ...]] = (*ArrivalsModel.SHAPES, "waves")

    @model_validator(mode="after")
    def _delay(self) -> Self:
        if self.delay_s is not None and self.waves is None:
            raise ValueError("`delay` applies only to `waves`")
        return self

    def work(self, times: tuple[float, ...]) -> Arrivals:
        made = super().work(times)
        return made if self.delay_s is None else msgspec.structs.replace(made, every_s=self.delay_s)


class Fill(Model):
    """Workloads created before the measured ones."""

    count: _Count = Field(description="Number of workloads.")
    workload: Workload | None = Field(None, description="Workload to create; default: the measured mix.")
    within_s: Duration = Field(300.0, alias="within", description="Time limit for reaching the stage `until`.")


class Background(Model):
    """Workloads that can never be scheduled, so that the scheduler keeps retrying them."""

    count: _Count = Field(description="Number of workloads.")
    workload: Workload = Field(
        default_factory=lambda: Workload(kind="pod", select=NOWHERE),
        description="Workload to create; default: pods that need a label no node has.",
    )


class LocalMachine(Model):
    """Options for a local target, where workloads are processes."""

    places: _Count | None = Field(None, description="Slots for processes; default: the number of CPUs.")


class ChurnModel(Model):
    """After the measured workloads have arrived: deletes some, oldest first, and creates new ones in their place."""

    rate: Rate | None = Field(None, description="Replace one after the other at this rate.")
    share: Share = Field(None, description="Replace this share of all, every interval.", examples=["10%"])
    namespaces: int | None = Field(
        None, strict=True, ge=1, description="Replace all workloads of this many namespaces in turn, every interval."
    )
    age_s: Duration | None = Field(None, alias="age", description="Replace each workload at this age.")
    every_s: Duration | None = Field(None, alias="every", description="Interval of `share` and `namespaces`.")
    seconds: Duration = Field(alias="for", description="Duration.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.rate, self.share, self.namespaces, self.age_s)) != 1:
            raise ValueError("set exactly one of `rate`, `share`, `namespaces` and `age`")
        if (self.share is None and self.namespaces is None) != (self.every_s is None):
            raise ValueError("`share` and `namespaces` need `every`, and nothing else does")
        return self


class StageRule(Model):
    """Which value of an object shows that its workload reached a stage."""

    stage: Text = Field(description="Stage of a workload.")
    path: Text | None = Field(
        None,
        description="Field of the object; without it, the stage is reached when the object exists.",
        examples=["status.phase", "status.conditions[Admitted].status"],
    )
    values: tuple[Text, ...] = Field((), description="Values that mean the stage is reached; default: any.")
    stamp: Text | None = Field(None, description="Field with the time recorded by the server.")
    by: tuple[Text, ...] = Field((), description="Fields with the cause; the first with a value counts.")
    failed: bool = Field(False, description="Whether the workload has then failed.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.stage not in STAGES:
            raise ValueError(f"unknown stage {self.stage!r}; known: {', '.join(STAGES)}")
        for path in filter(None, (self.path, self.stamp, *self.by)):
            segments(path)  # raises ValueError
        return self


class FollowedKind(Model):
    """A kind of object to follow. Objects belong to a workload by their owners, or by a label with its name."""

    api_version: Text = Field(alias="apiVersion", description="As in manifests.", examples=["run.ai/v1"])
    kind: Text = Field(description="As in manifests.", examples=["RunaiJob"])
    labels: tuple[Text, ...] = Field((), description="Labels that hold the workload's name.")
    stages: tuple[StageRule, ...] = Field(min_length=1, description="Which field shows which stage.")

    def work(self) -> Followed:
        rules = tuple(as_work(one, ReachedWhen) for one in self.stages)
        return Followed(self.api_version, self.kind, rules, self.labels, own=rules)


class FollowOthers(Model):
    """Workloads that others create, found by their labels. Nothing is created in their place, changed or deleted."""

    selector: Text = Field(description="Labels of the workloads, as in `kubectl -l`.", examples=["team=research"])
    seconds: Duration = Field(alias="for", description="Time in which workloads are created to be measured.")
    api_version: Text = Field("batch/v1", alias="apiVersion", description="Of the workloads.")
    kind: Text = Field("Job", description="Of the workloads; `Pod` with `apiVersion: v1` for pods alone.")
    kinds: tuple[FollowedKind, ...] = Field((), description="Additional kinds between workloads and pods.")


_Follow = Annotated[
    Annotated[tuple[FollowedKind, ...], Tag("plain")] | Annotated[FollowOthers, Tag("map")], PLAIN_OR_MAP
]


class MetricsModel(Model):
    """Metrics of the cluster from Prometheus, sampled during the measurement."""

    prometheus: Text = Field(description="Address of Prometheus.", examples=["http://127.0.0.1:9090"])
    queries: dict[Text, Text] = Field(
        min_length=1,
        description="PromQL by metric name; the result of each must be one number.",
        examples=[{"etcd_fsync_p99": "histogram_quantile(0.99, sum by (le) (rate(…_bucket[1m])))"}],
    )
    every_s: Duration = Field(5.0, alias="every", ge=0.1, description="Interval of the samples.")

    @model_validator(mode="after")
    def _valid(self) -> Self:
        url = urlsplit(self.prometheus)
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.password:
            raise ValueError("`prometheus` must be an address such as http://127.0.0.1:9090, without a login")
        for name in self.queries:
            if not _QUERY.fullmatch(name) or name in (*STAGES, *_COUNTS, "limit"):
                raise ValueError(f"invalid query name {name!r}; use a-z, 0-9 and _, and no name of a stage or metric")
        return self


NONE = {"failed": 0, "unfinished": 0}  # default bounds
_COUNTS = {"failed": "<=", "unfinished": "<=", "refused": "<=", "rate": ">="}
LEAST_COUNT = round(1.3 * LEAST)  # of a search: workloads of its shortest window, with the warm-up
FILL, BACKGROUND, ONE = "fill", "background", "workload"  # names of classes that users do not name
# Kubernetes' objectives: a change of one object, and the start of a schedulable pod whose image is present.
SLOS = {"kubernetes": {"created.p99": "1s", "started.p99": "5s"}}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUERY = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PART = re.compile(r"p(50|90|95|99)")


def parse_scale_bound(
    name: str, value: Any, classes: Collection[str] = (), queries: Collection[str] = ()
) -> FixedBound:
    """Parses `scheduled.p99: 30s`, `created..scheduled.p99: 5s`, `gangs.scheduled.p99: 60s`, `failed: 0`,
    `rate: ">=45"` and, for a query to Prometheus, `fsync_p99.max: 0.01`. Raises ValueError."""
    counts = {**_COUNTS, **{f"{query}.{part}": "<=" for query in queries for part in QUERY_PARTS}}
    metric, prefixes = name.rpartition(".")[0], ("", *(f"{one}." for one in classes))
    durations = [f"{prefix}{stage}" for prefix in prefixes for stage in STAGES]
    durations += [metric for prefix in prefixes if metric.removeprefix(prefix) in DELTAS][:1]
    choice = "{0}.p50, {0}.p90, {0}.p95 or {0}.p99"
    return bounds.parse_bound(name, value, bounds.KnownMetrics("a scale trial", durations, counts, _PART, choice))


class ScaleGathered(Gathered, frozen=True, omit_defaults=True):
    manifests: dict[str, tuple[dict[str, Any], ...]] = msgspec.field(default_factory=dict)  # by workload name
    times: tuple[float, ...] = ()  # of a trace


class ScaleTrial(TrialModel):
    GATHERED = ScaleGathered
    kind: Literal["scale"] = "scale"
    workload: Workload | None = Field(None, description="Workload to create.")
    workloads: dict[Text, MixedWorkload] = Field(
        {},
        description="Several classes of workloads by name, mixed by weight.",
        examples=[{"single": {"kind": "job", "gpus": 1, "weight": 8}, "gang": {"kind": "job", "pods": 8, "gpus": 1}}],
    )
    namespaces: tuple[Text, ...] = Field((), description="Namespaces to use in turn; default: the target's own.")
    count: int = Field(
        1, strict=True, ge=1, le=1_000_000, description="Number of workloads; required without `follow: {…}`."
    )
    arrivals: ScaleArrivals = Field(
        ScaleArrivals(burst=1), description="When workloads are created; required without `follow: {…}`."
    )
    background: Background | None = Field(None, description="Unschedulable workloads, created before all others.")
    fill: Fill | None = Field(None, description="Workloads created before the measured ones, excluded from metrics.")
    churn: ChurnModel | None = Field(None, description="Replace workloads once all have arrived.")
    local: LocalMachine = Field(LocalMachine(), description="Options for local targets: workloads are processes.")
    find: Literal["limit"] | None = Field(
        None, description="limit: search for the highest rate that keeps the bounds, starting at that of `arrivals`."
    )
    most: Rate = Field(10_000.0, description="Highest rate tried by a search.")
    slo: Literal["kubernetes"] | None = Field(
        None, description="kubernetes: use its service level objectives as bounds (created.p99 1 s, started.p99 5 s)."
    )
    until: Literal[
        "created", "quota_reserved", "admitted", "claim_bound", "claim_allocated", "scheduled", "started", "ready",
        "endpoint_ready", "finished",
    ] = Field("started", description="Stage at which a workload is done.")  # fmt: skip
    settle_s: Duration = Field(300.0, alias="settle", description="Time limit for the last workloads to be done.")
    bounds: dict[Text, Any] = Field(
        {}, description="Bounds on metrics.", examples=[{"scheduled.p99": "30s", "failed": 0}]
    )
    follow: _Follow = Field(
        (),
        description="A list: additional kinds between workloads and pods. A map: measure workloads that others create.",
    )
    metrics: MetricsModel | None = Field(None, description="Metrics of the cluster from Prometheus.")
    driver: DriverPlace | None = Field(
        None, description="Run the load generator as a job on the cluster under test; default: on this machine."
    )
    audit_log: Text | None = Field(None, description="API server audit log on this machine, for exact times.")
    seed: int = Field(0, strict=True, ge=0, description="Seed for random arrivals and the order of a mix.")

    JUDGING: ClassVar[frozenset[str]] = frozenset({"bounds"})

    @field_validator("workloads")
    @classmethod
    def _names(cls, workloads: dict[str, MixedWorkload]) -> dict[str, MixedWorkload]:
        for name in workloads:
            if not _NAME.fullmatch(name) or name in (FILL, BACKGROUND, *STAGES, *_COUNTS):
                raise ValueError(
                    f"invalid class name {name!r}; use up to 32 of a-z, 0-9 and -, and no name of a stage or metric"
                )
        return workloads

    @field_validator("namespaces")
    @classmethod
    def _once(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        for one in namespaces:
            if "${" not in one and not _NAMESPACE.fullmatch(one):
                raise ValueError(f"invalid namespace {one!r}; use up to 63 of a-z, 0-9 and -")
            if namespaces.count(one) > 1:
                raise ValueError(f"duplicate namespace {one!r}")
        return namespaces

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.target is None:
            raise ValueError("`target` is required: a Kubernetes target, or `here`")
        if self.driver is not None and self.audit_log:
            raise ValueError("`audit_log` cannot be combined with `driver`: the log is a file on this machine")
        if isinstance(self.follow, FollowOthers):
            self._only_follow()
        elif (self.workload is None) == (not self.workloads):
            raise ValueError("set exactly one of `workload` and `workloads`, or `follow` as a map")
        elif not {"count", "arrivals"} <= self.model_fields_set:
            raise ValueError("`count` and `arrivals` are required")
        measured = self.measured.values()
        if self.until in ("scheduled", "started", "ready") and any(one.bare for one in measured):
            raise ValueError(f"`until: {self.until}` needs pods; with `kind: kueue` use `until: admitted`")
        if self.until in ("quota_reserved", "admitted") and any(one.kind and not one.queue for one in measured):
            raise ValueError(f"`until: {self.until}` needs a Kueue `queue` on every built-in workload")
        if self.churn is not None and self.until == "finished":
            raise ValueError("`churn` cannot be combined with `until: finished`")
        if self.find and self.arrivals.rate is None and self.arrivals.poisson is None:
            raise ValueError("`find: limit` needs `arrivals` with a `rate` or `poisson`")
        if self.find and self.churn is not None:
            raise ValueError("`find: limit` cannot be combined with `churn`")
        if self.find and not self.bounds and self.slo is None:
            raise ValueError("`find: limit` needs `bounds` or `slo`")
        if self.find and self.count < LEAST_COUNT:
            raise ValueError(f"`find: limit` needs a `count` of at least {LEAST_COUNT} for a clear result")
        given = self.scale_bounds()  # raises ValueError
        if self.find and any("." in one.metric and not one.part for one in given):
            raise ValueError("`find: limit` cannot use bounds on `metrics`")
        return self

    def _only_follow(self) -> None:
        """Others decide what is created and when."""
        mine = {"workload", "workloads", "count", "arrivals", "background", "fill", "churn", "find", "slo", "audit_log"}
        if given := sorted(mine & self.model_fields_set):
            raise ValueError(f"`follow` as a map cannot be combined with `{given[0]}`")
        if self.until == "created" or any(one.metric == CREATED for one in self.scale_bounds()):
            raise ValueError("`created` is not measured of workloads that others create; use another stage")

    def scale_bounds(self) -> tuple[FixedBound, ...]:
        given = {**NONE, **SLOS.get(self.slo or "", {}), **self.bounds}
        queries = self.metrics.queries if self.metrics else ()
        return tuple(parse_scale_bound(name, value, self.workloads, queries) for name, value in given.items())

    @property
    def measured(self) -> Mapping[str, Workload]:
        return {ONE: self.workload} if self.workload else self.workloads

    @property
    def kinds(self) -> tuple[FollowedKind, ...]:
        return self.follow.kinds if isinstance(self.follow, FollowOthers) else self.follow

    def every_workload(self) -> dict[tuple[str, ...], Workload]:
        """All workloads, by their path in the trial."""
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
        return tuple((place, file) for place, file in named if isinstance(file, str))

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        return ("driver",)
