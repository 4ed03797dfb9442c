"""The kind `runtime`: the job of a cell, and the judgement of its observation."""

import os
from collections.abc import Mapping
from typing import Any

from seatrial.checks import check_job
from seatrial.checks.findings import MetricData, metric_data
from seatrial.job import Finding, Input, Observation, ObservedStep, PartSpec, Verdict
from seatrial.kinds.command import judge_bounds, judge_command
from seatrial.kinds.job import make_job, only_part, workspace_inputs
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.runtime.model import RuntimeGathered, RuntimeTrial
from seatrial.kinds.runtime.parts import notebook_path, notebooks_of, plan_steps
from seatrial.suite import Cell, find_notebooks, names_several

_SURROUNDING = ("job", "facts", "workspace")  # steps that say nothing about what the trial asks for


class RuntimeKind:
    name = "runtime"
    model = RuntimeTrial

    def gather(self, cell: Cell) -> RuntimeGathered:
        """Resolves folders and globs of notebooks: which are in the workspace, which beside the suite, which are
        missing. Notebooks in a git workspace are resolved by the job."""
        model: RuntimeTrial = cell.spec
        workspace = cell.runtime.workspace if cell.runtime else None
        folder = cell.directory / workspace.path if workspace and workspace.path else None
        if folder and not os.path.isdir(folder):  # reported for the workspace itself
            return RuntimeGathered()
        several: dict[str, list[str]] = {}
        beside: list[str] = []
        missing: list[str] = []
        for path in [one.path for one in model.all_notebooks(cell.runtime)]:
            found = find_notebooks(folder, path) if folder else []
            if not found:
                found = find_notebooks(cell.directory, path)
                beside += found
            if names_several(path):
                several[path] = found
            if not found and not (workspace and workspace.git):
                missing.append(f"notebook not found: {path} in {folder or cell.directory}")
        return RuntimeGathered(missing, several, tuple(beside) if workspace else ())

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        steps = (planned.step for planned in plan_steps(cell))
        return only_part(cell, make_job(cell, steps, _inputs(cell)))

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Every step has findings, even if the job did not reach it."""
        observation = observed["job"]
        findings = check_job(observation)
        metrics: dict[str, dict[str, MetricData]] = {}
        step_by_name = {observed_step.name: observed_step for observed_step in observation.steps}
        for planned in plan_steps(cell):
            name = planned.step.name
            observed_step = step_by_name.get(name) or ObservedStep(name, planned.step.kind, planned.step.args)
            findings += planned.check(observed_step, observation.exit)
            if observed_step.seconds is not None and observed_step.kind != "read":
                metrics[name] = _metrics(observed_step)
        model: RuntimeTrial = cell.spec
        for one in model.run_checks:
            ran = step_by_name.get(one.step) or ObservedStep(one.step, "command")
            files = step_by_name.get(one.reads) or ObservedStep(one.reads, "read")
            found, measured = judge_command(one, ran, files, observation)
            findings += found
            measured = {**metrics.get(one.step, {}), **measured}
            findings += judge_bounds(one, ran, measured)
            metrics.update({one.step: measured} if measured else {})
        metrics.update(_passes(findings))
        own = [one for one in findings if one.step not in _SURROUNDING]
        idle = own[0].message if own and all(one.verdict is Verdict.SKIPPED for one in own) else ""
        return Judgement(findings, metrics, idle=idle)


def _inputs(cell: Cell) -> list[Input]:
    """The workspace's files, and the notebooks beside the suite."""
    workspace = cell.runtime.workspace if cell.runtime else None
    notebooks = notebooks_of(cell)
    if workspace:
        notebooks = tuple(one for one in notebooks if one.path in cell.gathered.beside)
    beside = [Input(str(cell.directory / one.path), notebook_path(one), required=False) for one in notebooks]
    return [*workspace_inputs(cell, workspace), *dict.fromkeys(beside)]


def _metrics(observed_step: ObservedStep) -> dict[str, MetricData]:
    metrics = {"seconds": metric_data(round(observed_step.seconds or 0.0, 4), "s")}
    if observed_step.cpu_s is not None:
        metrics["cpu"] = metric_data(round(observed_step.cpu_s, 4), "s")
    if observed_step.peak_memory_bytes is not None:
        metrics["peak_memory"] = metric_data(observed_step.peak_memory_bytes, "B")
    gpus = [gpu for sample in observed_step.samples for gpu in sample.gpu]
    busy = [gpu["utilization"] for gpu in gpus if isinstance(gpu.get("utilization"), int | float)]
    used = [gpu["memory_bytes"] for gpu in gpus if isinstance(gpu.get("memory_bytes"), int | float)]
    if busy:
        metrics["gpu_utilization_mean"] = metric_data(sum(busy) / len(busy), "%")
    if used:
        metrics["gpu_peak_memory"] = metric_data(max(used), "B")
    return metrics


def _passes(findings: list[Finding]) -> dict[str, dict[str, MetricData]]:
    """Time and peak memory of each notebook pass."""
    metrics: dict[str, Any] = {}
    for finding in findings:
        if finding.check == "notebook" and "seconds" in finding.data:
            metrics[finding.step] = {"seconds": metric_data(finding.data["seconds"], "s", "lower")}
            for key, name in (("peak_memory_bytes", "peak_memory"), ("gpu_peak_memory_bytes", "gpu_peak_memory")):
                peaks = [cell[key] for cell in finding.data.get("cells", []) if key in cell]
                if peaks:
                    metrics[finding.step][name] = metric_data(max(peaks), "B")
    return metrics


kind = RuntimeKind()
