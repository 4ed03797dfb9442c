"""The Python API: load a suite, plan it, run the plan, resume a run, read results.

Nothing here prints, handles signals or exits. The command line does that, and calls these functions.
"""

import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

if TYPE_CHECKING:
    from seatrial.engine import Listener, PreparedRun, Run, RunOptions
    from seatrial.job import Bound, Excluded, RunResults
    from seatrial.plan import Plan
    from seatrial.record import RunFolder
    from seatrial.record.history import History
    from seatrial.suite import BaselineFile, Cell, Suite, TrialModel

    AnyPath = str | os.PathLike[str]

_P = ParamSpec("_P")
Note = Callable[[str], None]  # receives a note for the user that is not an error


class RunPlan(NamedTuple):
    """What a suite would run: returned by `plan`, passed to `run`."""

    suite: "Suite"
    plan: "Plan"
    notes: tuple[str, ...] = ()  # for the user, such as a history that could not be read
    warnings: tuple[str, ...] = ()  # about checks that find less than they seem to, such as bounds that cannot fail

    @property
    def cells(self) -> "tuple[Cell, ...]":
        """The cells that would run, in the order of the suite. Each has `id`, `hash`, `trial`, `axes`, `target`."""
        return self.plan.cells

    @property
    def excluded(self) -> "tuple[Excluded, ...]":
        """The combinations that would not run. Each has `trial`, `axes`, `why`, `cause`."""
        return self.plan.excluded


