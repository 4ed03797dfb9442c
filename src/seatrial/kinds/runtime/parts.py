"""The steps of a runtime cell, each with its check."""

from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from seatrial.checks import check_run
from seatrial.job import Step
from seatrial.kinds.command import command_steps
from seatrial.kinds.job import PlannedStep, plan_workspace
from seatrial.kinds.runtime.judge import Declared, check_command, check_facts, check_import
from seatrial.kinds.runtime.model import Facts, Import, RuntimeGathered, RuntimeTrial
from seatrial.kinds.runtime.notebook import check_notebook
from seatrial.suite import Cell, Machine, Notebook

# Default limits of steps, s.
COMMAND_S = 30.0
IMPORT_S = 900.0
FACTS_S = 300.0
PASS_EXTRA_S = 150.0  # for starting and stopping a kernel, added to the limit of a pass


def plan_steps(cell: Cell) -> tuple[PlannedStep, ...]:
    """The steps in the order in which they run. The workspace is first, because the others may need its files."""
    model: RuntimeTrial = cell.spec
    notebooks = notebooks_of(cell)
    return (
        *plan_workspace(cell, cell.runtime.workspace if cell.runtime else None),
        *_facts(cell, model, bool(notebooks)),
        *(_command(command) for command in model.commands),
        *(_import(one) for one in model.import_checks),
        *_runs(model),
        *(_notebook(notebook) for notebook in notebooks),
    )


def _facts(cell: Cell, model: RuntimeTrial, has_notebooks: bool) -> Iterator[PlannedStep]:
    """By default, facts are left out only if the trial has only `run` and the machine declares nothing."""
    machine = cell.machine
    declares = any(part is not None for part in (machine.cpu, machine.memory_bytes, machine.gpu))
    wanted = model.facts
    if wanted is None:
        wanted = bool(declares or model.commands or model.imports or has_notebooks)
    if wanted is False:
        return
    declared = declared_of(machine, wanted if isinstance(wanted, Facts) else Facts(), model.facts is not None)
    yield PlannedStep(
        Step("facts", "facts", {}, FACTS_S), lambda observed, ended: check_facts(observed, ended, declared)
    )


def declared_of(machine: Machine, wanted: Facts, asked: bool = True) -> Declared:
    """The values to check. A machine without `gpu` may have some; one with 0 may not."""
    return Declared(
        cpu=machine.cpu if wanted.cpu else None,
        memory_bytes=machine.memory_bytes if wanted.memory else None,
        gpu=machine.resources().gpu if wanted.gpu and machine.gpu is not None else None,
        same_python=wanted.python,
        asked=asked,
    )


def _command(command: str) -> PlannedStep:
    step = Step(f"command {command}", "which", {"command": command}, COMMAND_S)
    return PlannedStep(step, lambda observed, ended: [check_command(observed, ended)])


def _import(one: Import) -> PlannedStep:
    step = Step(f"import {one.module}", "import", {"module": one.module}, IMPORT_S)
    return PlannedStep(step, lambda observed, ended: [check_import(observed, ended, one.version, one.empty)])


def _runs(model: RuntimeTrial) -> Iterator[PlannedStep]:
    for one in model.run_checks:
        ran, *reads = command_steps(one)
        yield PlannedStep(ran, partial(check_run, expected=one))
        yield from (PlannedStep(step, lambda observed, ended: []) for step in reads)  # checked with the command


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
