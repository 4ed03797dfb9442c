"""What users write of kinds that are followed beside those that Seatrial knows."""

from typing import Self

from pydantic import Field, model_validator

from seatrial.job.followed import STAGES, Followed, ReachedWhen, segments
from seatrial.suite import Model, Text


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
            segments(path)  # raises BadPath
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
