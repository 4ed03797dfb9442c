"""What users write of one workload."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from seatrial.suite import Model, Text


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