class Cancellation:
    """Stops a run early: nothing new starts, running jobs are cancelled and collected, and `run` returns its results.

    Pass one to `run` or `attach`, and call `request` from any thread, any number of times."""

    def __init__(self) -> None:
        self.requested = False
        self._wake: Callable[[], object] | None = None

    def request(self) -> None:
        self.requested = True
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing to cancel
                self._wake()

    @contextlib.contextmanager
    def interrupts(self, run: "Run") -> Iterator[None]:
        """Within the block, a request interrupts the run in this loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(run.interrupt)
        try:
            if self.requested:
                run.interrupt()
            yield
        finally:
            self._wake = None


def load(
    path: "AnyPath", *, target: str | None = None, overrides: Iterable[str] = (), check_files: bool = True
) -> "Suite":
    """Reads and checks a suite.

    `overrides` changes fields first: `runtimes.base.image=registry.example/base:2`, as `--set` does.
    `target` overrides the target of every trial: a target of the suite, a kind, `kind:key=value,…` or a YAML file.
    Without `check_files`, files that the suite names may be missing.

    Raises SuiteError with every problem and its position.
    """
    from seatrial.plugins import models, readers
    from seatrial.suite import choose_target
    from seatrial.suite import load as load_suite

    suite = load_suite(Path(path), *models(), _read_baseline, check_files, readers(), overrides)
    return suite.on(choose_target(target, suite.targets, models()[1])) if target else suite


def _read_baseline(path: Path, trials: "Iterable[TrialModel]") -> "BaselineFile":
    from seatrial.baseline import read_for_trials

    return read_for_trials(path, [*trials])


def plan(
    suite: "Suite",
    *,
    select: Iterable[str] = (),
    tags: Iterable[str] = (),
    pairwise: bool = False,
    repeat: int | None = None,
    failed: "RunResults | None" = None,
    runs: "AnyPath" = "runs",
    history: "AnyPath | None" = None,
) -> RunPlan:
    """Expands a suite into cells and excluded combinations, each with a reason. Contacts no target.

    `select` takes id globs, `axis=value` or `/hash`; a cell must match one of them. `tags` keeps cells with all of
    them. `pairwise` keeps a small set that covers every valid pair of values. `repeat` plans each cell this many times.
    `failed` keeps the cells that did not pass in those results, or were not done. Estimates come from the history,
    which is `history.db` in `runs` unless `history` names another.

    Raises PlanError if a selection matches nothing, or the suite has more cells than it allows.
    """
    from seatrial.plan import Selection, expand

    suite = suite.repeated(repeat) if repeat else suite
    warnings = [warning for baselines in suite.baselines.values() for warning in baselines.warnings]
    warnings += [f"trial {name}: {warning}" for name, trial in suite.trials.items() for warning in trial.warnings()]
    past, durations, notes = None, dict[str, float](), tuple[str, ...]()
    if history is not None or (Path(runs) / "history.db").exists():
        from seatrial.baseline.selection import lost_bounds, with_recent_runs
        from seatrial.record.history import HistoryError

        try:  # a broken history only costs the estimates and the search for shifts
            past = history_of(runs, history)
            durations = past.durations()
        except HistoryError as error:
            past, notes = None, (f"planned without history: {error}",)
    made = expand(suite, Selection(tuple(select), tuple(tags), pairwise), durations)
    if past is not None:
        try:
            lost = lost_bounds(made.cells, past)
            made = made.of(with_recent_runs(made.cells, past))
            warnings += lost
        except HistoryError as error:
            notes = (f"planned without history: {error}",)
    if failed is not None:
        made, gone = _undone(made, failed)
        notes += gone
    return RunPlan(suite, made, notes, tuple(warnings))


def _undone(plan: "Plan", results: "RunResults") -> "tuple[Plan, tuple[str, ...]]":
    """Keeps the cells that did not pass or were not done in that run. By id, because fixing a suite changes hashes."""
    from dataclasses import replace

    from seatrial.job import Excluded, count
    from seatrial.plan.plan import cell_id

    wanted = {cell.id for cell in results.cells if not cell.done}
    left_out = {cell_id(one.trial, one.axes) for one in plan.excluded if one.cause in ("select", "tag", "pairwise")}
    gone = wanted - {cell.id for cell in plan.cells} - left_out
    notes: tuple[str, ...] = ()
    if gone:
        some = f"{', '.join(sorted(gone)[:3])}{', …' if len(gone) > 3 else ''}"
        cells = f"{len(gone)} of the {count(len(wanted), 'cell')} that did not pass in {results.run}"
        notes = (f"{cells} {'is' if len(gone) == 1 else 'are'} no longer in the suite: {some}",)
    others = [
        Excluded(cell.trial, cell.axes, f"passed in {results.run}", "select")
        for cell in plan.cells
        if cell.id not in wanted
    ]
    kept = plan.of(cell for cell in plan.cells if cell.id in wanted)
    return replace(kept, excluded=(*plan.excluded, *others)), notes


async def run(
    plan: RunPlan,
    *,
    runs: "AnyPath" = "runs",
    history: "AnyPath | None" = None,
    parallel: int | None = None,
    retries: int | None = None,
    max_failures: int | None = None,
    max_cost: float | None = None,
    commit: str = "",
    against: "RunResults | None" = None,
    listener: "Listener | None" = None,
    cancel: Cancellation | None = None,
) -> "RunResults":
    """Runs a plan in a new folder below `runs`, writes its reports, and adds it to the history.

    `listener` receives every change of a cell, in the thread of the loop. Changes are reported relative to `against`,
    or by default to each cell's last run. The other options are those of `seatrial run`.

    A failed test is a result, not an error: see `verdict` and `exit_code` of the results. If the task is cancelled, the
    run is left as a killed process would leave it: its jobs continue, and `attach` resumes it.

    Raises PlanError if there is nothing to run or it may cost too much, SuiteError if a file is missing, RunRefused if
    a secret is missing or a target would reject the jobs (nothing was run), RunStopped if the run cannot continue
    (`attach` resumes it).
    """
    from seatrial.engine import RunOptions

    options = RunOptions(parallel, retries, max_failures, max_cost, commit)
    return await _finish(prepare(plan, runs, options, against), history_of(runs, history), listener, cancel)


async def attach(
    run: "AnyPath",
    *,
    runs: "AnyPath" = "runs",
    history: "AnyPath | None" = None,
    listener: "Listener | None" = None,
    cancel: Cancellation | None = None,
) -> "RunResults":
    """Resumes an interrupted run and finishes it; returns the results of a finished one. No work is repeated.

    `run` is an id, a unique prefix of one, the path of a run folder, or `last`. Needs no suite file: the folder has the
    plan.

    Raises UnknownRun, RunOwned while another process owns the run, DamagedRun if its plan or journal cannot be read,
    and what `run` raises.
    """
    import asyncio

    from seatrial.engine import reopen
    from seatrial.record import DamagedRun, RecordError

    folder, kept = find(runs, run), history_of(runs, history)
    try:
        finished = await asyncio.to_thread(finished_results, folder, kept, _noting(listener))
        return finished if finished is not None else await _finish(reopen(folder), kept, listener, cancel)
    except RecordError as error:
        raise DamagedRun(folder.journal, str(error)) from error


def _blocking(function: Callable[_P, Coroutine[Any, Any, "RunResults"]]) -> Callable[_P, "RunResults"]:
    def blocking(*args: _P.args, **options: _P.kwargs) -> "RunResults":
        import asyncio

        return asyncio.run(function(*args, **options))

    blocking.__name__ = blocking.__qualname__ = f"{function.__name__}_blocking"
    blocking.__doc__ = f"Like `{function.__name__}`, for callers without an event loop, in any thread."
    return blocking


run_blocking = _blocking(run)
attach_blocking = _blocking(attach)


def read_results(run: "AnyPath", *, runs: "AnyPath" = "runs") -> "RunResults":
    """Returns the results of a finished run: an id, a unique prefix of one, the path of a run folder, `last`, or the
    fsspec address of a copy (`s3://…`).

    Raises UnknownRun, and ResultsError if the run has not finished or its results cannot be read.
    """
    from seatrial.record.folder import read_results as read

    return read(find(runs, run).path)


# Building blocks, also used by the command line. Not public.


def find(runs: "AnyPath", run: "AnyPath") -> "RunFolder":
    """Finds a run; fetches it first if it is an address. Raises UnknownRun and RecordError."""
    from seatrial.record import find_run

    if "://" in str(run):
        from seatrial.record.remote import fetch_run
        from seatrial.targets.local.folders import cache_folder

        return fetch_run(str(run), cache_folder() / "runs")
    return find_run(Path(runs), str(run))


def history_of(runs: "AnyPath", place: "AnyPath | None") -> "History":
    """Raises HistoryError for an invalid address."""
    from seatrial.record.history import open_history

    return open_history(str(place) if place else Path(runs) / "history.db")


def prepare(
    plan: RunPlan, runs: "AnyPath", options: "RunOptions", against: "RunResults | None" = None
) -> "PreparedRun":
    """Creates a run folder with the plan. Raises PlanError, SuiteError and RunRefused."""
    import msgspec

    from seatrial.engine import commit_of, create
    from seatrial.record import write_whole

    suite, planned = plan.suite, plan.plan
    max_cost = suite.max_cost if options.max_cost is None else options.max_cost
    planned.check_cost(max_cost)
    planned.check_cells(f"; run `seatrial plan {suite.path}` to see why" if suite.path else "")
    options = msgspec.structs.replace(
        options,
        max_cost=max_cost,
        commit=options.commit or commit_of(suite.directory),
        against=against.run if against else "",
    )
    prepared = create(suite, planned, Path(runs), options)
    if against:
        write_whole(prepared.folder.against, msgspec.json.encode(against))
    return prepared


async def _finish(
    prepared: "PreparedRun", history: "History", listener: "Listener | None", cancel: Cancellation | None
) -> "RunResults":
    import asyncio

    from seatrial.record import Ownership

    # Until the reports are written, so that no other process writes them at the same time.
    with contextlib.closing(Ownership.take(prepared.folder.path)):
        results = await execute(prepared, listener or _All(), cancel or Cancellation())
        return await asyncio.to_thread(keep_results, prepared, results, history, _noting(listener))


class _All:
    """Forwards updates to all listeners."""

    def __init__(self, *listeners: "Listener") -> None:
        self._listeners = listeners

    def update(self, cell: str, state: str, progress: str = "") -> None:
        for listener in self._listeners:
            listener.update(cell, state, progress)


def _noting(listener: "Listener | None") -> Note:
    return lambda text: listener.update("", "note", text) if listener is not None else None


async def execute(prepared: "PreparedRun", listener: "Listener", cancel: Cancellation) -> "RunResults":
    """Executes the run without reports and history; the caller must own the folder. Raises RunRefused, RunStopped and
    RecordError."""
    from seatrial.engine import Run
    from seatrial.record import LiveWriter

    with contextlib.closing(LiveWriter(prepared.folder.path)) as live:
        engine = Run(prepared, _All(listener, live), cancel.requested)
        with cancel.interrupts(engine):
            return await engine.execute()


def final_results(folder: "RunFolder") -> "RunResults | None":
    """The results of a finished run; None if it has not finished. Raises RecordError."""
    from seatrial.record import read_journal

    entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
    return folder.read_results() if any(entry["event"] == "finished" for entry in entries) else None


def finished_results(folder: "RunFolder", history: "History", note: Note) -> "RunResults | None":
    """Like `final_results`, but first writes changes, history and reports if a kill prevented that."""
    results = final_results(folder)
    if results is None or (folder.path / "report.html").exists():  # written last
        return results
    return _keep(folder, results, history, {}, bool(folder.read_plan().options.against), note)


def keep_results(prepared: "PreparedRun", results: "RunResults", history: "History", note: Note) -> "RunResults":
    """Writes changes, reports and history, and returns the results with their changes. Failures are only noted, because
    the results are already on disk."""
    bounds = {cell.benchmark: cell.bounds for cell in prepared.plan.cells if cell.bounds}
    return _keep(prepared.folder, results, history, bounds, bool(prepared.options.against), note)


def _keep(
    folder: "RunFolder",
    results: "RunResults",
    history: "History",
    bounds: "Mapping[str, tuple[Bound, ...]]",
    against: bool,
    note: Note,
) -> "RunResults":
    from seatrial.job import flatten_metrics
    from seatrial.record.history import HistoryError, add_missed, add_or_mark
    from seatrial.report import ReportError, write_reports

    results = _compared(folder, results, history, against, note)
    try:
        add_or_mark(folder, results, history)
        late = add_missed(folder.path.parent, history)
        if late:
            note(f"also added to the history (it was unavailable when these runs finished): {', '.join(late)}")
        if any(metric.better for cell in results.cells for metric in flatten_metrics(cell.metrics)):
            from seatrial.report.view.series import run_series, write_series

            write_series(folder.path, run_series(history, results, bounds))
    except HistoryError as error:
        later = "the next run adds this one too; or run `seatrial history add`"
        note(f"could not update the history: {error}\n{later}")
    try:
        write_reports(folder.path, results)
    except ReportError as error:
        note(str(error))
    return results


def _compared(
    folder: "RunFolder", results: "RunResults", history: "History", against: bool, note: Note
) -> "RunResults":
    """Adds what changed to the results, also on disk; returns them unchanged if that is unknown."""
    from seatrial.job import RunResults, Unreadable, read_json
    from seatrial.record.history import HistoryError
    from seatrial.report.view.changes import past_of_run, with_news

    try:
        if against:
            before = read_json(folder.against, RunResults)
            results = with_news(results, past_of_run(before), before.run)
        else:
            results = with_news(results, history.past(results))
        folder.write_results(results)
    except (HistoryError, Unreadable, OSError) as error:
        note(f"cannot compare with earlier runs: {error}")
    return results
