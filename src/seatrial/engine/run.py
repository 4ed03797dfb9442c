"""The engine: runs the cells of a plan, or resumes a run from its journal, and returns the results."""

import asyncio
import contextlib
import errno
import os
import traceback
from collections import Counter
from typing import Protocol

from seatrial import SeatrialError, __version__, plugins
from seatrial.checks import UNREAD, find_causes
from seatrial.engine.attempt import Attempt, gather_or_cancel
from seatrial.engine.context import AttemptContext, Failpoints
from seatrial.engine.follow import Follower
from seatrial.engine.judge import (
    OUT_OF_BOUNDS,
    JudgedAttempt,
    agreeing,
    judge_attempt,
    judge_broken,
    out_of_bounds,
    result_of,
    run_verdict,
    unjudged,
)
from seatrial.engine.limits import Budget, Caps
from seatrial.engine.prepare import PreparedRun
from seatrial.engine.reap import RUN_FOLDER
from seatrial.engine.secrets import Secrets
from seatrial.engine.states import JOURNAL_VERSION, AttemptRecord, read_run
from seatrial.engine.verify import shapes, verify
from seatrial.job import (
    VERSION,
    AttemptResult,
    CellResult,
    Environment,
    Finding,
    Part,
    PartSpec,
    RunResults,
    Unreadable,
    Verdict,
)
from seatrial.job.reading import boot_id
from seatrial.record import Journal, RecordError
from seatrial.suite import Cell
from seatrial.targets import RunInUse, TargetError

# The journal or a target cannot be used: the whole run stops and can be resumed.
_STOPPING = (RecordError, TargetError, OSError)
OPEN_S = 15.0  # limit for opening a target at the end of a run only to remove remaining jobs


class Listener(Protocol):
    """Receives every change of a cell, to show it. `update` must neither raise nor block.

    `state` is starting, waiting, running, retrying, confirming or, at the end, a verdict; `progress` is the current
    step, what the cell waits for, or the reason for its verdict. An empty `cell` means the whole run.
    """

    def update(self, cell: str, state: str, progress: str = "") -> None: ...


def thread_limit(error: Exception) -> str:
    """The message if Python could not start a thread, which is a plain RuntimeError; else ""."""
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return "cannot start a thread: the process limit of this user is reached; raise `ulimit -u`" if no_thread else ""


class RunStopped(SeatrialError):
    """The run could not continue. No results are lost: `attach` resumes it."""


