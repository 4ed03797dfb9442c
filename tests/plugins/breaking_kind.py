"""A kind of trial with bugs: it breaks where its axis `where` says; in `findings` by returning none."""

from collections.abc import Mapping
from typing import Literal

from seatrial.job import Finding, Observation, PartSpec, Step, Verdict
from seatrial.kinds.job import make_job, only_part
from seatrial.kinds.protocol import Judgement
from seatrial.suite import Cell, Gathered, TrialModel


class BreakingTrial(TrialModel):
    kind: Literal["breaking"]
    command: str = "true"


class BreakingKind:
    name = "breaking"
    model = BreakingTrial

    def gather(self, cell: Cell) -> Gathered:
        return Gathered()

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        self._break(cell, "parts")
        return only_part(cell, make_job(cell, [Step("run", "command", {"command": cell.spec.command})], ()))

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        self._break(cell, "judge")
        if cell.axes.get("where") == "findings":
            return Judgement([])
        return Judgement([Finding("run", "nothing", Verdict.PASSED)])

    def _break(self, cell: Cell, here: str) -> None:
        if cell.axes.get("where") == here:
            raise ZeroDivisionError(f"a bug in {here}")


kind = BreakingKind()
