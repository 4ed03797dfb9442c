"""The steps of a training trial's cell: what the agent runs and reads, and what it looks for in the files."""

from collections.abc import Iterator
from typing import Any

from seatrial.job import Step
from seatrial.kinds.job import plan_workspace
from seatrial.kinds.training.model import TrainingTrial
from seatrial.suite import Cell
from seatrial.suite.command import Files, Metric
from seatrial.suite.patterns import for_agent

TRAIN = "train"
FILES = "files"
FILES_S = 900.0  # to look for files and read them, when training is over
# What the agent reads of one file at the most. Real profiles are of 0.2 to 100 MB.
_MOST_BYTES = {"json": 64 << 20, "xplane": 2 << 30, "kineto": 2 << 30, "": 1 << 62}
WORK, KEPT = ".", "files"  # the agent's names for the work folder and for the folder of files that are kept


def plan_job_steps(cell: Cell, artifacts: str | None) -> Iterator[Step]:
    model: TrainingTrial = cell.spec
    yield from (planned.step for planned in plan_workspace(cell, model.workspace_of(cell.runtime)))
    follow = reading(cell)
    if model.log.hosts == "any":
        follow["any"] = True  # when one host has said all that it must, no other is waited for
    yield Step(TRAIN, "command", {"command": model.command, "hosts": model.hosts, "follow": follow})
    entries = file_entries(cell)
    if entries:
        yield Step(FILES, "read", {"roots": [artifacts] if artifacts else [WORK, KEPT], "entries": entries}, FILES_S)


def reading(cell: Cell) -> dict[str, Any]:
    """What the agent looks for in the log, and what makes it end the job."""
    model: TrainingTrial = cell.spec
    values = {"step": model.steps.pattern, "step_time": model.steps.time}
    if model.loss is not None:
        values["loss"] = model.loss.pattern
    values |= {log_name(name): metric.log for name, metric in model.metrics.items() if metric.log is not None}
    stall = model.stall
    return {
        "must": [for_agent(pattern) for pattern in model.log.must],
        "never": [for_agent(pattern) for pattern in model.log.never],
        "values": {name: for_agent(pattern) for name, pattern in values.items()},
        "finite": ["loss"] if model.loss is not None and model.loss.finite else [],
        "stall": {"factor": stall.factor, "least_s": stall.least_s, "steps": stall.after} if stall else None,
    }


def artifacts_of(cell: Cell, job: str) -> str | None:
    """Where the job's files are looked for. A place that outlives the job has a folder for each, so that no job finds
    what another one left."""
    model: TrainingTrial = cell.spec
    place = model.artifacts
    if place is None:
        return None
    return f"{place.rstrip('/')}/{job}" if "://" in place or place.startswith("/") else place


def file_entries(cell: Cell) -> dict[str, dict[str, Any]]:
    """What is looked for, by name: the entries of `files`, and a file for each metric that is in one."""
    model: TrainingTrial = cell.spec
    entries = {name: _entry(files) for name, files in model.files.items()}
    for name, metric in model.metrics.items():
        if metric.file is not None:
            entries[metric_entry(name)] = _metric(metric)
    return entries


def metric_entry(name: str) -> str:
    """The name of a metric's entry among the files; no entry of `files` has a blank in its name."""
    return f"metric {name}"


def log_name(name: str) -> str:
    """The name under which the agent reads a metric's values; none of its own has a blank in it."""
    return f"metric {name}"


def _entry(files: Files) -> dict[str, Any]:
    reader = files.valid or ""
    return {"match": files.match, "reader": reader, "keys": [], "most_bytes": _MOST_BYTES[reader]}


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "match": metric.file,
        "reader": "json",
        "keys": [metric.key],
        "most_bytes": _MOST_BYTES["json"],
    }