class Run:
    """One execution of a plan by this process, from taking ownership to the results."""

    def __init__(self, prepared: PreparedRun, listener: Listener, cancel: bool = False) -> None:
        """With `cancel`, the run is resumed only to stop its running jobs."""
        self._prepared = prepared
        self._options = prepared.options
        self._interrupted = cancel
        self._stop_why = "not started: cancelled" if cancel else ""
        self._listener = listener
        self._folder = prepared.folder
        self._at = Failpoints()
        self._secrets = Secrets(prepared.suite, prepared.jobs())
        self._caps = Caps(prepared.suite, prepared.options.parallel)
        self._budget = Budget(prepared.options.max_failures, prepared.options.max_cost)
        self._followers: dict[str, Follower] = {}
        self._opened: dict[str, asyncio.Task[None]] = {}
        self._verifying: asyncio.Task[None] | None = None  # while the run is executed
        self._preparing: list[asyncio.Task[None]] = []
        self._removing: list[asyncio.Task[None]] = []
        self._attempts: set[Attempt] = set()  # in progress

    async def execute(self) -> RunResults:
        """Runs to the end; the caller must own the folder. Raises RunRefused if a target would never accept the jobs,
        RunStopped if the run cannot continue."""
        with contextlib.closing(Journal(self._folder.journal, self._at)) as journal:
            self._past = read_run(journal.past)
            journal.past.clear()  # half of the memory of a resumed run
            try:
                return await self._execute(journal)
            except (*_STOPPING, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not thread_limit(error):
                    raise
                raise self._stopped(error) from error

    def _stopped(self, error: Exception) -> RunStopped:
        return RunStopped(self._secrets.mask.text(thread_limit(error) or str(error)))

    async def _execute(self, journal: Journal) -> RunResults:
        self._journal = journal
        if self._past.started_s is None:
            new = {"version": JOURNAL_VERSION, "run": self._folder.run, "seatrial": __version__}
            first = journal.append("run", **new, cells=len(self._prepared.plan.cells), boot=boot_id())
        else:
            first = journal.append("attached", pid=os.getpid(), boot=boot_id())
        read_run([first], self._past)
        self._context = AttemptContext(
            folder=self._folder,
            journal=journal,
            secrets=self._secrets,
            follower=self._follower,
            targets=self._prepared.suite.targets,
            update=self._listener.update,
            at=self._at,
            began_s=asyncio.get_running_loop().time() - self._past.seconds,
        )
        for cell in self._prepared.plan.cells:  # before any cell starts: a new one needs room in the budget
            for one in self._past.attempts.get(cell.hash, ()):
                if one.over:
                    self._budget.charge(cell, one.job_seconds if one.seconds is None else one.seconds)
                else:
                    self._budget.reserve(cell)
        if self._interrupted:
            self._cancel()
        self._verifying = asyncio.create_task(self._verify())
        try:
            cells = await gather_or_cancel(*(self._cell(cell) for cell in self._prepared.plan.cells))
            results = self._results(cells)
            await self._sweep()
        finally:
            # A target may still be opening if the run was interrupted or had no job there.
            tasks = [self._verifying, *self._preparing, *self._removing, *self._opened.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for follower in self._followers.values():
                await follower.close()
            self._verifying = None
        if not self._folder.plan.exists():
            raise OSError(errno.ENOENT, "the run folder was deleted during the run", str(self._folder.path))
        self._folder.write_results(results)
        self._at("results written")
        await journal.write("finished", durable=True, verdict=results.verdict)
        return results

    def _specs(self, cell: Cell) -> tuple[PartSpec, ...]:
        """The parts of the cell; none if its kind raises, which is reported when the cell runs."""
        with contextlib.suppress(Exception):
            return self._prepared.parts(cell)
        return ()

    def _job_of(self, cell: Cell, part: PartSpec, number: int, avoid: tuple[str, ...] = ()) -> Part:
        """A part of a new attempt, if possible not on the hosts to `avoid`."""
        return part.for_attempt(self._folder.run, cell.hash, number, avoid, {RUN_FOLDER: str(self._folder.path)})

    async def _verify(self) -> None:
        """Checks that targets accept the new jobs before any starts, then prepares their environments in the
        background. Does nothing if the run is only resumed to be stopped."""
        if self._interrupted:
            return
        known = self._past.attempts.keys() | (() if self._past.interrupted else self._past.skipped.keys())
        cells = [cell for cell in self._prepared.plan.cells if cell.hash not in known]
        new = [(cell, part) for cell in cells for part in self._specs(cell)]
        wanted = [(cell, self._job_of(cell, part, 1)) for cell, part in shapes(new)]
        await verify(wanted, self._follower, self._secrets.mask)

        async def prepare(target: str, environment: Environment) -> None:
            await (await self._follower(target)).target.prepare(environment)

        environments = {(part.target, part.job.environment) for _, part in new}
        self._preparing += [asyncio.create_task(prepare(*one)) for one in environments]

    async def _verified(self) -> None:
        """Waits until the targets have accepted the new jobs; an interrupt ends the wait."""
        assert self._verifying
        await asyncio.wait([self._verifying])
        if not self._verifying.cancelled():
            self._verifying.result()

    async def _cell(self, cell: Cell) -> CellResult:
        past = self._past.attempts.get(cell.hash, [])
        if not past:
            await self._verified()
        made: list[JudgedAttempt] = []
        while True:
            known = past[len(made)] if len(made) < len(past) else None
            over = known is not None and known.over
            async with contextlib.nullcontext() if over else self._caps.place(cell):
                why = self._why_not(cell) if known is None else ""
                if why:
                    break
                if known is None:
                    self._budget.reserve(cell)
                judged = await self._made(cell, known, made)
            made.append(judged)
            if len(made) < len(past):
                continue  # finish every attempt that was started
            again = self._again(cell, made)
            if not again:
                break
            self._listener.update(cell.id, again, _in_short(judged.attempt) or judged.attempt.why)
        self._prepared.release(cell)
        result = result_of(cell, made, why)
        if not made and cell.hash not in self._past.skipped:
            await self._journal.write("skipped", cell=cell.hash, why=why)
        self._budget.failures += not result.verdict.good
        in_short = _in_short(result.attempts[-1]) if result.attempts and not result.verdict.good else ""
        self._listener.update(cell.id, result.verdict, in_short or result.why)
        return result

    async def _made(self, cell: Cell, known: AttemptRecord | None, made: list[JudgedAttempt]) -> JudgedAttempt:
        """Makes an attempt and judges it. An error in Seatrial or in the kind affects only this cell; only an error of
        the journal, the run folder or a target stops the run."""
        number = len(made) + 1
        if known is not None and known.broken:
            return judge_broken(cell, number, known.broken, known.traceback)
        attempt = Attempt(self._context, cell, number, known)
        self._attempts.add(attempt)
        try:
            parts = None
            if known is None:
                avoid = tuple(dict.fromkeys(host for one in made for host in one.attempt.place.hosts))
                parts = tuple(self._job_of(cell, part, number, avoid) for part in self._prepared.parts(cell))
            if self._interrupted:
                attempt.cancel()
            try:
                observed = await attempt.run(parts)
            except _STOPPING as error:
                raise self._stopped(error) from error
            except Unreadable as error:
                self._budget.charge(cell, 0.0)
                why = self._secrets.mask.text(str(error))
                return unjudged(cell, number, Finding("job", "run folder", Verdict.INFRA, "infra", why))
            judged = judge_attempt(cell, plugins.kinds()[cell.kind], number, observed)
        except RunStopped:
            raise
        except Exception as error:
            if thread_limit(error):
                raise self._stopped(error) from error
            why = self._secrets.mask.text(f"internal error in Seatrial: {type(error).__name__}: {error}")
            trace = self._secrets.mask.text("".join(traceback.format_exception(error)))
            await self._journal.write("broken", cell=cell.hash, attempt=number, why=why, traceback=trace)
            await attempt.discard()
            self._budget.charge(cell, attempt.job_seconds)
            return judge_broken(cell, number, why, trace)
        finally:
            self._attempts.discard(attempt)
        if known is not None and known.over:
            if not attempt.removed:
                self._removing.append(asyncio.create_task(attempt.finish()))
            return judged
        last = judged.attempt
        seconds = attempt.job_seconds if last.seconds is None else last.seconds
        self._budget.charge(cell, seconds)
        await self._journal.write(
            "judged",
            cell=cell.hash,
            attempt=number,
            verdict=last.verdict,
            why=last.why,
            headline=_in_short(last),
            again=self._again(cell, [*made, judged]),
            seconds=seconds,
        )
        return judged

    def _why_not(self, cell: Cell) -> str:
        """Why no new attempt may start now; empty if one may."""
        if cell.hash in self._past.skipped and not self._past.interrupted:
            return self._past.skipped[cell.hash]
        return self._stop_why or self._budget.why_not(cell)

    def _again(self, cell: Cell, made: list[JudgedAttempt]) -> str:
        """Whether to make another attempt: `retrying`, `confirming`, or empty. Retries are only for the verdicts in the
        trial's `retry_on`. A cell out of bounds runs again until enough runs agree on a metric, or one does not."""
        if self._stop_why:
            return ""
        if made[-1].attempt.cancelled:  # by an interrupt of an earlier process
            return "retrying"
        verdict = made[-1].attempt.verdict
        broken = {finding.class_ for finding in made[-1].judgement.findings if finding.verdict is Verdict.INFRA}
        if broken == {UNREAD}:  # the job did its work; only its storage could not be read
            return ""
        if verdict in OUT_OF_BOUNDS:
            out = out_of_bounds(made)
            confirm = cell.spec.confirm
            return "confirming" if agreeing(out) <= confirm and len(out) <= 2 * confirm else ""
        retries = cell.spec.retries if self._options.retries is None else self._options.retries
        wanted = cell.spec.retry_on
        ended = [one.attempt for one in made if not one.attempt.cancelled]
        tried = sum(attempt.verdict in wanted for attempt in ended)
        return "retrying" if verdict in wanted and tried <= retries else ""

    async def _follower(self, name: str) -> Follower:
        if name not in self._followers:
            entry = self._prepared.suite.targets[name]
            follower = Follower(plugins.targets()[entry.kind].open(name, entry.options), self._secrets.mask)
            self._followers[name] = follower
            self._opened[name] = asyncio.create_task(follower.open())
        await asyncio.shield(self._opened[name])
        return self._followers[name]

    async def _sweep(self) -> None:
        """Removes everything that still has the run's label: jobs that this or an earlier process could not remove, and
        the run's own objects if a process was killed while removing its last job."""
        if self._removing:
            done, _ = await asyncio.wait(self._removing, timeout=OPEN_S)
            for task in done:
                task.result()
        past = [attempt for attempts in self._past.attempts.values() for attempt in attempts]
        before = [part.target for attempt in past for part in attempt.parts.values()]
        for name in dict.fromkeys([*self._followers, *before]):
            opening = self._opened.get(name)
            if opening and opening.done() and opening.exception() is not None:
                continue
            if opening and not opening.done() and name not in before:  # interrupted: nothing was created
                continue
            try:
                try:
                    async with asyncio.timeout(OPEN_S):
                        target = (await self._follower(name)).target
                except TimeoutError:
                    raise TargetError(f"target {name} did not answer within {OPEN_S:g} s") from None
                for found in await target.list(self._folder.run):
                    # Adopt it before removing it: a job that another process owns must stop this run.
                    try:
                        await target.adopt(found.handle)
                    except RunInUse:
                        raise
                    except TargetError:
                        pass  # half created: nothing to adopt
                    await target.remove(found.handle)
            except RunInUse:
                raise
            except TargetError as error:
                why = self._secrets.mask.text(str(error))
                await self._journal.write("left", why=why)
                self._listener.update("", "left behind", f"{why}; run `seatrial reap` to try again")

    def _results(self, cells: list[CellResult]) -> RunResults:
        plan = self._prepared.plan
        seconds = self._past.finished_s
        if seconds is None or self._past.interrupted:  # else only its results are written again
            seconds = asyncio.get_running_loop().time() - self._context.began_s
        interrupted = self._interrupted and any(cell.unfinished for cell in cells)
        return RunResults(
            version=VERSION,
            run=self._folder.run,
            suite=self._prepared.suite.name,
            suite_path=str(self._prepared.suite.path),
            verdict=run_verdict(cells, interrupted),
            cells=cells,
            excluded=list(plan.excluded),
            causes=find_causes(cells),
            started_s=self._past.started_s or 0.0,
            seconds=seconds,
            counts=dict(Counter([*(str(cell.verdict) for cell in cells), *("flaky" for cell in cells if cell.flaky)])),
            interrupted=interrupted,
            seatrial=__version__,
            commit=self._options.commit,
            target=self._prepared.suite.target_override,
            overrides=list(self._prepared.suite.overrides),
            axes={trial: {axis: [*found] for axis, found in of.items()} for trial, of in plan.labels.items()},
        )

    def interrupt(self) -> None:
        """Starts nothing new and cancels running jobs; `execute` returns when their results are collected. Call it in
        the event loop of the run; a second call does nothing."""
        if self._interrupted:
            return
        self._interrupted = True
        self._stop_why = "not started: interrupted"
        self._listener.update("", "interrupted", "stopping jobs")
        if self._verifying is None:
            return
        self._verifying.cancel()
        with contextlib.suppress(RecordError):  # the next failing write stops the run
            self._cancel()

    def _cancel(self) -> None:
        """Cancels all attempts. Journalled first, so that a run that is killed now stays interrupted."""
        self._journal.append("interrupted")
        for attempt in list(self._attempts):
            attempt.cancel()


def _in_short(attempt: AttemptResult) -> str:
    """The error that a program printed; of a metric out of bounds, the reason says more."""
    return "" if attempt.verdict in OUT_OF_BOUNDS else attempt.headline
