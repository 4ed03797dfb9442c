"""From a suite file to a run folder that is ready to run, and back from a run folder to its plan."""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from seatrial import __version__, plugins
from seatrial.engine.secrets import check_written
from seatrial.job import Bound, Hole
from seatrial.kinds.protocol import MISSING, HasContents
from seatrial.plan import Plan, PlanError, expand
from seatrial.record import DamagedRun, RunFolder
from seatrial.suite import Cell, Problem, Suite, SuiteError, from_data, restore_chosen_target

_VERSION = 1
COMMIT_VARIABLES = ("SEATRIAL_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT")
GIT_S = 10.0


class PlanChanged(Exception):
    """A run folder's plan cannot be made again as it was."""


class RunOptions(msgspec.Struct, frozen=True):
    """How a run goes about its plan; kept in the folder, so that attach goes on in the same way."""

    parallel: int | None = None
    retries: int | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    commit: str = ""  # of what is tested
    out: str = ""  # address that the folder is copied to when the run is over
    strict: bool = False  # figures without bounds, and regressions inside them, are no pass
    against: str = ""  # the run that news are relative to; empty: each cell's last run


class _WrittenCell(msgspec.Struct, frozen=True):
    id: str
    hash: str
    estimate_s: float | None = None


class _WrittenTarget(msgspec.Struct, frozen=True):
    text: str
    name: str
    entry: dict[str, Any] | None = None


class _WrittenSuite(msgspec.Struct, frozen=True):
    data: dict[str, Any]
    directory: str
    path: str | None = None
    moved: _WrittenTarget | None = None


class _PlannedSuite(msgspec.Struct, frozen=True):
    suite: _WrittenSuite


class _Gathered(msgspec.Struct, frozen=True):
    """What the kinds read for each cell; what many cells share is written once."""

    cells: dict[str, str] = {}
    data: dict[str, dict[str, Any]] = {}


class _WrittenPlan(msgspec.Struct, frozen=True):
    """What is read again of `plan.json`."""

    seatrial: str
    cells: list[_WrittenCell]
    holes: list[Hole]
    options: RunOptions
    suite: _WrittenSuite
    bounds: dict[str, tuple[Bound, ...]] = {}
    unbounded: dict[str, str] = {}
    gathered: _Gathered = _Gathered()


@dataclass(frozen=True)
class PreparedRun:
    """A plan and the folder that it runs in."""

    suite: Suite
    plan: Plan
    folder: RunFolder
    options: RunOptions


def create(suite: Suite, plan: Plan, runs: Path, options: RunOptions) -> PreparedRun:
    """A new run folder. Raises SecretError when a secret would stand in it, SuiteError when a cell lacks a file."""
    check_written(suite)
    plan = plan.of(_gathered_for(plan.cells))
    folder = RunFolder.create(runs, suite.name)
    written = {
        **plan.as_json(),
        "version": _VERSION,
        "seatrial": __version__,
        "run": folder.run,
        "options": options,
        "bounds": {cell.hash: cell.bounds for cell in plan.cells if cell.bounds},
        "unbounded": {cell.hash: cell.unbounded for cell in plan.cells if cell.unbounded},
        "gathered": _gathered(plan.cells),
        "suite": {
            "name": suite.name,
            "path": str(suite.path) if suite.path else None,
            "directory": str(suite.directory.resolve()),
            "data": suite.data,
            "moved": suite.moved.written() if suite.moved else None,
        },
    }
    folder.write_plan(written)
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


def suite_of(folder: RunFolder) -> Suite:
    """The suite as it was when the run began. Raises SuiteError and DamagedRun."""
    return _suite(folder.read_plan(_PlannedSuite).suite)


def _suite(written: _WrittenSuite) -> Suite:
    suite = from_data(written.data, Path(written.directory), *plugins.models(), path=written.path)
    if written.moved:
        suite = suite.on(
            restore_chosen_target(msgspec.structs.asdict(written.moved), suite.targets, plugins.models()[1])
        )
    return suite


def _missing(cells: Iterable[Cell]) -> list[Problem]:
    """What jobs would get from here and is not here, each thing once, with the first cell that needs it. What the suite
    names without a placeholder was found, or not, when it was loaded."""
    problems: dict[str, Problem] = {}
    for cell in cells:
        try:
            parts = plugins.kinds()[cell.kind].parts(cell, "none", 1)
        except Exception:  # noqa: BLE001 - a bug of the kind, which is reported for the cell when it is run
            continue
        sources = {given.source for part in parts for given in part.job.inputs if given.required}
        missing = [f"there is no {source}" for source in sorted(sources) if not Path(source).exists()]
        for why in (*cell.gathered.get(MISSING, ()), *missing):
            problems.setdefault(why, Problem(why, path=cell.id))
    return list(problems.values())


def reopen(folder: RunFolder) -> PreparedRun:
    """The plan as it was, from what the folder holds: the suite file may have changed or be gone. Raises DamagedRun,
    and PlanChanged when it was written by another version."""
    written = folder.read_plan(_WrittenPlan)
    try:
        suite = _suite(written.suite)
        plan = expand(suite)
    except (SuiteError, PlanError) as error:
        raise _not_as_planned(folder, written, str(error)) from error
    found = {cell.hash: cell for cell in plan.cells}
    missing = [cell.id for cell in written.cells if cell.hash not in found]
    if missing:
        why = f"plans {len(missing)} of its cells otherwise ({missing[0]})"
        raise _not_as_planned(folder, written, f"this version ({__version__}) {why}")
    gathered = written.gathered
    cells = (
        replace(
            found[one.hash],
            bounds=written.bounds.get(one.hash, ()),
            unbounded=written.unbounded.get(one.hash, ""),
            estimate_s=one.estimate_s,
            gathered=gathered.data.get(gathered.cells.get(one.hash, ""), {}),
        )
        for one in written.cells
    )
    return PreparedRun(suite, replace(plan.of(cells), holes=tuple(written.holes)), folder, written.options)


def _not_as_planned(folder: RunFolder, written: _WrittenPlan, why: str) -> Exception:
    """The version that wrote it would read it as it was meant."""
    if written.seatrial == __version__:
        return DamagedRun(folder.plan, why)
    return PlanChanged(f"{folder.run} was planned by Seatrial {written.seatrial}: {why}; finish it with that version")


def _gathered(cells: Iterable[Cell]) -> _Gathered:
    written = _Gathered({}, {})
    for cell in cells:
        if cell.gathered:
            key = hashlib.sha256(msgspec.json.encode(cell.gathered)).hexdigest()[:16]
            written.cells[cell.hash] = key
            written.data[key] = cell.gathered
    return written


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
