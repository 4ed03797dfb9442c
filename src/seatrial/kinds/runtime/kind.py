"""The kind `runtime`: the job of a cell, its steps with their checks, and the judgement of its observation."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from seatrial.checks import check_job, check_run
from seatrial.checks.findings import MetricData, metric_data
from seatrial.job import Finding, Input, Observation, ObservedStep, PartSpec, Step, Verdict
from seatrial.kinds.command import command_steps, judge_bounds, judge_command
from seatrial.kinds.job import PlannedStep, make_job, only_part, plan_workspace, workspace_inputs
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.runtime.judge import check_command, check_facts, check_import
from seatrial.kinds.runtime.model import Facts, Import, RuntimeGathered, RuntimeTrial
from seatrial.kinds.runtime.notebook import check_notebook
from seatrial.suite import Cell, Notebook, find_notebooks, names_several

_SURROUNDING = ("job", "facts", "workspace")  # steps that say nothing about what the trial asks for
# Default limits of steps, s.
COMMAND_S = 30.0
IMPORT_S = 900.0
FACTS_S = 300.0
PASS_EXTRA_S = 150.0  # for starting and stopping a kernel, added to the limit of a pass


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


def plan_steps(cell: Cell) -> Iterator[PlannedStep]:
    """The steps in the order in which they run. The workspace is first, because the others may need its files."""
    model: RuntimeTrial = cell.spec
    notebooks = notebooks_of(cell)
    yield from plan_workspace(cell, cell.runtime.workspace if cell.runtime else None)
    yield from _facts(cell, model, bool(notebooks))
    for command in model.commands:
        step = Step(f"command {command}", "which", {"command": command}, COMMAND_S)
        yield PlannedStep(step, lambda observed, ended: [check_command(observed, ended)])
    yield from map(_import, model.import_checks)
    for one in model.run_checks:
        ran, *reads = command_steps(one)
        yield PlannedStep(ran, partial(check_run, expected=one))
        yield from (PlannedStep(step, lambda observed, ended: []) for step in reads)  # checked with the command
    yield from map(_notebook, notebooks)


def _facts(cell: Cell, model: RuntimeTrial, has_notebooks: bool) -> Iterator[PlannedStep]:
    """By default, facts are left out only if the trial has only `run` and the machine declares nothing."""
    machine = cell.machine
    declares = any(part is not None for part in (machine.cpu, machine.memory_bytes, machine.gpu))
    wanted = model.facts
    if wanted is None:
        wanted = bool(declares or model.commands or model.imports or has_notebooks)
    if wanted is False:
        return
    facts, asked = wanted if isinstance(wanted, Facts) else Facts(), model.facts is not None
    check = partial(check_facts, machine=machine, wanted=facts, asked=asked)
    yield PlannedStep(Step("facts", "facts", {}, FACTS_S), check)


def _import(one: Import) -> PlannedStep:
    step = Step(f"import {one.module}", "import", {"module": one.module}, IMPORT_S)
    return PlannedStep(step, lambda observed, ended: [check_import(observed, ended, one.version, one.empty)])


def notebooks_of(cell: Cell) -> tuple[Notebook, ...]:
    """The notebooks that the cell runs, each name or path once. Folders and globs are as resolved when the plan was
    made; an entry for a single notebook takes precedence over them."""
    model: RuntimeTrial = cell.spec
    written = model.all_notebooks(cell.runtime)
    gathered: RuntimeGathered = cell.gathered
    found = gathered.notebooks
    single = {one.path for one in written if one.path not in found}
    taken: set[str] = set()
    notebooks = []
    for one in written:
        for each in found.get(one.path) or [one.path]:
            if (one.name or each) not in taken and (one.path in single or each not in single):
                taken.add(one.name or each)
                notebooks.append(one.model_copy(update={"path": each}))
    return tuple(notebooks)


def notebook_path(notebook: Notebook) -> str:
    """Path in the job's work folder; leading `..` and `/` are dropped."""
    path = PurePosixPath(notebook.path)
    parts = [part for part in path.parts if part not in ("..", ".", "/")]
    return str(PurePosixPath(*parts)) if parts else str(path)


def _notebook(notebook: Notebook) -> PlannedStep:
    path = notebook_path(notebook)
    args: dict[str, Any] = {
        "path": path,
        "passes": list(notebook.passes),
        "timeout_s": notebook.timeout_s,
        "cell_timeout_s": notebook.cell_timeout_s,
        "stall_s": notebook.stall_s,
        "keep_going": notebook.keep_going,
        **({} if notebook.background_errors else {"background_errors": False}),
        "parameters": notebook.parameters,
        "requires": notebook.requires.model_dump(mode="json"),
        **({"name": notebook.name} if notebook.name else {}),
    }
    limit_s = None
    if notebook.timeout_s is not None:  # rerun and restart need a fresh pass first
        limit_s = (len(notebook.passes) + ("fresh" not in notebook.passes)) * (notebook.timeout_s + PASS_EXTRA_S)
    step = Step(f"notebook {notebook.name or notebook.path}", "notebook", args, limit_s)
    return PlannedStep(step, check_notebook)


kind = RuntimeKind()
