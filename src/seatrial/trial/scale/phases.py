"""What users write of what comes before, after and around the measured workloads."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from seatrial.job.load import Arrivals
from seatrial.job.scale import Churn
from seatrial.suite import Duration, Model
from seatrial.trial.arrivals import ArrivalsModel, Rate
from seatrial.trial.scale.workload_model import Workload

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

    def work(self) -> Churn:
        return Churn(self.rate, self.seconds)
