"""Shared by the `seatrial baseline` commands: which files they use, and how they change them."""

import getpass
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from seatrial.api import load
from seatrial.baseline import new_bounds
from seatrial.baseline.describe import hardware_of
from seatrial.baseline.edit import Refused, Updated, Why, change, write_change
from seatrial.baseline.selection import SelectedFile, newest_histories, selected_files
from seatrial.cli.common import fail, history_of, plan_of
from seatrial.plan import PlanError, expand
from seatrial.record.history import ACCEPTED, History
from seatrial.suite import SuiteError
from seatrial.suite.yaml.document import CannotEdit
from seatrial.suite.yaml.problem import printable
from seatrial.web.catalogue import ProposedChange

Entries = list[tuple[str, Callable[[], Updated]]]  # each metric to change, with a function that makes the change


def say(text: str, err: bool = False) -> None:
    """Prints a line with control characters escaped, because names and reasons come from files and runs."""
    click.echo(printable(text), err=err)


class BaselineScope:
    """The suite, baseline files and history that a command uses, and the reason for its changes."""

    def __init__(
        self,
        suite: Path,
        select: tuple[str, ...],
        runs: Path,
        history: str | None,
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
        switched_off: bool = False,
    ) -> None:
        plan = plan_of(suite, runs, select, history=history, list_warnings=not reason)  # `show` has no reason
        self.runs = runs
        self.suite = plan.suite
        self.history = history_of(runs, history)
        self.files = selected_files(self.suite, plan.cells, switched_off)
        self.why = Why(reason, time.time(), force)
        self.dry_run = dry_run
        if not self.files:
            trials = ", ".join(self.suite.trials)
            hint = "add `baseline: bounds.yaml` to its trial; the file need not exist yet"
            fail(f"no selected cell has a baseline (trials: {trials}); {hint}")

    def change(self, changes: Callable[[SelectedFile, str], Entries], nothing: str) -> None:
        """Changes, prints and writes each entry. Exits 1 if an entry could not be changed; `nothing` says why."""
        refused = 0
        for file in self.files:
            updates: list[Updated] = []
            for benchmark in file.trials:
                entries = changes(file, benchmark)
                if not entries:
                    say(f"{benchmark}: {nothing}", err=True)
                    refused += 1
                made: list[Updated] = []
                for metric, make in entries:
                    try:
                        made.append(make())
                    except Refused as error:
                        say(f"{benchmark} {metric}: {error}", err=True)
                        refused += 1
                # A metric without useful bounds would make good runs invalid. The only metric is written nevertheless:
                # a benchmark that cannot be checked must not pass.
                noisy = {one.edit.metric: one for one in made if one.too_noisy}
                entries_after = {*file.baselines.entries.get(benchmark, {}), *(one.edit.metric for one in made)}
                noisy = noisy if entries_after - noisy.keys() else {}
                removed = {name for name in noisy if file.entry(benchmark, name) is not None}
                for names, what in ((noisy.keys() - removed, "left out"), (removed, "removed")):
                    if names:
                        count = f"{len(names)} metric{'s' * (len(names) > 1)}"
                        say(f"{benchmark}: {count} {what}, because bounds from these runs would be useless:", err=True)
                    for name in sorted(names):
                        say(f"  {name}: {noisy[name].too_noisy}", err=True)
                if noisy:
                    say("  To add one anyway, use `--metric NAME --force`.", err=True)
                updates += [Updated(replace(noisy[name].edit, values=None)) for name in sorted(removed)]
                updates += [one for one in made if one.edit.metric not in noisy]
            self.write(file, updates)
        if refused:
            raise SystemExit(1)

    def write(self, file: SelectedFile, updates: list[Updated]) -> None:
        if not updates:
            return
        changed = change(file, [update.edit for update in updates])
        if not self.dry_run:
            write_change(changed)
            # Alerts of an accepted level need no review.
            for one in updates:
                edit, user = one.edit, getpass.getuser()
                if one.accepted:
                    review = (ACCEPTED, edit.reason["why"], user, time.time())
                    self.history.mark(one.accepted, edit.benchmark, *review, metric=edit.metric)
        click.echo(changed.diff)  # YAML has no control characters
        for update in updates:
            for note in update.notes:
                say(f"{update.edit.benchmark} {update.edit.metric}: {note}", err=True)
        entries = f"{len(updates)} entr{'y' if len(updates) == 1 else 'ies'} of {file.name}"
        say(f"{'would change' if self.dry_run else 'changed'} {entries}", err=True)


REASON = "why"  # placeholder for the user's reason
MOST_SELECTED = 4


class RecenterPreview:
    """Previews `seatrial baseline recenter` for one metric: the command and its diff. Changes nothing."""

    def __init__(self, runs: Path, history: History, options: tuple[str, ...] = ()) -> None:
        self._runs = runs
        self._history = history
        self._options = options  # added to the command, so that it uses the same runs

    def __call__(self, suite_path: str, benchmark: str, metric: str) -> ProposedChange | None:
        """Returns None if no baseline file has an entry for the metric, or if the suite file does not exist."""
        path = Path(suite_path)
        if not suite_path or not path.is_file():
            return None
        command = self._command(path, [], metric)
        try:
            suite = load(path, check_files=False)
            cells = [cell for cell in expand(suite).cells if cell.benchmark == benchmark]
            command = self._command(path, [cell.id for cell in cells[:MOST_SELECTED]], metric)
            for file in selected_files(suite, cells):
                entry = file.entry(benchmark, metric)
                found = newest_histories(self._history, benchmark, metric)
                if entry and found:
                    hardware, form = hardware_of(self._runs, found[0].points), file.baselines.form
                    updated = new_bounds.recenter(found[0], entry, Why(REASON, time.time()), hardware, form)
                    return ProposedChange(command, change(file, [updated.edit]).diff)
        except (SuiteError, PlanError, Refused, CannotEdit, OSError) as error:
            return ProposedChange(command, refused=str(error))
        return None

    def _command(self, suite: Path, ids: Sequence[str], metric: str) -> str:
        selected = [word for id_ in ids for word in ("--select", id_)]
        words = ["seatrial", "baseline", "recenter", str(suite), *selected, "--metric", metric, *self._options]
        return shlex.join([*words, "--reason", REASON])
