"""The kind `training`: the job of a cell, and the judgement of its observation."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from seatrial.checks import check_job, check_workspace
from seatrial.checks.command import check_exit, check_log
from seatrial.checks.files import check_files
from seatrial.checks.findings import MetricData, metric_data
from seatrial.checks.metrics import step_time_metric
from seatrial.job import (
    AnyChart,
    Finding,
    History,
    Observation,
    ObservedStep,
    PartSpec,
    Series,
    Step,
    Unreadable,
    Verdict,
    unit_factor,
)
from seatrial.job.spec import ARTIFACTS
from seatrial.kinds.command import follow_checks, judge_bounds, judge_metrics, keep_output, read_steps
from seatrial.kinds.job import make_job, only_part, plan_workspace, workspace_inputs
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.training.curve import read_curve
from seatrial.kinds.training.loss import check_loss
from seatrial.kinds.training.model import TrainingGathered, TrainingTrial
from seatrial.kinds.training.profile import check_profile, check_profile_metric
from seatrial.kinds.training.steps import check_steps, from_lines, from_log, times_broken
from seatrial.readers.log import log_values
from seatrial.readers.profile import StepTime, from_profile, profiles
from seatrial.suite import Cell
from seatrial.suite.patterns import for_agent

TRAIN = "train"
FILES = "files"
OUTPUT = "output/train.txt"
_STEP_TIME = "step_time"
_MOST_HOSTS = 16  # columns of a chart; findings cover all hosts
_MOST_ROWS = 500
_MOST_WANTED = 10_000

_Column = Mapping[int, float]  # values of a chart by step


class TrainingKind:
    name = "training"
    model = TrainingTrial

    def gather(self, cell: Cell) -> TrainingGathered:
        """Reads the recorded curve, so that a run uses the curve from when it was planned."""
        model: TrainingTrial = cell.spec
        loss = model.loss
        if loss is None or loss.curve is None:
            return TrainingGathered()
        try:
            return TrainingGathered(curve=tuple(sorted(read_curve(cell.directory / loss.curve).items())))
        except Unreadable as error:
            return TrainingGathered(curve_error=str(error))

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        model: TrainingTrial = cell.spec
        job = make_job(cell, _steps(cell), workspace_inputs(cell, model.workspace_of(cell.runtime)))
        job = msgspec.structs.replace(job, hosts=_hosts(cell), artifacts=model.artifacts or "")
        return only_part(cell, job)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Every check has a finding, however the job ended."""
        observation = observed["job"]
        model: TrainingTrial = cell.spec
        step_by_name = {step.name: step for step in observation.steps}
        findings = check_job(observation)
        if "workspace" in step_by_name:
            findings.append(check_workspace(step_by_name["workspace"], observation.exit))
        train = step_by_name.get(TRAIN) or ObservedStep(TRAIN, "command")
        files = step_by_name.get(FILES) or ObservedStep(FILES, "read")
        findings += check_exit(train, observation.exit)
        logs = train.args.get("logs")  # for a job that ran elsewhere: number of hosts with a log
        had = train.args.get("hosts")  # logs read later may have more hosts than the trial
        hosts = had if isinstance(had, int) else _hosts(cell)
        of_all = model.log.hosts == "all"
        asked = hosts if of_all else 0  # hosts that must each report steps, loss and metrics; 0: any one
        findings += check_log(train, model.log, hosts, logs if isinstance(logs, int) else None)
        findings += _loss(cell, train, asked)
        findings += check_steps(train, model.steps.pattern, model.steps.count, model.steps.last, asked)
        for name, entry in model.files.items():
            findings += check_files(files, observation, name, entry)
            if entry.profile:
                findings += check_profile(files, train, name, entry, model.steps.unit)
        found, made = judge_metrics(model, train, files, asked)
        metrics = _metrics(train) | _own_metrics(model, train, files) | made
        findings += [*found, *_against_profile(model, files, made), *judge_bounds(model, train, metrics)]
        charts = _charts(train, _recorded(cell), model.steps.unit)
        return Judgement(findings, metrics, charts)


def _hosts(cell: Cell) -> int:
    """Those of the trial; if it does not say, those of the machine."""
    model: TrainingTrial = cell.spec
    return model.hosts if model.hosts > 1 else cell.machine.hosts


def _steps(cell: Cell) -> Iterator[Step]:
    """The steps of the agent: workspace, command, reading of files."""
    model: TrainingTrial = cell.spec
    yield from (planned.step for planned in plan_workspace(cell, model.workspace_of(cell.runtime)))
    follow = _follow(model)
    if model.log.hosts == "any":
        follow["any"] = True  # do not wait for other hosts once one has matched all `must`
    if cell.gathered.curve:  # keep their losses, however many the log has
        follow["wanted"] = [step for step, _ in cell.gathered.curve[:_MOST_WANTED]]
    args = {"command": model.command, "hosts": _hosts(cell), "follow": follow, **keep_output(model, OUTPUT)}
    yield Step(TRAIN, "command", args)
    yield from read_steps(FILES, model, ARTIFACTS if model.artifacts else None, OUTPUT)


