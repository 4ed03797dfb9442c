"""Reads the cases of a cell before the plan is written; later they come from the plan."""

import contextlib
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from seatrial.extras import install_command
from seatrial.kinds.arrivals_model import read_trace
from seatrial.kinds.serving.cases import read_cases
from seatrial.kinds.serving.cases.read import answers_beside
from seatrial.kinds.serving.config_rules import AXIS, cell_problems
from seatrial.kinds.serving.model import PlannedCase, ServingGathered, ServingTrial
from seatrial.kinds.serving.prompts import read_prompts
from seatrial.kinds.serving.request import Case
from seatrial.kinds.serving.tolerance_file import read_tolerance
from seatrial.suite import Cell, SuiteError
from seatrial.suite.yaml.problem import Problem, SourceMark

_MOST_PROBLEMS = 20


def gather_cases(cell: Cell) -> ServingGathered:
    """Raises SuiteError with every problem in the files and its position."""
    model: ServingTrial = cell.spec
    paths = [cell.directory / path for path in model.cases]
    answers = cell.directory / model.answers if model.answers is not None else None
    unanswered = model.purpose != "compare"
    files = (*paths, *(answers_beside(path) for path in paths), *([answers] if answers else []))
    cases = _read(tuple(paths), answers, unanswered, tuple(map(_stamp, files)))
    shards = int(model.shards)
    planned: list[PlannedCase] = []
    for case in cases:
        skipped = next((skip.why for skip in model.skip if skip.fits(case)), "")
        if case.single_shard_only and shards > 1:
            skipped = skipped or f"needs a single shard; this server has {shards}"
        if case.request.turn and planned[-1].skipped:
            skipped = skipped or f"an earlier turn is skipped: {planned[-1].skipped}"
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
    if model.compare.tolerances is not None and model.purpose != "calibrate":
        # Answers may be recorded before tolerances are calibrated.
        with contextlib.suppress(*([SuiteError] if model.purpose == "record" else [])):
            tolerance = read_tolerance(cell.directory / model.compare.tolerances, cell.benchmark)
    trace = model.load.arrivals.trace if model.load is not None and model.load.arrivals is not None else None
    times = read_trace(cell.directory / trace) if trace is not None else ()
    if model.load is not None and model.load.prompts is not None:
        path = cell.directory / model.load.prompts
        _check_prompts(path, _stamp(path))
    if model.load is not None and model.load.lengths and (name := model.load.lengths.tokenizer):
        missing += _tokenizer_problems(cell.directory / name)
    return ServingGathered(missing, tuple(planned), embedding_model, tolerance, tuple(times))


@lru_cache(maxsize=4)
def _read(paths: tuple[Path, ...], answers: Path | None, unanswered: bool, _stamps: object) -> tuple[Case, ...]:
    """Cached: most cells share their files."""
    return read_cases(paths, answers, unanswered=unanswered)


@lru_cache(maxsize=4)
def _check_prompts(path: Path, _stamp: object) -> None:
    """Raises SuiteError with the lines of the first problems."""
    number, problems = 0, []
    try:
        for line, prompt in read_prompts(path):
            number += 1
            if isinstance(prompt, str):
                problems.append(Problem(prompt, SourceMark(str(path), line, 1)))
                if len(problems) == _MOST_PROBLEMS:
                    break
    except OSError as error:
        problems.append(Problem(f"cannot read the prompts: {error.strerror}", SourceMark(str(path), 1, 1)))
    if not number and not problems:
        problems.append(Problem("the file has no prompts", SourceMark(str(path), 1, 1)))
    if problems:
        raise SuiteError(problems)


def _tokenizer_problems(path: Path) -> list[str]:
    if not find_spec("tokenizers"):
        return [f"`lengths.tokenizer` needs the package tokenizers; run `{install_command('tokenizers')}`"]
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises no other class
        return [f"`lengths.tokenizer`: cannot read {path}: {error}"]
    return []


def _stamp(path: Path) -> tuple[int, int]:
    """Modification time and size; zeros for a missing file, which reading reports."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
