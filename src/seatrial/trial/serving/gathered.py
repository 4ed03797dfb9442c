"""The cases of a cell: read from their files once, before the plan is written, and from the plan ever after."""

from collections.abc import Iterator
from typing import Any

import msgspec

from seatrial.job import convert
from seatrial.job.generation import Case
from seatrial.suite import Cell, substitute
from seatrial.suite.cases import read_cases
from seatrial.trial.serving.model import ServingTrial


class PlannedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    case: Case
    skipped: str = ""  # why it is not asked in this cell


def gather_cases(cell: Cell) -> dict[str, Any]:
    """Raises SuiteError, with the place of everything that is wrong in the files."""
    assert isinstance(cell.model, ServingTrial)
    paths = [cell.directory / substitute(path, cell) for path in cell.model.cases]
    return {"cases": msgspec.to_builtins(list(_planned(read_cases(paths))))}


def _planned(cases: tuple[Case, ...]) -> Iterator[PlannedCase]:
    for case in cases:
        yield PlannedCase(case)


def planned_cases(cell: Cell) -> list[PlannedCase]:
    return convert(cell.gathered.get("cases", []), list[PlannedCase])


def asked_cases(cell: Cell) -> list[Case]:
    """Those that the driver asks, in order: their numbers are those of its questions."""
    return [planned.case for planned in planned_cases(cell) if not planned.skipped]
