"""From a suite file to a run folder that is ready to run, and back from a run folder to its plan."""

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from seatrial import __version__, plugins
from seatrial.engine.secrets import check_written
from seatrial.job import PartSpec, Unreadable
from seatrial.job.plan import PlanFile, RunOptions
from seatrial.kinds.protocol import MISSING, HasContents
from seatrial.plan import Plan, PlanError
from seatrial.plan.file import read_cells, read_suite, to_file
from seatrial.record import DamagedRun, RunFolder
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
        """Of each attempt at the cell; made once."""
        if cell.hash not in self._parts:
            self._parts[cell.hash] = plugins.kinds()[cell.kind].parts(cell)
        return self._parts[cell.hash]


def create(suite: Suite, plan: Plan, runs: Path, options: RunOptions) -> PreparedRun:
    """A new run folder. Raises RunRefused when a secret would stand in it, SuiteError when a cell lacks a file."""
    check_written(suite)
    plan = plan.of(_gathered_for(plan.cells))
    folder = RunFolder.create(runs, suite.name)
    folder.write_plan(to_file(plan, suite, folder.run, options))
    return PreparedRun(suite, plan, folder, options)


def with_contents(plan: Plan) -> Plan:
    """The plan with what its cells consist of, such as cases, read from their files. Raises SuiteError, with all that
    is wrong with these, as `create` does."""
    kinds = plugins.kinds()
    listed = [cell for cell in plan.cells if isinstance(kinds[cell.kind], HasContents)]
    found = {cell.id: cell for cell in _gathered_for(listed)}
    return plan.of(found.get(cell.id, cell) for cell in plan.cells)


def _gathered_for(cells: Iterable[Cell]) -> list[Cell]:
    """The cells with what their kinds read of this machine. Raises SuiteError, with what is wrong for any of them."""
    kinds, found, problems = plugins.kinds(), list[Cell](), list[Problem]()
    for cell in cells:
        kind = kinds[cell.kind]
        try:
            read = replace(cell, gathered=kind.gather(cell))
        except SuiteError as error:
            problems += error.problems
            continue
        found.append(replace(read, contents=kind.contents(read)) if isinstance(kind, HasContents) else read)
    problems += _missing(found)
    if problems:
        raise SuiteError(problems)
    return found


def suite_of(folder: RunFolder) -> RunSuite:
    """Where the run is. Raises DamagedRun, and PlanError for a run of another version."""
    return _read(folder, lambda file: read_suite(file, plugins.models()[1]))


def _missing(cells: Iterable[Cell]) -> list[Problem]:
    """What jobs would get from here and is not here, each thing once, with the first cell that needs it. What the suite
    names without a placeholder was found, or not, when it was loaded."""
    problems: dict[str, Problem] = {}
    for cell in cells:
        try:
            parts = plugins.kinds()[cell.kind].parts(cell)
        except Exception:  # noqa: BLE001 - a bug of the kind, which is reported for the cell when it is run
            continue
        sources = {given.source for part in parts for given in part.job.inputs if given.required}
        missing = [f"there is no {source}" for source in sorted(sources) if not Path(source).exists()]
        for why in (*cell.gathered.get(MISSING, ()), *missing):
            problems.setdefault(why, Problem(why, path=cell.id))
    return list(problems.values())


def reopen(folder: RunFolder) -> PreparedRun:
    """The run as it was planned: the suite file may have changed or be gone. Raises DamagedRun, and PlanError for a
    run of another version."""
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
    """Which commit a run tests: as the CI says, else of the checkout that the suite is in; empty where neither does.
    A checkout with changes of its own has a `+` behind its commit."""
    value = next((os.environ[name] for name in COMMIT_VARIABLES if os.environ.get(name)), "")
    if value:
        return value
    commit = _git(directory, "rev-parse", "HEAD")
    return f"{commit}+" if commit and _git(directory, "status", "--porcelain", "--untracked-files=no") else commit


def _git(directory: Path, *arguments: str) -> str:
    try:
        value = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return value.stdout.decode("utf-8", "replace").strip() if value.returncode == 0 else ""
