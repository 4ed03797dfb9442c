"""The cases of a cell: read from their files once, before the plan is written, and from the plan ever after."""

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import convert
from seatrial.kinds.arrivals import read_trace
from seatrial.kinds.protocol import MISSING
from seatrial.kinds.serving.cases import read_cases
from seatrial.kinds.serving.config_rules import AXIS, cell_problems
from seatrial.kinds.serving.generation import Case
from seatrial.kinds.serving.model import ServingTrial
from seatrial.kinds.serving.tolerances import read_tolerance
from seatrial.suite import Cell

EMBEDDING_MODEL = "embedding model"
NO_EMBEDDING = (
    "a local model of embeddings needs sentence-transformers: `pip install 'seatrial[embedding]'`, or give the `url` "
    "of an endpoint that answers `/v1/embeddings`"
)


class PlannedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    case: Case
    skipped: str = ""  # why it is not asked in this cell


def gather_cases(cell: Cell) -> dict[str, Any]:
    """Raises SuiteError, with the place of everything that is wrong in the files."""
    model: ServingTrial = cell.spec
    paths = [cell.directory / path for path in model.cases]
    answers = cell.directory / model.answers if model.answers is not None else None
    unanswered = model.purpose != "compare"
    cases = _read(tuple(paths), answers, unanswered, tuple(map(_stamp, (*paths, *([answers] if answers else [])))))
    shards = int(model.shards)
    planned = []
    for case in cases:
        skipped = next((skip.why for skip in model.skip if skip.fits(case)), "")
        if case.single_shard_only and shards > 1:
            skipped = skipped or f"it is for one shard, and this server has {shards}"
        planned.append(PlannedCase(case, skipped))
    gathered: dict[str, Any] = {"cases": msgspec.to_builtins(planned)}
    if model.server.protocol == "tgis" and (wrong := cell_problems(cell)):
        gathered[MISSING] = [f"{cell.axes.get(AXIS, AXIS)}: {why}" for why in wrong]
    embeddings = model.compare.embeddings
    if embeddings is not None and embeddings.local is not None:
        folder = cell.directory.resolve() / embeddings.local
        gathered[EMBEDDING_MODEL] = str(folder) if os.path.isdir(folder) else embeddings.local
        if not find_spec("sentence_transformers"):
            gathered[MISSING] = [*gathered.get(MISSING, ()), NO_EMBEDDING]
    if model.compare.tolerances is not None and model.purpose == "compare":
        path = cell.directory / model.compare.tolerances
        gathered["tolerance"] = msgspec.to_builtins(read_tolerance(path, cell.benchmark))
    if model.load is not None and model.load.arrivals.trace is not None:
        gathered["trace"] = read_trace(cell.directory / model.load.arrivals.trace)
    return gathered


@lru_cache(maxsize=4)
def _read(
    paths: tuple[Path, ...], answers: Path | None, unanswered: bool, _stamps: tuple[tuple[int, int], ...]
) -> tuple[Case, ...]:
    """Cells have their files in common, mostly."""
    return read_cases(paths, answers, unanswered=unanswered)


def _stamp(path: Path) -> tuple[int, int]:
    """When it was written, and how large it is; nothing of one that is not there, which reading says."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


_converted: tuple[Any, list[PlannedCase]] = (None, [])  # of the cell that was last asked about


def planned_cases(cell: Cell) -> list[PlannedCase]:
    """Parts and judgement ask for them again and again, and there may be thousands."""
    global _converted
    cases = cell.gathered.get("cases", [])
    if _converted[0] is not cases:
        _converted = cases, convert(cases, list[PlannedCase])
    return _converted[1]


def asked_cases(cell: Cell) -> list[Case]:
    """Those that the driver asks, in order: their numbers are those of its questions."""
    return [planned.case for planned in planned_cases(cell) if not planned.skipped]
