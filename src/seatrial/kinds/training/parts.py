"""The steps of a training trial's cell: what the agent runs and reads, and what it looks for in the files."""

from collections.abc import Iterator
from typing import Any

from seatrial.job import Step
from seatrial.job.spec import ARTIFACTS
from seatrial.kinds.command import follow_checks, keep_output, read_steps
from seatrial.kinds.job import plan_workspace
from seatrial.kinds.training.model import TrainingTrial
from seatrial.suite import Cell
from seatrial.suite.patterns import for_agent

TRAIN = "train"
FILES = "files"
OUTPUT = "output/train.txt"


def plan_job_steps(cell: Cell) -> Iterator[Step]:
    model: TrainingTrial = cell.spec
    yield from (planned.step for planned in plan_workspace(cell, model.workspace_of(cell.runtime)))
    follow = reading(cell)
    if model.log.hosts == "any":
        follow["any"] = True  # when one host has said all that it must, no other is waited for
    args = {"command": model.command, "hosts": model.hosts, "follow": follow, **keep_output(model, OUTPUT)}
    yield Step(TRAIN, "command", args)
    yield from read_steps(FILES, model, ARTIFACTS if model.artifacts else None, OUTPUT)


def reading(cell: Cell) -> dict[str, Any]:
    """What the agent looks for in the log, and what makes it end the job."""
    model: TrainingTrial = cell.spec
    values = {"step": model.steps.pattern, "step_time": model.steps.time}
    if model.loss is not None:
        values["loss"] = model.loss.pattern
    checks, stall = follow_checks(model), model.stall
    own = {name: for_agent(pattern) for name, pattern in values.items()}
    return {
        **checks,
        "values": {**own, **checks["values"]},
        "finite": ["loss"] if model.loss is not None and model.loss.finite else [],
        "stall": {"factor": stall.factor, "least_s": stall.least_s, "steps": stall.after} if stall else None,
    }
