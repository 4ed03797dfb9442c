"""What users write of a scale trial: workloads, how many of them come when, and what is asked of their stages."""

import re
from collections.abc import Collection
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from seatrial.job.bound import FixedBound
from seatrial.job.followed import ADMITTED, FINISHED, OF_PODS, QUOTA_RESERVED, STAGES
from seatrial.suite import Duration, Runtime, Text, TrialModel
from seatrial.trial import bounds
from seatrial.trial.arrivals import Rate
from seatrial.trial.job import DriverPlace
from seatrial.trial.scale.follow import FollowedKind
from seatrial.trial.scale.phases import Background, ChurnModel, Fill, LocalMachine, ScaleArrivals
from seatrial.trial.scale.workload_model import MixedWorkload, Workload

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
    return bounds.parse_bound(name, value, bounds.KnownFigures("a scale trial", durations, _COUNTS, _PART, choice))


class ScaleTrial(TrialModel):
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
    fill: Fill | None = Field(None, description="Workloads that are there before the measured ones, in no figure.")
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
        {}, description="What figures must be.", examples=[{"scheduled.p99": "30s", "failed": 0}]
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
        twice = [one for one in namespaces if namespaces.count(one) > 1]
        if twice:
            raise ValueError(f"namespace {twice[0]!r} is named twice")
        return namespaces

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.target is None:
            raise ValueError("a scale trial makes its workloads on a cluster, or here: name it, `target: NAME`")
        if self.driver is not None and self.audit_log:
            raise ValueError("`audit_log` is a file of this machine, and the `driver` is on the cluster")
        if (self.workload is None) == (not self.workloads):
            raise ValueError("a scale trial has exactly one of `workload` and `workloads`, several by name")
        measured = [self.workload] if self.workload else list(self.workloads.values())
        if self.until in OF_PODS and self.until != FINISHED and any(one.bare for one in measured):
            raise ValueError(f"a Workload of Kueue alone has no pods, and is never {self.until}: `until: admitted`")
        if self.until in (QUOTA_RESERVED, ADMITTED) and any(one.kind and not one.queue for one in measured):
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
        return self

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        self.scale_bounds()
        return self

    def scale_bounds(self) -> tuple[FixedBound, ...]:
        given = {**NONE, **SLOS.get(self.slo or "", {}), **self.bounds}
        return tuple(parse_scale_bound(name, value, self.workloads) for name, value in given.items())

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
