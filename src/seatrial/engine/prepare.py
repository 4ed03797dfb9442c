"""Creates the run folder of a plan, and reads a plan back from a run folder."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from seatrial import __version__, plugins
from seatrial.engine.secrets import Secrets, check_written
from seatrial.job import JobSpec, Part, PartSpec, Unreadable
from seatrial.job.plan import PlanFile, RunOptions
from seatrial.kinds.protocol import HasContents
from seatrial.plan import Plan, PlanError
from seatrial.plan.file import read_cells, read_suite, to_file
from seatrial.record import DamagedRun, RecordError, RunFolder
from seatrial.record.remote import check_backend
from seatrial.suite import Cell, Problem, RunSuite, Suite, SuiteError

_T = TypeVar("_T")
COMMIT_VARIABLES = ("SEATRIAL_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT")
GIT_S = 10.0


@dataclass(frozen=True)
class PreparedRun:
    """A plan and the folder that it runs in."""

    suite: RunSuite
    plan: Plan
    folder: RunFolder
    options: RunOptions
    _parts: dict[str, tuple[PartSpec, ...]] = field(default_factory=dict, repr=False)  # by the hash of the cell

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        """The parts of each attempt at the cell; computed once per process, unless they were released."""
        if cell.hash not in self._parts:
            self._parts[cell.hash] = plugins.kinds()[cell.kind].parts(cell)
        return self._parts[cell.hash]

    def release(self, cell: Cell) -> None:
        """Frees the parts of a cell that is over."""
        self._parts.pop(cell.hash, None)

    def jobs(self) -> Iterator[JobSpec]:
        """The jobs of all cells. Skips a cell if its kind raises; the error is reported when the cell runs."""
        for cell in self.plan.cells:
            with contextlib.suppress(Exception):
                yield from [part.job for part in self.parts(cell)]


def create(suite: Suite, plan: Plan, runs: Path, options: RunOptions) -> PreparedRun:
    """Creates a run folder. Raises RunRefused if it would contain a secret or one is missing, SuiteError if a cell
    lacks a file."""
    check_written(suite)
    _check_storage(plan)
    cells, parts = _gathered_for(plan.cells)
    Secrets(suite, (part.job for of_cell in parts.values() for part in of_cell))  # before there is a folder to resume
    plan = plan.of(cells)
    folder = RunFolder.create(runs, suite.name)
    folder.write_plan(to_file(plan, suite, folder.run, options))
    return PreparedRun(suite, plan, folder, options, parts)


def example_parts(cells: Iterable[Cell]) -> list[tuple[Cell, Part]]:
    """The parts of a first attempt at each cell, in a run called `run`. Raises SuiteError like `create`."""
    found, parts = _gathered_for(cells)
    return [(cell, one.for_attempt("run", cell.hash, 1)) for cell in found for one in parts.get(cell.hash, ())]


def with_contents(plan: Plan) -> Plan:
    """The plan with the contents of its cells, such as cases, read from their files. Raises SuiteError with all errors
    in them, and for storage that cannot be read, like `create`."""
    _check_storage(plan)
    kinds = {name for name in {cell.kind for cell in plan.cells} if isinstance(plugins.kinds()[name], HasContents)}
    found = {cell.id: cell for cell in _gathered_for(cell for cell in plan.cells if cell.kind in kinds)[0]}
    return plan.of(found.get(cell.id, cell) for cell in plan.cells)


def _check_storage(plan: Plan) -> None:
    """Raises SuiteError for storage that this machine has no package for: it would show only after the training."""
    problems = []
    first = {url: cell.id for cell in reversed(plan.cells) for url in cell.spec.storage()}
    for url, cell_id in first.items():
        try:
            check_backend(url)
        except RecordError as error:
            problems.append(Problem(str(error), path=cell_id))
    if problems:
        raise SuiteError(problems)


def _gathered_for(cells: Iterable[Cell]) -> tuple[list[Cell], dict[str, tuple[PartSpec, ...]]]:
    """The cells with what their kinds read on this machine, and their parts by hash. Raises SuiteError with all errors:
    what a kind could not read, and each missing input file once, with the first cell that needs it. Paths without a
    placeholder were already checked when the suite was loaded."""
    found, all_parts, problems, missing = list[Cell](), dict[str, tuple[PartSpec, ...]](), list[Problem](), set[str]()
    for cell in cells:
        kind = plugins.kinds()[cell.kind]
        try:
            cell = replace(cell, gathered=kind.gather(cell))
        except SuiteError as error:
            problems += error.problems
            continue
        cell = replace(cell, contents=kind.contents(cell)) if isinstance(kind, HasContents) else cell
        found.append(cell)
        try:
            parts = all_parts[cell.hash] = kind.parts(cell)
        except Exception:  # noqa: BLE001 - a bug of the kind, which is reported when the cell runs
            continue
        sources = {given.source for part in parts for given in part.job.inputs if given.required}
        lacking = [f"input not found: {source}" for source in sorted(sources) if not Path(source).exists()]
        for why in (*cell.gathered.missing, *lacking):
            if why not in missing:
                missing.add(why)
                problems.append(Problem(why, path=cell.id))
    if problems:
        raise SuiteError(problems)
    return found, all_parts


def suite_of(folder: RunFolder) -> RunSuite:
    """The suite of a run. Raises DamagedRun, and PlanError for a run of another version."""
    return _read(folder, lambda file: read_suite(file, plugins.models()[1]))


def reopen(folder: RunFolder) -> PreparedRun:
    """The run as planned, without the suite file, which may have changed. Raises DamagedRun, and PlanError for a run of
    another version."""
    kinds, targets = plugins.models()
    return _read(
        folder, lambda file: PreparedRun(read_suite(file, targets), read_cells(file, kinds), folder, file.options)
    )


def _read(folder: RunFolder, read: Callable[[PlanFile], _T]) -> _T:
    file = folder.read_plan()
    try:
        return read(file)
    except (ValueError, KeyError, TypeError, Unreadable) as error:
        if file.seatrial != __version__:
            why = f"{folder.run} was planned by Seatrial {file.seatrial}; finish it with that version"
            raise PlanError(f"{why} ({error})") from error
        raise DamagedRun(folder.plan, str(error)) from error


def commit_of(directory: Path) -> str:
    """The commit under test: from the CI environment, else of the suite's checkout, with `+` if it has local changes;
    empty if unknown."""
    value = next((os.environ[name] for name in COMMIT_VARIABLES if os.environ.get(name)), "")
    if value:
        return value
    commit = _git(directory, "rev-parse", "HEAD")
    return f"{commit}+" if commit and _git(directory, "status", "--porcelain", "--untracked-files=no") else commit


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    try:
        value = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return value.stdout.decode("utf-8", "replace").strip() if value.returncode == 0 else ""
