"""A step of a job together with the check that judges it, and the one that most kinds have: cloning a workspace."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seatrial.check import check_workspace
from seatrial.job import Exit, Finding, ObservedStep, Step
from seatrial.suite import Cell, Workspace, substitute

WORKSPACE_S = 3600.0


@dataclass(frozen=True)
class PlannedStep:
    step: Step
    check: Callable[[ObservedStep, Exit], list[Finding]]


def plan_workspace(cell: Cell, workspace: Workspace | None) -> Iterator[PlannedStep]:
    """A clone where the workspace is one; it comes first, because the other steps may need what is in it."""
    if workspace and workspace.git:
        args = {"git": substitute(workspace.git, cell), "ref": substitute(workspace.ref, cell)}
        step = Step("workspace", "workspace", args, WORKSPACE_S)
        yield PlannedStep(step, lambda observed, ended: [check_workspace(observed, ended)])
