"""The cases of a cell: read from their files once, before the plan is written, and from the plan ever after."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import Unreadable, convert, read_regular
from seatrial.job.generation import Case
from seatrial.suite import Cell, Problem, SourceMark, SuiteError, substitute
from seatrial.suite.cases import read_cases
from seatrial.trial.protocol import MISSING
from seatrial.trial.serving.config_rules import AXIS, cell_problems
from seatrial.trial.serving.model import ServingTrial
from seatrial.trial.serving.tolerances import read_tolerance


class PlannedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    case: Case
    skipped: str = ""  # why it is not asked in this cell


def gather_cases(cell: Cell) -> dict[str, Any]:
    """Raises SuiteError, with the place of everything that is wrong in the files."""
    model = cell.model
    assert isinstance(model, ServingTrial)
    paths = [cell.directory / substitute(path, cell) for path in model.cases]
    answers = cell.directory / substitute(model.answers, cell) if model.answers is not None else None
    cases = read_cases(paths, answers, unanswered=model.purpose != "compare")
    shards = int(substitute(model.shards, cell, typed=True))
    gathered: dict[str, Any] = {"cases": msgspec.to_builtins(list(_planned(cases, model, shards)))}
    if model.server.protocol == "tgis" and (wrong := cell_problems(cell)):
        gathered[MISSING] = [f"{cell.axes.get(AXIS, AXIS)}: {why}" for why in wrong]
    if model.compare.tolerances is not None and model.purpose == "compare":
        path = cell.directory / substitute(model.compare.tolerances, cell)
        gathered["tolerance"] = msgspec.to_builtins(read_tolerance(path, cell.benchmark))
    if model.load is not None and model.load.arrivals.trace is not None:
        gathered["trace"] = read_trace(cell.directory / substitute(model.load.arrivals.trace, cell))
    return gathered


def read_trace(path: Path) -> list[float]:
    """When requests begin, in seconds from the first: the first field of each line; a first line of words is a head."""
    times: list[float] = []
    try:
        lines = read_regular(path, follow=True).decode("utf-8").splitlines()
    except (OSError, Unreadable, UnicodeDecodeError) as error:
        raise SuiteError([Problem(f"the trace cannot be read: {error}", _mark(path, 1))]) from error
    for number, line in enumerate(lines, 1):
        field = line.partition(",")[0].strip()
        try:
            times.append(float(field))
        except ValueError:
            if field and number > 1:
                problem = f"{field!r} is no time; each line begins with seconds"
                raise SuiteError([Problem(problem, _mark(path, number))]) from None
    if not times:
        raise SuiteError([Problem("the trace has no times", _mark(path, 1))])
    return [at_s - min(times) for at_s in sorted(times)]


def _mark(path: Path, line: int) -> SourceMark:
    return SourceMark(str(path), line, 1)


def trace_of(cell: Cell) -> tuple[float, ...]:
    return tuple(cell.gathered.get("trace", ()))


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
