"""One try at a cell: its parts, each moved from one state to the next by one loop until all are removed.

Every effect is journalled before and after, so that the same loop takes up an attempt in whatever state an earlier
process left it. What the parts are is read from their `job.json`, never computed anew."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seatrial.engine.collect import clear_scratch, observe, unobserved
from seatrial.engine.follow import BEGUN, FollowedJob, Follower
from seatrial.engine.secrets import Secrets
from seatrial.engine.states import AttemptRecord, PartRecord, State
from seatrial.job import PEER, Exit, Job, Limits, Observation, Outcome, Part, Peer, Place, Ready, Stage
from seatrial.record import Journal, RunFolder
from seatrial.suite import Cell
from seatrial.targets import DamagedJob, Found, RunInUse, TargetError, TargetLost

_T = TypeVar("_T")
STOP_AGAIN_S = 5.0
REPLAY_S = 5.0  # in which a target tells of an adopted job what happened before
PREPARING_S = 0.5  # between two looks at what is done before a job can start
BACKSTOP_S = 5.0  # a target ends a job by its own limits; this long after that, the engine does
# Ends that a job did not choose: when we were ending it, our own reason says more.
_NOT_ITS_OWN = (Outcome.CANCELLED, Outcome.EVICTED, Outcome.LOST, Outcome.SIGNAL)


@dataclass(frozen=True)
class Around:
    """What the attempts of a run share. `at` is the failpoint; `update` shows a cell's state to a person."""

    folder: RunFolder
    journal: Journal
    secrets: Secrets
    follower: Callable[[str], Awaitable[Follower]]  # by the target's name
    kinds: dict[str, str]  # of the targets, by their names
    one_machine: frozenset[str]  # targets whose jobs only the machine of their submitter knows
    update: Callable[[str, str, str], None]  # cell id, state, progress
    at: Callable[[str], None]
    host: str = field(default_factory=socket.gethostname)

    def mask(self, text: str) -> str:
        return self.secrets.mask.text(text)


class _Part:
    """A part, its state, and what is known of its job."""

    def __init__(self, part: Part, record: PartRecord, taken_up: bool) -> None:
        self.part = part
        self.job: Job = part.job
        self.name = part.name
        self.record = record
        self.taken_up = taken_up  # from another process
        self.adopted = not taken_up
        self.news = asyncio.Event()
        now_s = asyncio.get_running_loop().time()
        begun_s = record.at_s.get(record.state, time.time())  # by the journal
        self.since_s = now_s - max(0.0, time.time() - begun_s)  # when its present limit began
        self.not_before_s = now_s  # no limit is over before this
        self.submitting: asyncio.Task[str] | None = None
        self.maybe_known = taken_up  # its target may have a job that we have no handle of
        self.stop_again_s: float | None = None
        self.gone = False  # its target does not have it any more
        self.follower: Follower | None = None
        self.followed = FollowedJob()
        self.observation: Observation | None = None

    @property
    def state(self) -> State:
        return self.record.state

    def over(self) -> bool:
        return self.state.reached(State.ENDED)

    def usable(self) -> bool:
        """Whether a part that comes after this one can begin."""
        enough = State.READY if self.job.ready is not None else State.STARTED
        return self.state.reached(enough) and not self.over()


