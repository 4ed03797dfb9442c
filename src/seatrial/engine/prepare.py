"""From a suite file to a run folder that is ready to run, and back from a run folder to its plan."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from seatrial import __version__, plugins
from seatrial.engine.secret import check_written
from seatrial.job import Bound, Hole
from seatrial.plan import Plan, expand
from seatrial.record import RunFolder, write_whole
from seatrial.suite import Cell, Suite, from_data, restore_chosen_target

VERSION = 1


class PlanChanged(Exception):
    """A run folder's plan cannot be made again as it was."""


class RunOptions(msgspec.Struct, frozen=True):
    """How a run goes about its plan; kept in the folder, so that attach goes on in the same way."""

    parallel: int | None = None
    retries: int | None = None
    max_failures: int | None = None
    max_cost: float | None = None
    commit: str = ""  # of what is tested


@dataclass(frozen=True)
class PreparedRun:
    """A plan and the folder that it runs in."""

    suite: Suite
    plan: Plan
    folder: RunFolder
    options: RunOptions


def create(suite: Suite, plan: Plan, runs: Path, options: RunOptions) -> PreparedRun:
    """A new run folder. Raises SecretError when a secret would stand in it."""
    check_written(suite)
    kinds = plugins.kinds()
    plan = plan.of(replace(cell, gathered=kinds[cell.model.kind].gather(cell)) for cell in plan.cells)
    folder = RunFolder.create(runs, suite.name)
    written = {
        **plan.as_json(),
        "version": VERSION,
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
    write_whole(folder.plan, msgspec.json.format(msgspec.json.encode(written), indent=1))
    return PreparedRun(suite, plan, folder, options)


def suite_of(folder: RunFolder) -> Suite:
    """The suite as it was when the run began. Raises SuiteError and DamagedRun."""
    written = folder.read_plan()["suite"]
    suite = from_data(written["data"], Path(written["directory"]), *plugins.models(), path=written["path"])
    if moved := written.get("moved"):
        suite = suite.on(restore_chosen_target(moved, suite.targets, plugins.models()[1]))
    return suite


def reopen(folder: RunFolder) -> PreparedRun:
    """The plan as it was, from what the folder holds: the suite file may have changed or be gone."""
    written = folder.read_plan()
    suite = suite_of(folder)
    hashes = [cell["hash"] for cell in written["cells"]]
    plan = expand(suite)
    found = {cell.hash: cell for cell in plan.cells}
    missing = [cell["id"] for cell in written["cells"] if cell["hash"] not in found]
    if missing:
        raise PlanChanged(
            f"{folder.run} was planned by Seatrial {written['seatrial']}; this version ({__version__}) plans "
            f"{len(missing)} of its cells otherwise ({missing[0]}); finish it with that version"
        )
    holes = tuple(msgspec.convert(written["holes"], list[Hole]))
    bounds = msgspec.convert(written.get("bounds", {}), dict[str, tuple[Bound, ...]])
    unbounded = msgspec.convert(written.get("unbounded", {}), dict[str, str])
    estimates = {cell["hash"]: cell.get("estimate_s") for cell in written["cells"]}
    gathered = written.get("gathered", {"cells": {}, "data": {}})
    cells = (
        replace(
            found[one],
            bounds=bounds.get(one, ()),
            unbounded=unbounded.get(one, ""),
            estimate_s=estimates[one],
            gathered=gathered["data"].get(gathered["cells"].get(one), {}),
        )
        for one in hashes
    )
    plan = replace(plan.of(cells), holes=holes)
    return PreparedRun(suite, plan, folder, msgspec.convert(written["options"], RunOptions))


def _gathered(cells: Iterable[Cell]) -> dict[str, Any]:
    """What the kinds read for each cell; what many cells share is written once."""
    written: dict[str, Any] = {"cells": {}, "data": {}}
    for cell in cells:
        if cell.gathered:
            key = hashlib.sha256(msgspec.json.encode(cell.gathered)).hexdigest()[:16]
            written["cells"][cell.hash] = key
            written["data"][key] = cell.gathered
    return written
