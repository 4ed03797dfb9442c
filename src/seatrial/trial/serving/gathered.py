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
    model = cell.model
    assert isinstance(model, ServingTrial)
    paths = [cell.directory / substitute(path, cell) for path in model.cases]
    answers = cell.directory / substitute(model.answers, cell) if model.answers is not None else None
    shards = substitute(model.shards, cell, typed=True)
    return {"cases": msgspec.to_builtins(list(_planned(read_cases(paths, answers), model, int(shards))))}


def _planned(cases: tuple[Case, ...], model: ServingTrial, shards: int) -> Iterator[PlannedCase]:
    for case in cases:
        skipped = next((skip.why for skip in model.skip if skip.fits(case)), "")
        if case.single_shard_only and shards > 1:
            skipped = skipped or f"it is for one shard, and this server has {shards}"
        yield PlannedCase(case, skipped)


def planned_cases(cell: Cell) -> list[PlannedCase]:
    return convert(cell.gathered.get("cases", []), list[PlannedCase])


def asked_cases(cell: Cell) -> list[Case]:
    """Those that the driver asks, in order: their numbers are those of its questions."""
    return [planned.case for planned in planned_cases(cell) if not planned.skipped]