class Attempt:
    """Makes one attempt. `cancel` may be called at any time; `run` returns soon after."""

    def __init__(self, around: Around, cell: Cell, number: int, record: AttemptRecord | None) -> None:
        self._around = around
        self._cell = cell
        self._number = number
        self._record = record
        self._parts: dict[str, _Part] = {}
        self._cancelled = False

    # ---- from outside

    async def run(self, parts: tuple[Part, ...] | None) -> dict[str, Observation]:
        """What was observed of each part. `parts` of a new attempt; None: those that its record says were meant.

        Raises DamagedFile when what an earlier process wrote of the attempt cannot be read."""
        if parts is None:
            assert self._record is not None
            await self._take_up(self._record)
        else:
            await self._mean(parts)
        await together(*(self._live(part) for part in self._parts.values()))
        return {name: part.observation for name, part in self._parts.items() if part.observation is not None}

    def cancel(self) -> None:
        """End what runs, and let nothing that is being submitted start to run."""
        self._cancelled = True
        for part in self._parts.values():
            if part.submitting is not None:
                part.submitting.cancel()
        self._wake()

    @property
    def wall_seconds(self) -> float:
        """From the submission of its parts to their end."""
        return max((part.record.wall_seconds for part in self._parts.values()), default=0.0)

    async def discard(self) -> None:
        """Remove what can be removed of an attempt that broke through a bug of ours; the sweep finds the rest."""
        for part in self._parts.values():
            if part.record.handle is not None and part.follower is not None and part.state is not State.REMOVED:
                with contextlib.suppress(Exception):
                    await part.follower.target.remove(part.record.handle)

    # ---- the loop

    async def _live(self, part: _Part) -> None:
        step = {
            State.MEANT: self._submit,
            State.SUBMITTED: self._follow,
            State.STARTED: self._follow,
            State.READY: self._follow,
            State.ENDED: self._collect,
            State.COLLECTED: self._remove,
        }
        while part.state is not State.REMOVED:
            await step[part.state](part)

    async def _move(self, part: _Part, state: State, files: Sequence[Path] = (), **fields: object) -> None:
        """Journalled first: what the journal does not say has not happened; with `files`, to the disk."""
        await self._write(state, part, files, **fields)
        part.record.state = state
        part.record.at_s[state] = time.time()
        self._wake()

    def _write(self, event: str, part: _Part, files: Sequence[Path] = (), **fields: object) -> Awaitable[None]:
        named = {"cell": self._cell.hash, "attempt": self._number, "part": part.name}
        return self._around.journal.write(event, durable=bool(files), files=files, **named, **fields)

    def _wake(self) -> None:
        for part in self._parts.values():
            part.news.set()

    # ---- meant

    async def _mean(self, parts: tuple[Part, ...]) -> None:
        files = [self._around.folder.write_part(self._cell.hash, part) for part in parts]
        self._around.at("jobs written")
        await self._around.journal.write(
            State.MEANT,
            durable=True,
            files=files,
            cell=self._cell.hash,
            id=self._cell.id,
            attempt=self._number,
            host=self._around.host,
            parts={part.name: part.target for part in parts},
        )
        self._parts = {part.name: _Part(part, PartRecord(part.target), taken_up=False) for part in parts}

    async def _take_up(self, record: AttemptRecord) -> None:
        folder, cell = self._around.folder, self._cell.hash
        for name, known in record.parts.items():
            part = _Part(folder.read_part(cell, self._number, name), known, taken_up=True)
            if known.state.reached(State.COLLECTED):
                part.observation = folder.read_observation(cell, self._number, name)
            else:
                await asyncio.to_thread(clear_scratch, folder.attempt(cell, self._number, name))
            self._parts[name] = part
        for part in self._parts.values():
            if not part.state.reached(State.COLLECTED):
                part.follower = await self._around.follower(part.record.target)

    # ---- submitted

    async def _submit(self, part: _Part) -> None:
        """Once the part that it comes after is ready; never when it is not needed any more."""
        part.follower = part.follower or await self._around.follower(part.record.target)
        if part.record.stopping is not None:  # an earlier process gave it up, and may not have got to the end of that
            return await self._give_up(part, part.record.stopping)
        while (why := self._no_need(part)) is None and not self._may_begin(part):
            await self._news(part, None)
        if why is not None:
            return await self._submit_no_more(part, why)
        try:
            job = await self._complete(part)
            if (why := self._no_need(part)) is not None:  # in the same turn in which the submission begins
                return await self._submit_no_more(part, why)
            handle = await self._submitted(part, job)
        except (RunInUse, TargetLost):
            raise  # nothing is known of the part, and nothing is to be: whoever has the run then goes on with it
        except TargetError as error:
            why = Exit(error.outcome, message=self._around.mask(str(error)))
            await self._write("stopping", part, exit=why)
            return await self._give_up(part, why)
        part.record.handle = handle
        await self._move(part, State.SUBMITTED, handle=handle)

    async def _submit_no_more(self, part: _Part, why: Exit) -> None:
        """A part that is not needed is not submitted; what an earlier process submitted is followed to its end."""
        found = await self._find(part) if part.maybe_known else None
        part.record.handle = found.handle if found else None
        if found is None:
            await self._end(part, why)
        elif await self._adopt(part) is None:
            await self._move(part, State.SUBMITTED, handle=found.handle)
        else:  # half made: it never started
            part.record.handle = None
            part.gone = False
            await self._give_up(part, why)

    async def _complete(self, part: _Part) -> Job:
        """The job with what was not known when the parts were meant: the way to the part that it comes after."""
        if part.taken_up:
            self._refuse_elsewhere(part)
        self._around.update(self._cell.id, "starting", "")
        job = part.job
        if part.part.after:
            job = await self._with_peer(part, self._parts[part.part.after])
        elif part.part.uses:
            used = await self._around.follower(part.part.uses)
            job = self._with_way(
                job, Peer("", part.part.uses, self._around.kinds[part.part.uses], used.target.address(), "")
            )
        return job

    async def _submitted(self, part: _Part, job: Job) -> str:
        """Found or made; what has to be built or pulled before it can start counts as waiting for a place."""
        assert part.follower
        part.since_s = asyncio.get_running_loop().time()
        part.maybe_known = True
        part.submitting = asyncio.create_task(part.follower.target.submit(job, self._around.secrets.of(job)))
        showing = asyncio.create_task(self._show_preparing(part))
        try:
            async with asyncio.timeout(job.limits.queue_s):
                handle = await part.submitting
        except TimeoutError:
            raise TargetError(_no_place(job.limits), Outcome.QUEUE) from None
        except asyncio.CancelledError:
            if not self._cancelled or not part.submitting.cancelled() or _is_being_cancelled():
                raise
            # Whether it came to be is not known: removing it, or the sweep at the run's end, finds it by its name.
            raise TargetError("cancelled while it was being submitted", Outcome.CANCELLED) from None
        finally:
            part.submitting = None
            showing.cancel()
        self._around.at("submit done")
        return handle

    async def _show_preparing(self, part: _Part) -> None:
        """Building an environment, or pulling an image, may take minutes."""
        assert part.follower
        while True:
            await asyncio.sleep(PREPARING_S)
            if doing := part.follower.target.preparing(part.job.environment):
                self._around.update(self._cell.id, "waiting", self._around.mask(doing))

    async def _with_peer(self, part: _Part, other: _Part) -> Job:
        assert part.follower
        assert other.follower
        assert other.record.handle
        name, handle = other.record.target, other.record.handle
        address = other.follower.target.address()
        inside = await other.follower.target.addresses(handle, part.follower.target.address())
        return self._with_way(part.job, Peer(other.name, name, self._around.kinds[name], address, handle, inside))

    def _with_way(self, job: Job, peer: Peer) -> Job:
        return msgspec.structs.replace(job, env={**job.env, PEER: msgspec.json.encode(peer).decode()})

    def _refuse_elsewhere(self, part: _Part) -> None:
        meant_on = self._record.host if self._record else ""
        if meant_on not in ("", self._around.host) and part.record.target in self._around.one_machine:
            why = (
                f"it may have been started on {meant_on}, and this is {self._around.host}: only there can that be told"
            )
            raise TargetError(f"{why}; `seatrial attach` it there, or run the cell anew", Outcome.REFUSED)

    def _may_begin(self, part: _Part) -> bool:
        return not part.part.after or self._parts[part.part.after].usable()

    async def _give_up(self, part: _Part, why: Exit) -> None:
        """End a part whose submission failed. What that may have left is removed before other parts see this one as
        over; where it cannot be now, it is tried again when the part is removed."""
        assert part.follower
        with contextlib.suppress(TargetError):
            found = await self._find(part) if part.maybe_known else None
            if found is not None:
                await part.follower.target.remove(found.handle)
            part.maybe_known = False
        await self._end(part, why)

    async def _end(self, part: _Part, why: Exit) -> None:
        part.record.exit = why
        await self._move(part, State.ENDED, exit=why)

    # ---- started, ready, ended

    async def _follow(self, part: _Part) -> None:
        """Until the job has ended. What is over a limit, or not needed any more, is told to end."""
        assert part.follower
        assert part.record.handle
        handle, follower = part.record.handle, part.follower
        part.followed = followed = follower.job(handle)
        followed.changed = part.news
        part.news.set()  # of events that came before
        if not part.adopted:
            if (why := await self._adopt(part)) is not None:
                return await self._end(part, why)
            if part.record.stopping is not None:
                await self._stop(part)
        while followed.exit is None:
            await self._note_stages(part, followed)
            self._show(part, followed)
            over, deadline_s = self._limit(part)
            why = self._no_need(part) or over
            if part.record.stopping is None and why is not None:
                part.record.stopping = why
                await self._write("stopping", part, exit=why)
                await self._stop(part)
                continue
            await self._news(part, part.stop_again_s if part.record.stopping else deadline_s)
            follower.check(followed)
            if part.stop_again_s is not None and followed.exit is None:
                await self._stop(part)
        await self._note_stages(part, followed)
        part.record.exit = self._exit(part, followed.exit)
        await self._move(part, State.ENDED, exit=part.record.exit)

    async def _adopt(self, part: _Part) -> Exit | None:
        """Take the job up; why not, where its target does not have it any more. Raises TargetError where that cannot be
        told: then it may still run, and the run stops rather than go on without it."""
        assert part.follower
        assert part.record.handle
        try:
            await part.follower.target.adopt(part.record.handle)
        except (RunInUse, TargetLost):
            raise
        except DamagedJob as error:  # others need not stop for it, and it must not go on with nobody to end it
            await part.follower.target.remove(part.record.handle)
            part.gone = True
            return Exit(error.outcome, message=self._around.mask(str(error)))
        except TargetError as error:
            found = await self._find(part)
            if found is not None and found.alive:
                raise
            part.gone = True
            return Exit(error.outcome, message=self._around.mask(str(error)))
        part.adopted = True
        # What happened while no process followed the job is told now: it may have become ready in time.
        part.not_before_s = asyncio.get_running_loop().time() + REPLAY_S
        return None

    async def _note_stages(self, part: _Part, followed: FollowedJob) -> None:
        """`started` and `ready`, as they come. Each begins another limit."""
        for state, stages in ((State.STARTED, BEGUN), (State.READY, (Stage.READY,))):
            if not part.state.reached(state) and followed.reached(*stages):
                part.since_s = asyncio.get_running_loop().time()
                await self._move(part, state)

    def _limit(self, part: _Part) -> tuple[Exit | None, float | None]:
        """Why the job is over its limit, if it is; else when it would be."""
        limits, ready = part.job.limits, part.job.ready
        candidates: list[tuple[float, Exit]] = []
        if part.state is State.SUBMITTED:
            if limits.queue_s is not None:
                waited_for = self._around.mask(part.followed.progress) if part.followed else ""
                candidates.append((limits.queue_s, Exit(Outcome.QUEUE, message=_no_place(limits, waited_for))))
        else:
            if limits.run_s is not None:
                text = f"ran for more than {limits.run_s:g} s, and its target did not end it"
                candidates.append((limits.run_s + limits.grace_s + BACKSTOP_S, Exit(Outcome.TIMEOUT, message=text)))
            if part.state is State.STARTED and ready is not None and ready.within_s is not None:
                candidates.append((ready.within_s, Exit(Outcome.UNREADY, message=_unready(ready))))
        if not candidates:
            return None, None
        after_s, why = min(candidates, key=lambda one: one[0])
        deadline_s = max(part.since_s + after_s, part.not_before_s)
        return (why, None) if asyncio.get_running_loop().time() >= deadline_s else (None, deadline_s)

    def _no_need(self, part: _Part) -> Exit | None:
        """Why the part should not go on, or not begin, if so."""
        if self._cancelled:
            return Exit(Outcome.CANCELLED, message="cancelled")
        after = part.part.after
        if after and self._parts[after].over():
            ended = self._parts[after].record.exit
            # That one which should have gone on exited by itself is nobody's finding but this part's.
            exited = ended is not None and ended.outcome is Outcome.EXITED
            outcome = Outcome.STOPPED if exited else Outcome.RELEASED
            return Exit(outcome, message=f"the {after} ended before it")
        if not part.part.leads and all(other.over() for other in self._parts.values() if other.part.leads):
            return Exit(Outcome.RELEASED, message="no longer needed")
        return None

    async def _stop(self, part: _Part) -> None:
        """Tell the job to end; again after a while when its target could not be told."""
        assert part.follower
        assert part.record.handle
        part.stop_again_s = None
        try:
            await part.follower.target.cancel(part.record.handle)
        except TargetLost as error:
            part.follower.give_up(error)  # nothing will be heard of its end
        except RunInUse:
            raise
        except TargetError:
            part.stop_again_s = asyncio.get_running_loop().time() + STOP_AGAIN_S

    def _exit(self, part: _Part, reported: Exit) -> Exit:
        """How it ended: as its target says, or by us."""
        stopping = part.record.stopping
        if stopping is not None and reported.outcome in _NOT_ITS_OWN:
            return msgspec.structs.replace(stopping, code=reported.code, signal=reported.signal)
        if reported.outcome is Outcome.CANCELLED:
            return Exit(Outcome.EVICTED, reported.code, reported.signal, "it was told to end, and not by us")
        return msgspec.structs.replace(reported, message=self._around.mask(reported.message))

    def _show(self, part: _Part, followed: FollowedJob) -> None:
        if not part.part.leads and len(self._parts) > 1 and part.state is State.READY:
            return  # the others say what goes on
        begun = part.state.reached(State.STARTED)
        progress = followed.progress if len(self._parts) == 1 else f"{part.name}: {followed.progress}"
        self._around.update(self._cell.id, "running" if begun or not followed.progress else "waiting", progress)

    async def _news(self, part: _Part, deadline_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await part.news.wait()
        part.news.clear()

    # ---- collected, removed

    async def _collect(self, part: _Part) -> None:
        assert part.record.exit
        place = Place(part.record.target, self._cell.machine_name, hosts=part.followed.hosts)
        if part.record.handle is not None and not part.adopted and not part.gone:
            await self._hear_again(part)
            place = msgspec.structs.replace(place, hosts=part.followed.hosts)
        if part.record.handle is None or part.gone:
            part.observation = unobserved(part.job, place, part.record.exit)
        else:
            part.observation = await self._observed(part, place, part.record.exit)
        written = self._around.folder.write_observation(self._cell.hash, part.name, part.observation)
        self._around.at("observation written")
        await self._move(part, State.COLLECTED, files=[written])

    async def _observed(self, part: _Part, place: Place, ended: Exit) -> Observation:
        assert part.follower
        assert part.record.handle
        into = self._around.folder.attempt(self._cell.hash, self._number, part.name)
        target, handle = part.follower.target, part.record.handle
        try:
            observation = await observe(
                target, handle, part.job, into, place, ended, self._around.secrets.mask, self._around.at
            )
        except (RunInUse, TargetLost):
            raise  # its results are still there
        except TargetError as error:
            text = f"its results could not be collected: {self._around.mask(str(error))}"
            observation = unobserved(part.job, place, Exit(Outcome.INFRA, message=text))
        part.follower.forget(handle)
        return msgspec.structs.replace(observation, stages=list(part.followed.stages))

    async def _hear_again(self, part: _Part) -> None:
        """When and where a job ran that had ended when an earlier process was killed: its events come once more."""
        assert part.follower
        assert part.record.handle
        if (why := await self._adopt(part)) is not None:
            part.record.exit = why
            return
        part.followed = part.follower.job(part.record.handle)
        part.followed.changed = part.news
        while part.followed.exit is None:
            part.follower.check(part.followed)
            await self._news(part, None)

    async def _remove(self, part: _Part) -> None:
        """The results are safe, and whatever goes wrong here changes nothing of them; what cannot be removed is found
        by its label at the run's end, or by whoever takes the run up, or by reap."""
        try:
            part.follower = part.follower or await self._around.follower(part.record.target)
            handle = part.record.handle
            if handle is None and part.maybe_known and (found := await self._find(part)) is not None:
                handle = found.handle  # of a submission whose answer was lost
            if handle is not None:
                await part.follower.target.remove(handle)
        except Exception as error:  # noqa: BLE001
            why = str(error) if isinstance(error, TargetError) else f"{type(error).__name__}: {error}"
            await self._write("left", part, why=self._around.mask(why))
            part.record.state = State.REMOVED  # for this process; the journal does not say so
            return
        self._around.at("remove done")
        await self._move(part, State.REMOVED)

    async def _find(self, part: _Part) -> Found | None:
        """The job, if its target has it."""
        assert part.follower
        jobs = await part.follower.target.list(part.job.run)
        return next((found for found in jobs if found.name == part.job.name), None)


def _no_place(limits: Limits, waited_for: str = "") -> str:
    return f"got no place within {limits.queue_s:g} s" + (f"; {waited_for}" if waited_for else "")


def _unready(ready: Ready) -> str:
    asked = (
        f"GET {ready.path} of port {ready.port} had no good answer" if ready.path else f"port {ready.port} was closed"
    )
    return f"{asked} {ready.within_s:g} s after it started"


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def together(*work: Coroutine[Any, Any, _T]) -> list[_T]:
    """All of it at once. The first that raises ends the others, and is what is raised: one error, not a group."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
