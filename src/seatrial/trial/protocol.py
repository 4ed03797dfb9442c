"""What a kind of trial is: the model that users write, the job that a cell needs, and the checks that judge it."""

from typing import Any, Protocol

import msgspec

from seatrial.job import Finding, Job, Observation
from seatrial.suite import Cell, TrialModel


class Judgement(msgspec.Struct, frozen=True):
    """All findings, every check's; and figures by name, for the history."""

    findings: list[Finding]
    metrics: dict[str, Any] = {}


class Kind(Protocol):
    """What an entry point of `seatrial.kinds` names. Both methods are pure."""

    name: str
    model: type[TrialModel]

    def job(self, cell: Cell, run: str, attempt: int) -> Job: ...

    def judge(self, cell: Cell, observation: Observation) -> Judgement: ...
