"""What a kind of trial is: the model that users write, the parts that a cell needs, and the checks that judge them."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from seatrial.job import AnyChart, Contents, Finding, Observation, PartSpec
from seatrial.suite import Cell, Gathered, TrialModel


class Judgement(msgspec.Struct, frozen=True):
    """All findings, every check's; metrics by name, for the history; and data to show beside them."""

    findings: list[Finding]
    metrics: dict[str, Any] = {}
    charts: list[AnyChart] = []


class Kind(Protocol):
    """What an entry point of `seatrial.kinds` names."""

    name: str
    model: type[TrialModel]

    def gather(self, cell: Cell) -> Gathered:
        """What the kind needs to read of this machine. Called once, before the plan is written:
        the plan keeps it, and the cell has it from then on as `cell.gathered`. What is `missing` refuses the run."""

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        """The parts of each attempt, the one under test first. Called once for a cell. Pure."""

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """What was observed of each part, by its name; all are there, whatever became of the attempt. Pure."""


@runtime_checkable
class HasContents(Protocol):
    """What a kind has besides whose cells consist of things that a plan counts, such as cases."""

    def contents(self, cell: Cell) -> Contents:
        """Of a cell for which was gathered. Pure."""
