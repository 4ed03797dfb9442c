"""What `seatrial baseline recenter` would change for one figure, and the command; nothing is changed here."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.web.site import ProposedChange

if TYPE_CHECKING:
    from seatrial.baseline.edit import FileChange
    from seatrial.plan import Plan
    from seatrial.record.history import History
    from seatrial.suite import Suite

REASON = "why"  # stands for what a person writes
MOST_SELECTED = 4


class RecenterPreview:
    def __init__(self, runs: Path, history: "History", options: tuple[str, ...] = ()) -> None:
        self._runs = runs
        self._history = history
        self._options = options  # of the command, so that it is about the same runs

    def __call__(self, suite_path: str, benchmark: str, metric: str) -> ProposedChange | None:
        """None for a figure that no baseline file has an entry of, and for a suite that is not here."""
        from seatrial.baseline.edit import CannotWrite, Refused
        from seatrial.baseline.selection import NoBaseline
        from seatrial.plan import PlanError
        from seatrial.suite import SuiteError
        from seatrial.suite.yaml.document import CannotEdit

        path = Path(suite_path)
        if not suite_path or not path.is_file():
            return None
        command = self._command(path, [], metric)
        try:
            suite, plan = _planned(path)
            ids = [cell.id for cell in plan.cells if cell.benchmark == benchmark]
            command = self._command(path, ids, metric)
            changed = self._changed(suite, plan, benchmark, metric)
        except NoBaseline:
            return None
        except (SuiteError, PlanError, Refused, CannotEdit, CannotWrite) as error:
            return ProposedChange(command, refused=str(error))
        return ProposedChange(command, changed.diff) if changed is not None else None

    def _changed(self, suite: "Suite", plan: "Plan", benchmark: str, metric: str) -> "FileChange | None":
        from seatrial.baseline import new_bounds, selection
        from seatrial.baseline.describe import hardware_of
        from seatrial.baseline.edit import Why, change

        cells = [cell for cell in plan.cells if cell.benchmark == benchmark]
        for place in selection.selected_files(suite, cells):
            entry = place.entry(benchmark, metric)
            for found in selection.newest_histories(self._history, benchmark, metric) if entry else []:
                assert entry is not None
                last = found.points[-1]
                hardware = hardware_of(self._runs, last.run, last.id)
                why = Why(REASON, time.time())
                updated = new_bounds.recenter(found, entry, why, hardware, place.baselines.form)
                return change(place, [updated.edit])
        return None

    def _command(self, suite: Path, ids: list[str], metric: str) -> str:
        words = ["seatrial", "baseline", "recenter", str(suite)]
        for id_ in ids[:MOST_SELECTED]:
            words += ["--select", id_]
        words += ["--metric", metric, *self._options, "--reason", REASON]
        return shlex.join(words)


def _planned(path: Path) -> "tuple[Suite, Plan]":
    """Raises SuiteError and PlanError."""
    from seatrial.baseline import read_for_trials
    from seatrial.plan import expand
    from seatrial.plugins import models
    from seatrial.suite import load

    suite = load(path, *models(), read_for_trials)
    return suite, expand(suite)
