"""Reads the cases of a cell before the plan is written; later they come from the plan."""

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from seatrial.extras import install_command
from seatrial.kinds.arrivals_model import read_trace
from seatrial.kinds.serving.cases import read_cases
from seatrial.kinds.serving.config_rules import AXIS, cell_problems
from seatrial.kinds.serving.generation import Case
from seatrial.kinds.serving.model import PlannedCase, ServingGathered, ServingTrial
from seatrial.kinds.serving.tolerance_file import read_tolerance
from seatrial.suite import Cell


def gather_cases(cell: Cell) -> ServingGathered:
    """Raises SuiteError with every problem in the files and its position."""
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
            skipped = skipped or f"needs a single shard; this server has {shards}"
        planned.append(PlannedCase(case, skipped))
    missing = []
    if model.server.protocol == "tgis":
        missing = [f"{cell.axes.get(AXIS, AXIS)}: {why}" for why in cell_problems(cell)]
    embedding_model, embeddings = "", model.compare.embeddings
    if embeddings is not None and embeddings.local is not None:
        folder = cell.directory.resolve() / embeddings.local
        embedding_model = str(folder) if os.path.isdir(folder) else embeddings.local
        if not find_spec("sentence_transformers"):
            command = install_command("embedding")
            missing.append(f"`embeddings.local` needs sentence-transformers; run `{command}`, or use `embeddings.url`")
    tolerance = None
    if model.compare.tolerances is not None and model.purpose == "compare":
        tolerance = read_tolerance(cell.directory / model.compare.tolerances, cell.benchmark)
    trace = model.load.arrivals.trace if model.load is not None and model.load.arrivals is not None else None
    times = read_trace(cell.directory / trace) if trace is not None else ()
    return ServingGathered(missing, tuple(planned), embedding_model, tolerance, tuple(times))


@lru_cache(maxsize=4)
def _read(paths: tuple[Path, ...], answers: Path | None, unanswered: bool, _stamps: object) -> tuple[Case, ...]:
    """Cached: most cells share their files."""
    return read_cases(paths, answers, unanswered=unanswered)


def _stamp(path: Path) -> tuple[int, int]:
    """Modification time and size; zeros for a missing file, which reading reports."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