def _follow(model: TrainingTrial) -> dict[str, Any]:
    """What the agent searches the log for, and what makes it stop the job."""
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


def _recorded(cell: Cell) -> dict[int, float]:
    return dict(cell.gathered.curve)


def _loss(cell: Cell, train: ObservedStep, hosts: int) -> list[Finding]:
    model: TrainingTrial = cell.spec
    loss = model.loss
    if loss is None:
        return []
    error = cell.gathered.curve_error
    broken = [Finding(TRAIN, "loss curve", Verdict.INVALID, "curve", error)] if error else []
    return check_loss(train, loss, _recorded(cell), hosts) + broken


def _against_profile(model: TrainingTrial, files: ObservedStep, measured: Mapping[str, MetricData]) -> list[Finding]:
    """Compares the step time that the job wrote with its profile."""
    metric, made = model.metrics.get(_STEP_TIME), measured.get(_STEP_TIME)
    if metric is None or made is None or metric.file is None or metric.aggregate is not None:
        return []
    seconds = made["value"] * (unit_factor(metric.unit, "s") or 0.0)
    return [
        finding
        for name, entry in model.files.items()
        if entry.agrees is not None
        for finding in check_profile_metric(files, name, entry.agrees, _STEP_TIME, seconds, made.get("source", ""))
    ]


def _metrics(train: ObservedStep) -> dict[str, MetricData]:
    """Metrics of the command itself."""
    metrics: dict[str, MetricData] = {}
    if train.seconds is not None:
        metrics["seconds"] = metric_data(round(train.seconds, 4), "s", None, "the agent's clock, from start to end")
    if train.peak_memory_bytes is not None:
        metrics["peak_memory"] = metric_data(train.peak_memory_bytes, "B", None, "cgroup or process memory")
    return metrics


def _own_metrics(model: TrainingTrial, train: ObservedStep, files: ObservedStep) -> dict[str, MetricData]:
    """Step time and final loss, always measured, each from the host where it is highest. The source of the step time
    depends only on the suite, never on what a run left behind: metrics of two sources are not the same metric."""
    metrics: dict[str, MetricData] = {}
    last = log_values(train, "loss").last
    if last and all(map(math.isfinite, last.values())):
        host = max(last, key=lambda host: last[host])
        of_host = f" of host {host}" if len(last) > 1 else ""
        metrics["loss"] = metric_data(last[host], "", None, f"the log{of_host} (last value)")
    if _STEP_TIME not in model.metrics and (taken := _step_time(model, train, files)):
        metrics[_STEP_TIME] = step_time_metric(taken)
    return metrics


def _step_time(model: TrainingTrial, train: ObservedStep, files: ObservedStep) -> StepTime | None:
    profiled = next((name for name, entry in model.files.items() if entry.profile), None)
    if profiled is not None:
        return from_profile(profiles(files, profiled))
    if times_broken(train):
        return None
    return from_log(train, model.steps.unit) or from_lines(train)


def _charts(train: ObservedStep, recorded: _Column, step_unit: str) -> list[AnyChart]:
    """Charts for reports: loss (with the recorded curve) and step time, by step."""
    losses = _by_host(train, "loss")
    if losses and recorded:
        losses |= {"recorded": recorded}
    made = [_series("Step time", _by_host(train, "step_time"), step_unit), _series("Loss by step", losses, "")]
    return [History("Step time over runs", _STEP_TIME), *(chart for chart in made if chart)]


def _by_host(train: ObservedStep, name: str) -> dict[str, _Column]:
    """Values by step: the last one of each step; values without a step by their position."""
    values = log_values(train, name)
    found: dict[str, _Column] = {}
    for host in values.hosts[:_MOST_HOSTS]:
        title = name if len(values.hosts) == 1 else f"{name}, host {host}"
        column = {
            number if one.step is None else one.step: one.value
            for number, one in enumerate(values.of(host), 1)
            if math.isfinite(one.value)
        }
        if column:
            found[title] = column
    return found


def _series(title: str, columns: Mapping[str, _Column], unit: str) -> Series | None:
    """None if there are fewer than two steps."""
    steps = sorted({step for column in columns.values() for step in column})
    if len(steps) < 2:
        return None
    every = math.ceil(len(steps) / _MOST_ROWS)
    kept = sorted({*steps[::every], steps[-1]})
    rows = [[step, *(column.get(step) for column in columns.values())] for step in kept]
    units = dict.fromkeys(columns, unit) if unit else {}
    return Series(title, ["step", *columns], rows, units, first=True)


kind = TrainingKind()
