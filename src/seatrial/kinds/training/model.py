"""Fields of a training trial: a command and the checks of its log, files and metrics."""

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Tag, model_validator

from seatrial.suite import DeclaredMetric, Duration, Gathered, Model, Runtime, Text, TrialModel, Workspace
from seatrial.suite.command import Amount, CommandChecks, FiniteNumber, MetricPattern, Tolerance
from seatrial.suite.models import MAX_HOSTS, PLAIN_OR_MAP

# The patterns work with `re` of Python 3.8. Each starts with a literal, followed by a lookbehind: `re` finds a literal
# twenty times as fast as anything else.
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d*)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?:[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF(?:INITY)?)\b)"
)
_OTHERS = ("[vV]al", "[vV]alidation", "[eE]val", "[tT]est", "[dD]ev", "[bB]est")  # words before other losses
_NOT_THEM = "".join(rf"(?<!{word} [lL]oss)" for word in _OTHERS)
_LOSS = rf"oss(?<=[lL]oss)(?<![\w/.-][lL]oss)(?:(?<![lntv] [lL]oss)|{_NOT_THEM})"  # the words end in l, n, t or v
_STEP = r"""tep(?=['" :=#\d])(?<=[sS]tep)(?:(?<![\w/.-][sS]tep)|(?<=global_[sS]tep))"""  # not multi-step, my_step
_STEP_TIME = r"tep[ _]time(?<=[sS]tep.time)(?<![\w/.-][sS]tep.time)"

# What may surround a number after `:` or `=`: quotes, a list, a torch, JAX or NumPy value. It contains no digit: the
# agent's fast path needs patterns that treat all digits alike.
_AROUND = r"(?:tensor|[aA]rray|np\.float\d+)\("
LOSS = rf"{_LOSS}['\"]?(?:\s*[:=]\s*['\"\[(]*|\s+)(?:{_AROUND}\[*)?({_NUMBER})"
STEP = rf"{_STEP}['\"]?\s*[:=#]?\s*(\d+)(?![\d.])"
STEP_TIME_PATTERN = rf"{_STEP_TIME}['\"]?\s*[:=]\s*({_NUMBER})(?![\d.eE+-]|\s*(?:ms|us|µs|ns|min))"

_MOST_PERCENT = 1_000  # a larger tolerance of the loss is a warning


class Loss(Model):
    """The loss that the log reports."""

    pattern: MetricPattern = Field(LOSS, description="Regular expression; its first group is the loss.")
    target: FiniteNumber | None = Field(None, description="Expected final loss.")
    curve: Text | None = Field(
        None, min_length=1, description="File of a recorded curve (JSON or CSV, step to loss), relative to the suite."
    )
    tolerance: Tolerance | None = Field(
        None, description="Allowed difference from `target` or `curve`: a distance, or a share such as 2%."
    )
    finite: bool = Field(True, description="Stop the job as soon as the loss is nan or inf.")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.target is not None or self.curve is not None) and self.tolerance is None:
            raise ValueError("`target` and `curve` need `tolerance`: a distance (0.001) or a share (2%)")
        if self.tolerance is not None and self.target is None and self.curve is None:
            raise ValueError("`tolerance` needs `target` or `curve`")
        return self

    def allowed(self, wanted: float) -> float:
        """The largest difference from an expected value."""
        if isinstance(self.tolerance, str):
            return abs(wanted) * (float(self.tolerance.rstrip("% ")) / 100)
        return self.tolerance or 0.0

    def near(self, value: float, wanted: float) -> bool:
        """Within the tolerance, equality included; binary rounding of decimals is ignored."""
        lost = 4 * math.ulp(max(abs(value), abs(wanted))) if math.isfinite(value) else 0.0
        return abs(value - wanted) <= self.allowed(wanted) + lost

    @property
    def width(self) -> str:
        """The tolerance as text."""
        if isinstance(self.tolerance, str):
            return f"{float(self.tolerance.rstrip('% ')):.4g}%"
        return f"{self.tolerance or 0.0:.4g}"


class Steps(Model):
    """How the log reports training steps."""

    pattern: MetricPattern = Field(STEP, description="Regular expression; its first group is the step number.")
    count: Amount | None = Field(None, description="Required number of steps in the log.", examples=[">=15"])
    last: Amount | None = Field(None, description="Required highest step number.", examples=[">=40"])
    time: MetricPattern = Field(STEP_TIME_PATTERN, description="Regular expression; its first group is the step time.")
    unit: Literal["s", "ms", "us"] = Field("s", description="Unit of the step time.")


class Stall(Model):
    """When a job without a new step counts as stalled."""

    factor: float = Field(100.0, gt=1, description="Multiple of the median step time so far.")
    least_s: Duration = Field(300.0, alias="least", description="Minimum time without a new step.")
    after: int = Field(5, strict=True, ge=2, description="Check only after this many steps: the first ones compile.")


_Stall = Annotated[Annotated[Stall, Tag("map")] | Annotated[Literal[False], Tag("plain")], PLAIN_OR_MAP]


class TrainingGathered(Gathered, frozen=True, omit_defaults=True):
    curve: tuple[tuple[int, float], ...] = ()
    curve_error: str = ""


class TrainingTrial(CommandChecks, TrialModel):
    kind: Literal["training"] = "training"
    command: Text = Field(min_length=1, description="Command line of the training job, for /bin/sh.")
    hosts: int = Field(
        1, strict=True, ge=1, le=MAX_HOSTS, description="How many processes run `command`; on TPUs one per host."
    )
    workspace: Workspace | None = Field(
        None, description="Files for the job's work folder. Default: those of the runtime."
    )
    artifacts: Text | None = Field(
        None, min_length=1, description="Folder or fsspec URL of `files` and `metrics`; each attempt has a subfolder."
    )
    loss: Loss | None = Field(None, description="Check the loss in the log: finite, near a target, like a curve.")
    steps: Steps = Field(Steps(), description="How the log reports steps, and how many are required.")
    stall: _Stall = Field(Stall(), description="When a job without a new step is stopped; false: never.")

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

    def warnings(self) -> tuple[str, ...]:
        tolerance, target = (self.loss.tolerance, self.loss.target) if self.loss else (None, None)
        if isinstance(tolerance, str):
            percent = float(tolerance.rstrip("% "))
        else:
            percent = tolerance / abs(target) * 100 if tolerance and target else 0.0
        return (f"`loss.tolerance` {tolerance} accepts almost any loss; lower it",) if percent > _MOST_PERCENT else ()

    def storage(self) -> tuple[str, ...]:
        return (self.artifacts,) if self.artifacts and "://" in self.artifacts else ()

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        workspace = self.workspace_of(runtime)
        cloned = ["workspace"] if workspace and workspace.git else []
        return ("job", *cloned, "train", *(f"files {name}" for name in self.files))
