"""What users write of a scale trial: a workload, how many of it come when, and what is asked of their stages."""

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from seatrial.job.bound import FixedBound
from seatrial.job.scale import STAGES
from seatrial.suite import Duration, Model, Runtime, Text, TrialModel
from seatrial.trial import bounds
from seatrial.trial.arrivals import ArrivalsModel

COUNTS = {"failed": "<=", "unfinished": "<=", "refused": "<=", "rate": ">="}
_FIGURES = bounds.Figures(
    "a scale trial", STAGES, COUNTS, re.compile(r"p(50|90|95|99)"), "{0}.p50, {0}.p90, {0}.p95 or {0}.p99"
)


class Workload(Model):
    """One workload: built in, or any object of any kind from a file."""

    kind: Literal["pod", "job", "jobset", "pytorchjob"] | None = Field(None, description="One that is built in.")
    template: Text | None = Field(None, description="File with its manifest, relative to the suite.")
    values: dict[Text, Any] = Field({}, description="Texts of the template, and what each is replaced with.")
    claim: Text | None = Field(None, description="File with a volume claim, which goes to the end of the spec.")
    queue: Text | None = Field(None, description="LocalQueue of Kueue that admits it.")
    pods: int = Field(1, strict=True, ge=1, le=10_000, description="Pods that each workload has.")
    gpus: int = Field(0, strict=True, ge=0, description="GPUs of each pod of one that is built in.")
    cpu: Text = Field("100m", description="CPU of each pod of one that is built in.")
    memory: Text = Field("64Mi", description="Memory of each pod of one that is built in.")
    image: Text = Field("busybox", description="Image of one that is built in.")
    command: tuple[Text, ...] = Field(("true",), description="What one that is built in runs.")
    node_selector: dict[Text, Text] = Field({}, alias="select", description="Labels of the nodes that it may run on.")
    tolerate: tuple[Text, ...] = Field((), description="Keys of taints that it does not mind.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.kind is None) == (self.template is None):
            raise ValueError("a workload is exactly one of `kind`, which is built in, and `template`, a file")
        if self.template is None and (self.values or self.claim):
            raise ValueError("`values` and `claim` are for a `template`: a workload that is built in has none")
        if self.kind == "pod" and (self.pods > 1 or self.queue):
            raise ValueError("a pod is one pod, and waits in no queue: take `kind: job`, jobset or pytorchjob")
        return self


def parse_bound(name: str, value: Any) -> FixedBound:
    """Of `scheduled.p99: 30s`, `failed: 0`, `rate: ">=45"`."""
    return bounds.parse_bound(name, value, _FIGURES)


class ScaleTrial(TrialModel):
    kind: Literal["scale"] = "scale"
    workload: Workload = Field(description="What is made, again and again.")
    count: int = Field(strict=True, ge=1, le=1_000_000, description="How many.")
    arrivals: ArrivalsModel = Field(description="When they are made, whatever became of those before.")
    until: Literal["created", "scheduled", "started", "ready", "finished"] = Field(
        "started", description="The stage at which a workload is done."
    )
    settle_s: Duration = Field(300.0, alias="settle", description="How long the last ones may take to that stage.")
    bounds: dict[Text, Any] = Field(
        {}, description="What figures must be.", examples=[{"scheduled.p99": "30s", "failed": 0}]
    )
    seed: int = Field(0, strict=True, ge=0, description="Of arrivals by chance.")

    JUDGING: ClassVar[frozenset[str]] = frozenset({"bounds"})

    @field_validator("bounds")
    @classmethod
    def _bounds(cls, bounds: dict[str, Any]) -> dict[str, Any]:
        for name, value in bounds.items():
            parse_bound(name, value)
        return {"failed": 0, "unfinished": 0, **bounds}

    @model_validator(mode="after")
    def _place(self) -> Self:
        if self.target is None:
            raise ValueError("a scale trial makes its workloads on a cluster: name it, `target: NAME`")
        return self

    def scale_bounds(self) -> tuple[FixedBound, ...]:
        return tuple(parse_bound(name, value) for name, value in self.bounds.items())

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        named = {"template": self.workload.template, "claim": self.workload.claim}
        return tuple((("workload", field), file) for field, file in named.items() if file)

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        return ("driver",)
