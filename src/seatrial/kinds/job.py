"""What the jobs of all kinds share: name, resources, limits, environment, variables and workspace files."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import Field

from seatrial.checks import check_workspace
from seatrial.job import (
    Environment,
    Exit,
    Finding,
    Input,
    JobSpec,
    Limits,
    ObservedStep,
    PartSpec,
    Resources,
    Step,
    convert,
)
from seatrial.suite import Cell, Model, Text, Workspace
from seatrial.suite.values import Size

DRIVER = "driver"
_T = TypeVar("_T")


def make_job(cell: Cell, steps: Iterable[Step], inputs: Iterable[Input]) -> JobSpec:
    """The job of a cell: `steps` and `inputs` come from the kind, the rest from the fields common to all trials."""
    timeout = cell.spec.timeout
    return JobSpec(
        title=cell.id,
        steps=tuple(steps),
        environment=environment_of(cell),
        resources=cell.machine.resources(),
        limits=Limits(timeout.queue_s, timeout.run_s, timeout.stall_s, timeout.grace_s),
        env={name: value for name, value in cell.env.items() if isinstance(value, str)},
        secrets={name: value.secret for name, value in cell.env.items() if not isinstance(value, str)},
        inputs=tuple(inputs),
        hosts=cell.machine.hosts,
    )


def as_work(model: Model, form: type[_T], **more: Any) -> _T:
    """The values of a model, by field name, in the form that a driver reads."""
    return convert({**model.model_dump(exclude_none=True), **more}, form)


class DriverPlace(Model):
    """Runs the client or load generator as a job on the trial's target instead of on this machine."""

    image: Text = Field(min_length=1, description="Image that contains this version of Seatrial.")
    cpu: float = Field(1.0, strict=True, gt=0, description="Reserved CPU cores, to avoid measuring a busy node.")
    memory_bytes: Size | None = Field(None, alias="memory", description="Reserved memory.")
    select: dict[Text, Text] = Field({}, description="Labels of nodes to run on.")


def driver_job(job: JobSpec, kind: str, work: msgspec.Struct, place: DriverPlace | None) -> JobSpec:
    """The job that runs Seatrial itself, in its own environment or in an image that contains it."""
    return msgspec.structs.replace(
        job,
        part=DRIVER,
        steps=(Step(DRIVER, "drive", {"kind": kind, "work": msgspec.to_builtins(work)}),),
        environment=Environment("seatrial", image=place.image if place else None, seatrial=not place),
        resources=Resources(place.cpu, place.memory_bytes, select=dict(place.select)) if place else Resources(),
        hosts=1,
    )


def only_part(cell: Cell, job: JobSpec) -> tuple[PartSpec, ...]:
    """The parts of an attempt with one job, on the cell's own target."""
    return (PartSpec(job.part, job, cell.target),)


def environment_of(cell: Cell) -> Environment:
    runtime = cell.runtime
    if runtime is None:
        return Environment()
    interpreter = runtime.interpreter
    if interpreter and "/" in interpreter:
        interpreter = str(cell.directory / Path(interpreter).expanduser())
    own = "{}.{}".format(*sys.version_info) if runtime.packages else None
    return Environment(
        name=cell.runtime_name or "host",
        python=runtime.python or own,
        packages=runtime.packages,
        interpreter=interpreter,
        image=runtime.image,
    )


def workspace_inputs(cell: Cell, workspace: Workspace | None) -> list[Input]:
    """The files of a workspace on this machine. Cloning one is a step of the job instead."""
    if workspace is None or workspace.path is None:
        return []
    return [Input(str(cell.directory / workspace.path), ".")]


WORKSPACE_S = 3600.0


@dataclass(frozen=True)
class PlannedStep:
    """A step and the check of its result."""

    step: Step
    check: Callable[[ObservedStep, Exit], list[Finding]]


def plan_workspace(cell: Cell, workspace: Workspace | None) -> Iterator[PlannedStep]:
    """The step that clones a git workspace. It comes first, because other steps may need its files."""
    if workspace and workspace.git:
        args = {"git": workspace.git, "ref": workspace.ref}
        step = Step("workspace", "workspace", args, WORKSPACE_S)
        yield PlannedStep(step, lambda observed, ended: [check_workspace(observed, ended)])
