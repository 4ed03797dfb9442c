"""What the commands of `seatrial baseline` share: the files that they are about, and how a change is made."""

import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seatrial.api import history_of
from seatrial.cli.common import fail, plan_of
from seatrial.web.catalogue import ProposedChange

if TYPE_CHECKING:
    from seatrial.baseline.edit import FileChange, Updated, Why
    from seatrial.baseline.imported import ImportedMetric
    from seatrial.baseline.selection import SelectedFile
    from seatrial.plan import Plan
    from seatrial.record.history import History
    from seatrial.suite import Suite

SUITE = click.argument("suite", type=click.Path(path_type=Path))
SELECT = click.option(
    "--select", "select", multiple=True, metavar="EXPR", help="Cells by id glob, axis=value or /hash; repeat for more."
)
METRIC = click.option("--metric", metavar="NAME", help="Just this metric.")


def say(text: str, err: bool = False) -> None:
    """Print a line. Names and reasons come from files and runs: what could move a terminal's cursor is written out."""
    from seatrial.suite.yaml.problem import printable

    click.echo(printable(text), err=err)


def reason_of(reason: str, force: bool) -> "Why":
    from seatrial.baseline.edit import Why

    text = " ".join(reason.encode("utf-8", "replace").decode().split())
    if not text:
        fail("--reason is empty: say why, for whoever looks at these bounds later")
    return Why(text, time.time(), force)


class BaselineScope:
    """The suite, the files of its baselines and the history that a command is about."""

    def __init__(
        self, suite: Path, select: tuple[str, ...], runs: Path, history: str | None, switched_off: bool = False
    ) -> None:
        from seatrial.baseline.selection import NoBaseline, selected_files

        plan = plan_of(suite, runs, select, history=history)
        self.suite = plan.suite
        self.history: History = history_of(runs, history)
        try:
            self.places = selected_files(self.suite, plan.cells, switched_off)
        except NoBaseline as error:
            fail(str(error))

    @property
    def benchmarks(self) -> dict[str, str]:
        """Those that were selected, each with its trial."""
        return {name: trial for place in self.places for name, trial in place.trials.items()}

    def safely(self, use: Callable[[], Any]) -> Any:
        from seatrial.record.history import HistoryError

        try:
            return use()
        except HistoryError as error:
            fail(str(error), 3)

    def change(
        self,
        made: "Callable[[SelectedFile, str], list[tuple[str, Callable[[], Updated]]]]",
        dry_run: bool,
        nothing: str,
    ) -> None:
        """Make the change of each entry, print it, write it. Ends with 1 when an entry had to stay as it was."""
        from seatrial.baseline.edit import Refused

        refused = 0
        for place in self.places:
            updates = []
            for benchmark in place.benchmarks:
                entries = self.safely(partial(made, place, benchmark))
                if not entries:
                    say(f"{benchmark}: {nothing}", err=True)
                    refused += 1
                for metric, make in entries:
                    try:
                        updates.append(make())
                    except Refused as error:
                        say(f"{benchmark} {metric}: {error}", err=True)
                        refused += 1
            self.write(place, updates, dry_run)
        if refused:
            raise SystemExit(1)

    def write(self, place: "SelectedFile", updates: "list[Updated]", dry_run: bool) -> None:
        from seatrial.baseline.edit import FileChanged, change, write_change
        from seatrial.suite.yaml.document import CannotEdit

        if not updates:
            return
        try:
            changed = change(place, [update.edit for update in updates])
            if not dry_run:
                write_change(changed)
                self._settle(updates)
        except (CannotEdit, FileChanged) as error:
            fail(str(error))
        click.echo(changed.diff)  # of YAML, which holds no control characters
        for update in updates:
            for note in update.notes:
                say(f"{update.edit.benchmark} {update.edit.metric}: {note}", err=True)
        entries = f"{len(updates)} entr{'y' if len(updates) == 1 else 'ies'} of {place.name}"
        say(f"{'would change' if dry_run else 'changed'} {entries}", err=True)

    def _settle(self, updates: "list[Updated]") -> None:
        """Tell the history from which run on a level was accepted: its alarms need no judgement any more."""
        import getpass

        from seatrial.record.history import ACCEPTED

        for one in updates:
            if one.accepted:
                edit = one.edit
                acceptance = (
                    one.accepted,
                    edit.benchmark,
                    ACCEPTED,
                    edit.reason["why"],
                    getpass.getuser(),
                    time.time(),
                )
                self.safely(partial(self.history.mark, *acceptance, metric=edit.metric))

    def imported(self, benchmark: str, metric: str | None, unit: str, better: str | None) -> "ImportedMetric":
        """What a row of runs is a metric of, from what it says, the options, and what is known of it already."""
        from seatrial.baseline.edit import Refused
        from seatrial.baseline.imported import imported_metric

        known = self.benchmarks
        if not benchmark and len(known) == 1:
            benchmark = next(iter(known))
        if benchmark not in known:
            from seatrial.suite import nearest

            what = f"there is no cell with benchmark {benchmark!r}" if benchmark else "the runs name no `benchmark`"
            fail(f"{what}{nearest(benchmark, known)}; --select one cell, or give each run its `benchmark`")
        if metric is None:
            fail("the runs name no `metric`; say --metric step_time, or what they are metrics of")
        series = self.safely(lambda: self.history.series(benchmark=benchmark, metric=metric, last=1))
        entries = [place.entry(benchmark, metric) for place in self.places]
        bounds = [entry.bound for entry in entries if entry is not None]
        before = [(old.unit, old.better) for old in (*reversed(series), *bounds)]
        trial = known[benchmark]
        try:
            return imported_metric(benchmark, trial, self.suite.trials[trial], metric, unit, better, before)
        except Refused as error:
            fail(str(error))


# What `seatrial baseline recenter` would change for one metric, and the command; nothing is changed here.


REASON = "why"  # stands for what a person writes
MOST_SELECTED = 4


class RecenterPreview:
    def __init__(self, runs: Path, history: "History", options: tuple[str, ...] = ()) -> None:
        self._runs = runs
        self._history = history
        self._options = options  # of the command, so that it is about the same runs

    def __call__(self, suite_path: str, benchmark: str, metric: str) -> ProposedChange | None:
        """None for a metric that no baseline file has an entry of, and for a suite that is not here."""
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
