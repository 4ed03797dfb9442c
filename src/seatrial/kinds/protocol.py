"""The interface of a kind of trial: its suite model, the parts of an attempt, and the checks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from seatrial.job import AnyChart, Contents, Finding, Observation, PartSpec
from seatrial.suite import Cell, Gathered, TrialModel


class Judgement(msgspec.Struct, frozen=True):
    """The findings of all checks, metrics by name for the history, and charts for reports. `idle`: why nothing that the
    trial asks for was executed; without failures, the cell is then skipped, not passed."""

    findings: list[Finding]
    metrics: dict[str, Any] = {}
    charts: list[AnyChart] = []
    idle: str = ""


class Kind(Protocol):
    """The object that an entry point of `seatrial.kinds` names."""

    name: str
    model: type[TrialModel]

    def gather(self, cell: Cell) -> Gathered:
        """Reads what the kind needs from this machine. Called once, before the plan is written. The plan keeps the
        result, and the cell has it as `cell.gathered`. Anything `missing` prevents the run."""

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        """The parts of each attempt, the one under test first. Called once per cell. Pure."""

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Checks the observations of all parts, by part name; none is missing, however the attempt ended. Pure."""


@runtime_checkable
class ChecksFiles(Protocol):
    """A kind that can check the result file of another tool."""

    def judge_file(self, cell: Cell, path: Path) -> Judgement:
        """Applies the checks of the cell to the file. Raises SeatrialError."""


@runtime_checkable
class HasContents(Protocol):
    """A kind whose cells contain things that a plan counts, such as cases."""

    def contents(self, cell: Cell) -> Contents:
        """The contents of a cell after `gather`. Pure."""
