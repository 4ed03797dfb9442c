"""The job that a cell of a training trial needs, and what its observation comes to."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.checks import check_job, check_workspace
from seatrial.checks.command import LogExpected, check_exit, check_log
from seatrial.checks.files import check_files, host_folders, job_window
from seatrial.checks.findings import MetricData, metric_data
from seatrial.checks.metrics import check_metric, step_time_metric
from seatrial.job import Finding, Observation, ObservedStep, PartSpec, Verdict, unit_factor
from seatrial.kinds.command import files_expected, judge_bounds, judge_reading, metric_expected
from seatrial.kinds.job import make_job, only_part, workspace_inputs
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.training.charts import training_charts
from seatrial.kinds.training.curve import CurveError, read_curve
from seatrial.kinds.training.loss import LossExpected, check_loss
from seatrial.kinds.training.model import TrainingTrial
from seatrial.kinds.training.parts import (
    FILES,
    TRAIN,
    plan_job_steps,
)
from seatrial.kinds.training.profile import ProfileExpected, check_profile, check_profile_metric
from seatrial.kinds.training.steps import check_steps, from_lines, from_log, times_broken
from seatrial.readers.log import log_values
from seatrial.readers.profile import StepTime, from_profile, profiles
from seatrial.suite import Cell
from seatrial.suite.command import Files, Metric

_STEP_TIME = "step_time"


class TrainingKind:
    name = "training"
    model = TrainingTrial

    def gather(self, cell: Cell) -> dict[str, Any]:
        """The recorded curve, so that a run is judged by what there was when it was planned."""
        model: TrainingTrial = cell.spec
        loss = model.loss
        if loss is None or loss.curve is None:
            return {}
        try:
            return {"curve": sorted(read_curve(cell.directory / loss.curve).items())}
        except CurveError as error:
            return {"curve_error": str(error)}

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        model: TrainingTrial = cell.spec
        job = make_job(cell, plan_job_steps(cell), workspace_inputs(cell, model.workspace_of(cell.runtime)))
        job = msgspec.structs.replace(job, hosts=model.hosts, artifacts=model.artifacts or "")
        return only_part(cell, job)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Every check has its finding, whatever became of the job."""
        observation = observed["job"]
        model: TrainingTrial = cell.spec
        step_by_name = {step.name: step for step in observation.steps}
        window = job_window(observation)
        findings = check_job(observation)
        if "workspace" in step_by_name:
            findings.append(check_workspace(step_by_name["workspace"], observation.exit))
        train = step_by_name.get(TRAIN) or ObservedStep(TRAIN, "command")
        files = step_by_name.get(FILES) or ObservedStep(FILES, "read")
        findings += check_exit(train, observation.exit)
        findings += [*check_log(train, _log(model, train)), *_loss(cell, model, train)]
        asked = _asked_hosts(model, train)
        findings += check_steps(train, model.steps.pattern, model.steps.count, model.steps.last, asked)
        folders = host_folders(files)
        for name, entry in model.files.items():
            findings += check_files(files, observation.exit, name, files_expected(entry), window, folders)
            if entry.profile:
                findings += check_profile(files, train, name, _profile(model, entry))
        metrics = _own_metrics(model, train, files)
        for name, metric in model.metrics.items():
            finding, made = check_metric(train, files, metric_expected(name, metric, asked))
            findings.append(finding)
            if made:
                metrics[name] = made
                findings += _against_profile(model, files, name, metric, made)
        found, read = judge_reading(model, train, files)
        metrics = _metrics(train) | metrics | read
        findings += [*found, *judge_bounds(model, train, metrics)]
        charts = training_charts(train, _recorded(cell), model.steps.unit)
        return Judgement(findings, metrics, charts)


def _log(model: TrainingTrial, train: ObservedStep) -> LogExpected:
    """`logs`, of a job that ran elsewhere: of how many hosts there is one."""
    logs = train.args.get("logs")
    return LogExpected(
        model.log.must,
        model.log.never,
        _hosts(model, train),
        model.log.hosts == "all",
        logs if isinstance(logs, int) else None,
    )


def _hosts(model: TrainingTrial, train: ObservedStep) -> int:
    """As many as the step had: of logs that are read later there may be more."""
    hosts = train.args.get("hosts")
    return hosts if isinstance(hosts, int) else model.hosts


def _asked_hosts(model: TrainingTrial, train: ObservedStep) -> int:
    """How many hosts must each report steps, loss and metrics; 0: any one will do."""
    return _hosts(model, train) if model.log.hosts == "all" else 0


def _recorded(cell: Cell) -> dict[int, float]:
    return {int(step): float(value) for step, value in cell.gathered.get("curve", [])}


def _loss(cell: Cell, model: TrainingTrial, train: ObservedStep) -> list[Finding]:
    loss = model.loss
    if loss is None:
        return []
    relative = isinstance(loss.tolerance, str)
    tolerance = float(str(loss.tolerance).rstrip("% ")) / 100 if relative else float(loss.tolerance or 0.0)
    curve = _recorded(cell) or None
    error = cell.gathered.get("curve_error")
    broken = [Finding(TRAIN, "loss curve", Verdict.INVALID, "curve", error)] if error else []
    hosts = _asked_hosts(model, train)
    expected = LossExpected(loss.pattern, loss.target, tolerance, relative, loss.finite, curve, hosts)
    return check_loss(train, expected) + broken


def _profile(model: TrainingTrial, entry: Files) -> ProfileExpected:
    return ProfileExpected(
        steps=entry.steps,
        device=entry.device,
        devices=entry.devices,
        window=entry.window,
        agrees=entry.agrees,
        log_unit=model.steps.unit,
    )


def _against_profile(
    model: TrainingTrial, files: ObservedStep, name: str, metric: Metric, made: MetricData
) -> list[Finding]:
    """What the job itself says of its step time, against what its profile shows."""
    if name != _STEP_TIME or metric.file is None or metric.aggregate is not None:
        return []
    seconds = made["value"] * (unit_factor(metric.unit, "s") or 0.0)
    return [
        finding
        for one, entry in model.files.items()
        if entry.agrees is not None
        for finding in check_profile_metric(files, one, entry.agrees, name, seconds, made.get("source", ""))
    ]


def _metrics(train: ObservedStep) -> dict[str, MetricData]:
    """What was measured of the command itself."""
    metrics: dict[str, MetricData] = {}
    if train.seconds is not None:
        metrics["seconds"] = metric_data(round(train.seconds, 4), "s", None, "the agent's clock, from start to end")
    if train.peak_memory_bytes is not None:
        metrics["peak_memory"] = metric_data(train.peak_memory_bytes, "B", None, "the control group or the processes")
    return metrics


def _own_metrics(model: TrainingTrial, train: ObservedStep, files: ObservedStep) -> dict[str, MetricData]:
    """The step time and the last loss, without being asked for, each of the host where it is highest. Where the step
    time comes from depends on the suite alone, never on what a run happened to leave: metrics of two sources are not
    the same metric."""
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


kind = TrainingKind()
