"""One try at a cell: submit, follow, collect, judge, remove. Every effect is journalled before and after, so that
the same code takes up an attempt at whatever point an earlier process left it."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from seatrial.engine.artifacts import with_artifacts
from seatrial.engine.collect import FILES, clear_scratch, collect, file_names, is_little, read_all
from seatrial.engine.fingerprint import fingerprint
from seatrial.engine.follow import Follower
from seatrial.engine.judge import judge, reason
from seatrial.engine.past import AttemptPast
from seatrial.engine.reap import FOLDER
from seatrial.engine.secret import Secrets
from seatrial.job import Attempt, Exit, Finding, Job, Observation, Outcome, Place, Verdict, read_records, worst
from seatrial.record import Journal, RunFolder
from seatrial.suite import Cell
from seatrial.target import RunInUse, Target, TargetError, TargetLost
from seatrial.trial import Judgement, Kind


class Listener(Protocol):
    """Is told of each change of a cell, to show it to a person."""

    def update(self, cell: str, state: str, progress: str = "") -> None: ...


class Judged(msgspec.Struct, frozen=True):
    """An attempt that is over, with all that its checks found."""

    attempt: Attempt
    judgement: Judgement
    fingerprint: str = ""


class Attempts:
    """Makes the attempts of a run. `at` is the failpoint."""

    def __init__(
        self,
        folder: RunFolder,
        journal: Journal,
        secrets: Secrets,
        listener: Listener,
        at: Callable[[str], None],
        interrupted: bool = False,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        """`interrupted`: a process before this one was told to stop, and cancelled what ran then. `bound`: the targets
        whose jobs no other machine than that of their submitter knows of."""
        self._folder = folder
        self._journal = journal
        self._secrets = secrets
        self._mask = secrets.mask
        self._listener = listener
        self._at = at
        self._running: dict[str, Follower] = {}  # by handle
        self._submitting: set[asyncio.Task[str]] = set()
        self._cancelled = False
        self._interrupted = interrupted
        self._bound = bound
        self._host = socket.gethostname()

    async def cancel(self) -> None:
        """End what runs, and let nothing that is being submitted start to run. `make` returns soon after."""
        self._cancelled = True
        for task in self._submitting:
            task.cancel()
        running = list(self._running.items())
        ends = (follower.target.cancel(handle) for handle, follower in running)
        for (_, follower), heard in zip(running, await asyncio.gather(*ends, return_exceptions=True), strict=True):
            if isinstance(heard, TargetLost):  # then nobody will tell of their end
                follower.give_up(heard)

    async def make(
        self,
        cell: Cell,
        kind: Kind,
        follower: Follower,
        number: int,
        past: AttemptPast | None,
        avoid: tuple[str, ...] = (),
    ) -> Judged:
        """The attempt of that number, from wherever the `past` left it; rather not on the hosts to `avoid`."""
        if past and not past.removed:
            await asyncio.to_thread(clear_scratch, self._folder.attempt(cell.hash, number))
        if past and past.judged:
            if past.handle and not past.removed:
                await self._remove(cell, number, follower, past.handle)
            try:
                return self._judge(cell, kind, self._folder.read_observation(cell.hash, number))
            except (OSError, msgspec.DecodeError) as error:
                return self.unknown(cell, number, f"what was seen of it cannot be read any more: {error}")
        job = self._job(cell, kind, number, avoid)
        handle, observation = await self._submit_and_follow(cell, job, follower, past)
        await asyncio.to_thread(self._folder.write_observation, cell.hash, observation)
        self._at("observation written")
        judged = self._judge(cell, kind, observation)
        await self._journal.write(
            "judged",
            durable=True,
            cell=cell.hash,
            attempt=number,
            verdict=judged.attempt.verdict,
            why=judged.attempt.why,
        )
        if handle:
            await self._remove(cell, number, follower, handle)
        return judged

    def _job(self, cell: Cell, kind: Kind, number: int, avoid: tuple[str, ...]) -> Job:
        job = kind.job(cell, self._folder.run, number)
        return msgspec.structs.replace(job, labels={**job.labels, FOLDER: str(self._folder.path)}, avoid=avoid)

    async def _submit_and_follow(
        self, cell: Cell, job: Job, follower: Follower, past: AttemptPast | None
    ) -> tuple[str | None, Observation]:
        place = Place(target=cell.target, machine=cell.machine_name)
        submitted_s = time.monotonic()
        try:
            handle = await self._submit(cell, job, follower, past)
        except (RunInUse, TargetLost):
            raise  # nothing is known of the attempt, and nothing is to be: whoever has the run then makes it
        except TargetError as error:
            ended = Exit(error.outcome, message=self._mask.text(str(error)))
            return None, self._nothing_seen(job, place, ended)
        self._running[handle] = follower
        try:
            if self._cancelled:
                await follower.target.cancel(handle)
            seen = await follower.wait(
                handle,
                job.limits,
                lambda progress, begun: self._listener.update(
                    cell.id, "running" if begun or not progress else "waiting", progress
                ),
                submitted_s,
            )
            assert seen.exit
            if seen.exit.outcome is Outcome.CANCELLED and not self._asked(past):
                seen.exit = Exit(Outcome.EVICTED, seen.exit.code, seen.exit.signal, "it was told to end, and not by us")
            place = Place(target=cell.target, machine=cell.machine_name, host=seen.host)
            await self._journal.write(
                "ended", cell=cell.hash, attempt=job.attempt, outcome=seen.exit.outcome, code=seen.exit.code
            )
            try:
                observation = await self._collect(cell, job, follower, handle, place, seen.exit)
            except TargetLost:
                raise  # they are still there
            except TargetError as error:
                ended = Exit(
                    Outcome.INFRA, message=f"its results could not be collected: {self._mask.text(str(error))}"
                )
                observation = self._nothing_seen(job, place, ended)
            return handle, msgspec.structs.replace(observation, stages=list(seen.stages))
        finally:
            del self._running[handle]
            follower.forget(handle)

    def _asked(self, past: AttemptPast | None) -> bool:
        """Whether its end was of Seatrial's own making: by this process, or by the one that it was taken over from."""
        return self._cancelled or (past is not None and self._interrupted)

    async def _submit(self, cell: Cell, job: Job, follower: Follower, past: AttemptPast | None) -> str:
        if past and past.handle:
            await follower.target.adopt(past.handle)
            return past.handle
        if past and past.host not in ("", self._host) and cell.target in self._bound:
            why = f"it may have been started on {past.host}, and this is {self._host}: only there can that be told"
            raise TargetError(f"{why}; `seatrial attach` it there, or run the cell anew", Outcome.REFUSED)
        if self._cancelled:
            handle = await _by_name(follower.target, job) if past else None
            if handle is None:
                raise TargetError("cancelled before it was submitted", Outcome.CANCELLED)
            await follower.target.adopt(handle)
            await self._journal.write("submitted", cell=cell.hash, attempt=job.attempt, handle=handle)
            return handle
        self._listener.update(cell.id, "starting")
        if past is None:
            await self._journal.write(
                "submit",
                durable=True,
                cell=cell.hash,
                id=cell.id,
                attempt=job.attempt,
                job=job.name,
                target=cell.target,
                host=self._host,
            )
        task = asyncio.create_task(follower.submit(job, self._secrets.of(job)))
        self._submitting.add(task)
        try:
            handle = await task
        except asyncio.CancelledError:
            if not (self._cancelled and task.cancelled()):
                raise
            # Whether it came to be is not known: the sweep at the run's end removes it by its label if so.
            raise TargetError("cancelled while it was being submitted", Outcome.CANCELLED) from None
        finally:
            self._submitting.discard(task)
        self._at("submit done")
        await self._journal.write("submitted", cell=cell.hash, attempt=job.attempt, handle=handle)
        return handle

    async def _collect(
        self, cell: Cell, job: Job, follower: Follower, handle: str, place: Place, ended: Exit
    ) -> Observation:
        into = self._folder.attempt(cell.hash, job.attempt)
        apart = await collect(follower.target, handle, job, into)
        self._at("fetched")
        if not apart and is_little(job, into):
            return self._observed(job, into, apart, place, ended)
        # Records may be large, and files far away: neither may hold up who listens to the other jobs.
        return await asyncio.to_thread(self._observed, job, into, apart, place, ended)

    def _observed(self, job: Job, into: Path, apart: bool, place: Place, ended: Exit) -> Observation:
        records = read_all(job, into, apart)
        observation = Observation(
            job=job.name,
            attempt=job.attempt,
            place=place,
            exit=msgspec.structs.replace(ended, message=self._mask.text(ended.message)),
            steps=records.steps,
            left=records.left,
            log_bytes=records.log_bytes,
            log_omitted_bytes=records.log_omitted_bytes,
            broken_records=records.broken,
            seconds=records.seconds,
            files=[self._mask.text(name) for name in file_names(into / FILES)],
            hardware=records.hardware,
        )
        return with_artifacts(job, observation, self._mask)

    def _nothing_seen(self, job: Job, place: Place, ended: Exit) -> Observation:
        return Observation(
            job=job.name, attempt=job.attempt, place=place, exit=ended, steps=read_records([], job.steps).steps
        )

    async def _remove(self, cell: Cell, number: int, follower: Follower, handle: str) -> None:
        try:
            await follower.target.remove(handle)
        except (
            TargetError
        ) as error:  # the results are safe; what is left is found by its label at the run's end or by reap
            await self._journal.write("left", cell=cell.hash, attempt=number, why=self._mask.text(str(error)))
            return
        self._at("remove done")
        await self._journal.write("removed", cell=cell.hash, attempt=number)

    def unknown(self, cell: Cell, number: int, why: str) -> Judged:
        """An attempt of which nothing can be said, through a fault of ours or of the run folder."""
        why = self._mask.text(why)
        ended = Exit(Outcome.INFRA, message=why)
        place = Place(target=cell.target, machine=cell.machine_name)
        finding = Finding("job", "seatrial", Verdict.INFRA, "infra", why)
        return Judged(Attempt(number, place, [], ended, Verdict.INFRA, why), Judgement([finding]))

    def _judge(self, cell: Cell, kind: Kind, observation: Observation) -> Judged:
        printed = fingerprint(cell, observation.hardware)
        at_s = observation.stages[0].wall_s if observation.stages else 0.0
        judgement = judge(cell, kind, observation, printed, at_s)
        findings = judgement.findings
        verdict = worst(finding.verdict for finding in findings)
        why = reason(findings, verdict)
        if observation.exit.outcome is Outcome.CANCELLED:
            if verdict.good:  # what had failed by then stays failed
                verdict, why = Verdict.SKIPPED, "cancelled while it ran"
            else:
                why += " (and then it was cancelled)"
        attempt = Attempt(
            number=observation.attempt,
            place=observation.place,
            stages=observation.stages,
            exit=observation.exit,
            verdict=verdict,
            why=why,
            seconds=observation.seconds,
        )
        return Judged(attempt, judgement, printed)


async def _by_name(target: Target, job: Job) -> str | None:
    """The handle of a job that an earlier process meant to submit, if it came to that."""
    return next((found.handle for found in await target.list(job.run) if found.name == job.name), None)
