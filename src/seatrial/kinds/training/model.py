"""What users write of a training trial: a command, and what its log, its files and its metrics should be."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from seatrial.suite import DeclaredMetric, Duration, Gathered, Model, Runtime, Text, TrialModel, Workspace
from seatrial.suite.command import Amount, CommandChecks, FiniteNumber, MetricPattern, Tolerance

# Nothing here needs a newer `re` than that of Python 3.8. Each begins with a literal and then looks back at what is
# before it: `re` finds a literal twenty times as quickly as anything else.
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d*)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF(?:INITY)?)\b)"
)
_OTHERS = ("[vV]al", "[vV]alidation", "[eE]val", "[tT]est", "[dD]ev", "[bB]est")  # losses that are another one
_NOT_THEM = "".join(rf"(?<!{word} [lL]oss)" for word in _OTHERS)
_LOSS = rf"oss(?<=[lL]oss)(?<![\w/.-][lL]oss)(?:(?<![lntv] [lL]oss)|{_NOT_THEM})"  # they end in one of four letters
_STEP = r"""tep(?=['" :=#\d])(?<=[sS]tep)(?:(?<![\w/.-][sS]tep)|(?<=global_[sS]tep))"""  # not multi-step, my_step
_STEP_TIME = r"tep[ _]time(?<=[sS]tep.time)(?<![\w/.-][sS]tep.time)"

# What may be around a number, behind `:` or `=`: quotes, a list, a number of torch, JAX or NumPy. No digit is in it,
# for the agent counts quickly only with a pattern to which every digit is like any other.
_AROUND = r"(?:tensor|[aA]rray|np\.float\d+)\("
LOSS = rf"{_LOSS}['\"]?(?:\s*[:=]\s*['\"\[(]*|\s+)(?:{_AROUND}\[*)?({_NUMBER})"
STEP = rf"{_STEP}['\"]?\s*[:=#]?\s*(\d+)(?![\d.])"
STEP_TIME_PATTERN = rf"{_STEP_TIME}['\"]?\s*[:=]\s*({_NUMBER})(?![\d.eE+-]|\s*(?:ms|us|µs|ns|min))"


class Loss(Model):
    """The loss, as the log tells it."""

    pattern: MetricPattern = Field(LOSS, description="Regular expression; its first group is the loss.")
    target: FiniteNumber | None = Field(None, description="What the last loss should be.")
    curve: Text | None = Field(
        None, min_length=1, description="File of a recorded curve (JSON or CSV, step to loss), relative to the suite."
    )
    tolerance: Tolerance | None = Field(
        None, description="How far from `target` or `curve` is still in order: a distance, or a share such as 2%."
    )
    finite: bool = Field(True, description="A loss of nan or inf ends the job at once.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.target is not None or self.curve is not None) and self.tolerance is None:
            raise ValueError("`target` and `curve` need a `tolerance`: a distance (0.001) or a share (2%)")
        if self.tolerance is not None and self.target is None and self.curve is None:
            raise ValueError("`tolerance` is of a `target` or a `curve`, and there is neither")
        return self


class Steps(Model):
    """How the log tells that another training step is done."""

    pattern: MetricPattern = Field(STEP, description="Regular expression; its first group is the number of the step.")
    count: Amount | None = Field(None, description="How many steps the log must report.", examples=[">=15"])
    last: Amount | None = Field(None, description="What the highest number of a step must be.", examples=[">=40"])
    time: MetricPattern = Field(
        STEP_TIME_PATTERN, description="Regular expression; its first group is the time of a step."
    )
    unit: Literal["s", "ms", "us"] = Field("s", description="Unit of that time.")


class Stall(Model):
    """How long without a new step is too long."""

    factor: float = Field(100.0, gt=1, description="This many times the median step so far.")
    least_s: Duration = Field(300.0, alias="least", description="And never less than this.")
    after: int = Field(5, strict=True, ge=2, description="Not before this many steps: the first ones compile.")


_Stall = Annotated[
    Annotated[Stall, Tag("map")] | Annotated[Literal[False], Tag("plain")],
    Discriminator(lambda value: "map" if isinstance(value, dict | Stall) else "plain"),
]


class TrainingGathered(Gathered, frozen=True, omit_defaults=True):
    curve: tuple[tuple[int, float], ...] = ()
    curve_error: str = ""


class TrainingTrial(CommandChecks, TrialModel):
    kind: Literal["training"] = "training"
    command: Text = Field(min_length=1, description="Command line of the training job, for /bin/sh.")
    hosts: int = Field(1, strict=True, ge=1, le=1024, description="Processes of `command` that are started together.")
    workspace: Workspace | None = Field(
        None, description="Files that the job finds in its work folder; default: those of the runtime."
    )
    artifacts: Text | None = Field(
        None, min_length=1, description="Folder or fsspec address where `files` and `metrics` are; the job's is in it."
    )
    loss: Loss | None = Field(None, description="The loss that the log tells: finite, near a target, like a curve.")
    steps: Steps = Field(Steps(), description="How the log reports steps, and how many it must.")
    stall: _Stall = Field(Stall(), description="No new step for too long; false: not judged.")

    JUDGING: ClassVar[frozenset[str]] = frozenset(
        {"artifacts", "log", "loss", "steps", "stall", "files", "metrics", "read", "bounds"}
    )
    GATHERED = TrainingGathered
    OWN_METRICS: ClassVar[tuple[str, ...]] = ("step_time", "loss", "seconds", "peak_memory")

    @model_validator(mode="after")
    def _one_output(self) -> Self:
        if self.reading is not None and self.reading.file is None and (self.hosts > 1 or self.artifacts):
            raise ValueError("with several `hosts` or `artifacts`, `read` needs a `file`: {reader: NAME, file: GLOB}")
        return self

    def workspace_of(self, runtime: Runtime | None) -> Workspace | None:
        return self.workspace or (runtime.workspace if runtime else None)

    def declared_metrics(self) -> dict[str, DeclaredMetric]:
        own = {
            "step_time": DeclaredMetric("s", "lower"),
            "loss": DeclaredMetric(""),
            "seconds": DeclaredMetric("s"),
            "peak_memory": DeclaredMetric("B"),
        }
        return own | {name: DeclaredMetric(metric.unit, metric.better) for name, metric in self.metrics.items()}

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        return ((("loss", "curve"), self.loss.curve),) if self.loss and self.loss.curve else ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        workspace = self.workspace_of(runtime)
        cloned = ["workspace"] if workspace and workspace.git else []
        return ("job", *cloned, "train", *(f"files {name}" for name in self.files))
