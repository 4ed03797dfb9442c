"""The phases of a part, from planned to removed. Each phase is a class with the fields that are valid in it; its
`advance` does the work of the phase and returns the next one, or itself if it is not over.

Every effect is journalled before and after, so that another process can resume from the journal:

    journal                      phase after attach
    planned                      Planned; the job may have been submitted
    submitted, started, ready    Adopting
    ended, collected, removed    Ended, Collected, Removed
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from seatrial import plugins
from seatrial.engine.collect import observe, unobserved
from seatrial.engine.context import PartContext
from seatrial.engine.follow import BEGUN, FollowedJob, Follower
from seatrial.engine.states import State
from seatrial.job import PEER, Exit, Job, Limits, Observation, Outcome, Peer, Place, Stage
from seatrial.targets import DamagedJob, RunInUse, TargetError, TargetLost

STOP_AGAIN_S = 5.0
REPLAY_S = 5.0  # a target reports the past events of an adopted job within this time
PREPARING_S = 0.5  # poll interval for the preparation of a job
BACKSTOP_S = 5.0  # the engine stops a job this long after its target should have
# Outcomes that a job did not choose: if we were stopping it, our own reason is more useful.
_FORCED_OUTCOMES = (Outcome.CANCELLED, Outcome.EVICTED, Outcome.LOST, Outcome.SIGNAL)


class Unheld(Enum):
    """A part without a handle: whether its target may have a job with its name."""

    NONE = "none"
    MAYBE = "maybe"  # a submission was started, and its answer is unknown


@dataclass(frozen=True)
class Planned:
    job: Unheld = Unheld.NONE
    stopping: Exit | None = None  # an earlier process was giving it up

    async def advance(self, part: PartContext) -> "Phase":
        """Submits the job once the part that it comes after is ready, unless there is a reason to stop."""
        if self.stopping is not None:
            return await _give_up(self.stopping, part)
        if (why := part.stop_reason()) is not None:
            return await _abandon(self, why, part)
        if self.job is Unheld.MAYBE and await part.was_reaped() and not await part.find():
            # It may have run: submitting it again would be a second run of the same attempt.
            text = "the job was deleted by `seatrial reap` before its results were collected"
            return await _end(Exit(Outcome.LOST, message=text), Unheld.NONE, part)
        if (after := part.part.after) and part.usable(after) is None:
            await part.wait()
            return self
        kind = plugins.targets()[part.attempt.targets[part.part.target].kind]
        here = part.planned_on in ("", part.attempt.host) or not kind.one_machine
        if self.job is Unheld.MAYBE and not here:
            text = f"the job may still be running on {part.planned_on}, out of reach from {part.attempt.host}; "
            text += "run `seatrial attach` there, or run the cell again"
            return await _end(Exit(Outcome.REFUSED, message=text), Unheld.MAYBE, part)
        part.attempt.update(part.cell.id, "starting", "")
        target = await part.target()
        try:
            job = await _complete(part)
        except TargetError as error:
            return await _fail(error, self.job, part)
        if part.stop_reason() is not None or (after and part.usable(after) is None):
            return self  # the state changed while the job was completed
        task = asyncio.create_task(target.submit(job, part.attempt.secrets.of(job)))
        return Submitting(job, task, asyncio.get_running_loop().time())


@dataclass(frozen=True)
class Submitting:
    job: Job
    task: asyncio.Task[str]
    since_s: float

    async def advance(self, part: PartContext) -> "Phase":
        try:
            handle = await _new_handle(self, part)
        except TargetError as error:
            return await _fail(error, Unheld.MAYBE, part)
        part.attempt.at("submit done")
        await part.enter(State.SUBMITTED, handle=handle)
        return _following(handle, await part.follower(), State.SUBMITTED, self.since_s, part)


@dataclass(frozen=True)
class Adopting:
    handle: str
    step: State
    since_s: float
    stopping: Exit | None

    async def advance(self, part: PartContext) -> "Phase":
        if (gone := await _take_up(self.handle, part)) is not None:
            return await _end(gone.exit, gone.job, part)
        following = _following(self.handle, await part.follower(), self.step, self.since_s, part)
        # The target now replays events that no process followed: the job may have become ready in time.
        following = replace(following, heard_s=asyncio.get_running_loop().time() + REPLAY_S)
        return following if self.stopping is None else await _stop(following, self.stopping, part)


@dataclass(frozen=True)
class Following:
    """`step`: submitted, started or ready. Its limit counts from `since_s` and does not expire before `heard_s`, both
    in event loop time."""

    handle: str
    followed: FollowedJob
    step: State
    since_s: float
    heard_s: float = 0.0

    @property
    def begun(self) -> bool:
        return self.step is not State.SUBMITTED

    async def advance(self, part: PartContext) -> "Phase":
        """Waits for events. Stops the job if it exceeds a limit or is no longer needed."""
        if (later := await _next_step(self, part)) is not None:
            return later
        if self.followed.exit is not None:
            return await _end(_exit(self.followed.exit), self.handle, part, self.followed)
        _show(self, part)
        over, deadline_s = _limit(self, part)
        if (why := part.stop_reason() or over) is not None:
            await part.write("stopping", exit=why)
            return await _stop(self, why, part)
        await part.wait(deadline_s)
        (await part.follower()).check(self.followed)
        return self


@dataclass(frozen=True)
class Stopping:
    following: Following
    why: Exit
    again_s: float | None = None  # when to try again, if the target could not be reached

    async def advance(self, part: PartContext) -> "Phase":
        following, followed = self.following, self.following.followed
        if (later := await _next_step(following, part)) is not None:
            return replace(self, following=later)
        if followed.exit is not None:
            return await _end(_exit(followed.exit, self.why), following.handle, part, followed)
        _show(following, part)
        await part.wait(self.again_s)
        (await part.follower()).check(followed)
        if self.again_s is not None and followed.exit is None:
            return await _stop(following, self.why, part)
        return self


@dataclass(frozen=True)
class Ended:
    """`job`: the handle, if the target still has the job. `followed`: its events, if this process saw them."""

    exit: Exit
    job: str | Unheld
    followed: FollowedJob | None = None

    async def advance(self, part: PartContext) -> "Phase":
        if isinstance(self.job, str) and self.followed is None:
            return await _replay_events(self, self.job, part)
        place = Place(part.part.target, part.cell.machine_name, hosts=self.followed.hosts if self.followed else ())
        if isinstance(self.job, str) and self.followed is not None:
            observation = await _observed(self.job, self, self.followed, place, part)
        else:
            observation = unobserved(part.part.job, place, self.exit)
        written = part.attempt.folder.write_observation(part.cell.hash, part.part.name, observation)
        part.attempt.at("observation written")
        await part.enter(State.COLLECTED, files=[written])
        return Collected(self, observation)


@dataclass(frozen=True)
class Collected:
    ended: Ended
    observation: Observation

    async def advance(self, part: PartContext) -> "Phase":
        """Removes the job. The results are safe: no failure here changes them. The sweep at the run's end, a later
        attach and reap find the remaining jobs by label."""
        removed = Removed(self.ended, self.observation)
        try:
            handle = self.ended.job
            if handle is Unheld.MAYBE and (found := await part.find()) is not None:
                handle = found.handle  # the submission's response was lost
            if isinstance(handle, str):
                await (await part.target()).remove(handle)
        except Exception as error:  # noqa: BLE001
            why = str(error) if isinstance(error, TargetError) else f"{type(error).__name__}: {error}"
            await part.write("left", why=part.attempt.mask(why))
            return removed
        part.attempt.at("remove done")
        await part.enter(State.REMOVED)
        return removed


@dataclass(frozen=True)
class Removed(Collected):
    """Removed, or left behind with a `left` line in the journal."""


Phase = Planned | Submitting | Adopting | Following | Stopping | Ended | Collected | Removed


def end_of(phase: Phase) -> Ended | None:
    ended = phase.ended if isinstance(phase, Collected) else phase
    return ended if isinstance(ended, Ended) else None


def handle_of(phase: Phase) -> str | None:
    """The handle of a job that must be removed."""
    match phase:
        case Adopting() | Following():
            return phase.handle
        case Stopping():
            return phase.following.handle
        case Ended(job=str(handle)) | Collected(ended=Ended(job=str(handle))) if not isinstance(phase, Removed):
            return handle
        case _:
            return None


# ---- planned, submitting


async def _complete(part: PartContext) -> Job:
    """Adds what was unknown when the job was planned: how to reach the part or target that it uses."""
    job, after, uses = part.part.job, part.part.after, part.part.uses
    if after and (used := part.usable(after)) is not None:
        handle, name = used
        target = (await part.attempt.follower(name)).target
        inside = await target.addresses(handle, (await part.target()).address())
        way = Peer(after, name, part.attempt.targets[name].kind, target.address(), handle, inside)
    elif uses:
        way = Peer("", uses, part.attempt.targets[uses].kind, (await part.attempt.follower(uses)).target.address(), "")
    else:
        return job
    return msgspec.structs.replace(job, env={**job.env, PEER: msgspec.json.encode(way).decode()})


async def _new_handle(phase: Submitting, part: PartContext) -> str:
    """Waits for the submission. Building an environment or pulling an image counts as queue time."""
    showing = asyncio.create_task(_show_preparing(phase.job, part))
    try:
        async with asyncio.timeout(phase.job.limits.queue_s):
            return await phase.task
    except TimeoutError:
        raise TargetError(_not_scheduled(phase.job.limits), Outcome.QUEUE) from None
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if part.stop_reason() is None or not phase.task.cancelled() or (own and own.cancelling()):
            raise
        # The job may exist: its removal, or the sweep at the run's end, finds it by name.
        raise TargetError("cancelled during submission", Outcome.CANCELLED) from None
    finally:
        showing.cancel()


async def _show_preparing(job: Job, part: PartContext) -> None:
    """Shows progress: building an environment or pulling an image may take minutes."""
    target = await part.target()
    while True:
        await asyncio.sleep(PREPARING_S)
        if doing := target.preparing(job.environment):
            part.attempt.update(part.cell.id, "waiting", part.attempt.mask(doing))


async def _abandon(phase: Planned, why: Exit, part: PartContext) -> Phase:
    """Ends the part without submitting it. If an earlier process submitted it, follows that job to its end."""
    found = await part.find() if phase.job is Unheld.MAYBE else None
    if found is None:
        return await _end(why, Unheld.NONE, part)
    if await _take_up(found.handle, part) is not None:  # half created: it never started
        return await _give_up(why, part)
    await part.enter(State.SUBMITTED, handle=found.handle)
    now_s = asyncio.get_running_loop().time()
    return _following(found.handle, await part.follower(), State.SUBMITTED, now_s, part)


async def _fail(error: TargetError, job: Unheld, part: PartContext) -> Phase:
    if isinstance(error, RunInUse | TargetLost):
        raise error  # the part's state is unknown and not recorded; the process that owns the run continues
    why = Exit(error.outcome, message=part.attempt.mask(str(error)))
    if job is Unheld.NONE:
        return await _end(why, job, part)
    await part.write("stopping", exit=why)
    return await _give_up(why, part)


async def _give_up(why: Exit, part: PartContext) -> Phase:
    """Ends a part after a failed submission. An existing job is removed before other parts see this one as ended; if
    that fails, removing the part tries again."""
    job = Unheld.MAYBE
    with contextlib.suppress(TargetError):
        if (found := await part.find()) is not None:
            await (await part.target()).remove(found.handle)
        job = Unheld.NONE
    return await _end(why, job, part)


async def _end(why: Exit, job: str | Unheld, part: PartContext, followed: FollowedJob | None = None) -> Ended:
    await part.enter(State.ENDED, exit=why)
    return Ended(why, job, followed)


# ---- adopting, following, stopping


async def _take_up(handle: str, part: PartContext) -> Ended | None:
    """Adopts the job; returns how it ended if its target has lost it. Raises TargetError if the job may still run: the
    run then stops rather than continue without it."""
    target = await part.target()
    try:
        await target.adopt(handle)
    except (RunInUse, TargetLost):
        raise
    except DamagedJob as error:  # it must not run unobserved, but the other cells can continue
        await target.remove(handle)
        return Ended(Exit(error.outcome, message=part.attempt.mask(str(error))), Unheld.NONE)
    except TargetError as error:
        found = await part.find()
        if found is not None and found.alive:
            raise
        return Ended(Exit(error.outcome, message=part.attempt.mask(str(error))), Unheld.MAYBE)
    return None


def _following(handle: str, follower: Follower, step: State, since_s: float, part: PartContext) -> Following:
    followed = follower.job(handle)
    followed.changed = part.news
    part.news.set()  # for events that arrived before
    return Following(handle, followed, step, since_s)


async def _next_step(phase: Following, part: PartContext) -> Following | None:
    """Records `started` and `ready`. Each starts another limit."""
    for step, stages in ((State.STARTED, BEGUN), (State.READY, (Stage.READY,))):
        if not phase.step.reached(step) and phase.followed.reached(*stages):
            since_s = asyncio.get_running_loop().time()
            await part.enter(step)
            return replace(phase, step=step, since_s=since_s)
    return None


async def _stop(phase: Following, why: Exit, part: PartContext) -> Stopping:
    """Cancels the job; tries again later if the target could not be reached."""
    follower = await part.follower()
    try:
        await follower.target.cancel(phase.handle)
    except TargetLost as error:
        follower.give_up(error)  # the target will not report the end of the job
    except RunInUse:
        raise
    except TargetError:
        return Stopping(phase, why, asyncio.get_running_loop().time() + STOP_AGAIN_S)
    return Stopping(phase, why)


def _exit(reported: Exit, stopping: Exit | None = None) -> Exit:
    """How the job ended: as its target reported, or for our own reason."""
    if stopping is not None and reported.outcome in _FORCED_OUTCOMES:
        return msgspec.structs.replace(stopping, code=reported.code, signal=reported.signal)
    if reported.outcome is Outcome.CANCELLED:
        return Exit(Outcome.EVICTED, reported.code, reported.signal, "stopped from outside Seatrial")
    return reported


def _limit(phase: Following, part: PartContext) -> tuple[Exit | None, float | None]:
    """Why the job exceeds a limit, if it does; else the next deadline."""
    limits, ready = part.part.job.limits, part.part.job.ready
    candidates: list[tuple[float, Exit]] = []
    if not phase.begun and limits.queue_s is not None:
        text = _not_scheduled(limits, phase.followed.progress)
        candidates.append((limits.queue_s, Exit(Outcome.QUEUE, message=text)))
    if phase.begun and limits.run_s is not None:
        text = f"timed out after {limits.run_s:g} s; the target did not stop the job"
        candidates.append((limits.run_s + limits.grace_s + BACKSTOP_S, Exit(Outcome.TIMEOUT, message=text)))
    if phase.step is State.STARTED and ready is not None and ready.within_s is not None:
        path, port = ready.path, ready.port
        text = f"no successful GET {path} on port {port}" if path else f"port {port} not open"
        text = f"{text} within {ready.within_s:g} s after the start"
        candidates.append((ready.within_s, Exit(Outcome.UNREADY, message=text)))
    if not candidates:
        return None, None
    after_s, why = min(candidates, key=lambda one: one[0])
    deadline_s = max(phase.since_s + after_s, phase.heard_s)
    return (why, None) if asyncio.get_running_loop().time() >= deadline_s else (None, deadline_s)


def _show(phase: Following, part: PartContext) -> None:
    if not part.part.leads and not part.alone and phase.step is State.READY:
        return  # the other parts show progress
    doing = phase.followed.progress
    state = "running" if phase.begun or not doing else "waiting"
    part.attempt.update(part.cell.id, state, doing if part.alone else f"{part.part.name}: {doing}")


def _not_scheduled(limits: Limits, waited_for: str = "") -> str:
    reason = f"; {waited_for}" if waited_for else ""
    return f"not scheduled within {limits.queue_s:g} s{reason}; raise `timeout.queue` to wait longer"


# ---- ended, collected


async def _replay_events(phase: Ended, handle: str, part: PartContext) -> Phase:
    """Gets the events of a job again, for its times and hosts, because the process that saw them was killed."""
    if (gone := await _take_up(handle, part)) is not None:
        return gone
    follower = await part.follower()
    followed = _following(handle, follower, State.SUBMITTED, 0.0, part).followed
    while followed.exit is None:
        follower.check(followed)
        await part.wait()
    return replace(phase, followed=followed)


async def _observed(handle: str, ended: Ended, followed: FollowedJob, place: Place, part: PartContext) -> Observation:
    follower, job = await part.follower(), part.part.job
    try:
        observation = await observe(
            follower.target, handle, job, part.folder, place, ended.exit, part.attempt.secrets.mask, part.attempt.at
        )
    except (RunInUse, TargetLost):
        raise  # the target still has the results
    except TargetError as error:
        text = f"cannot collect the results: {part.attempt.mask(str(error))}"
        observation = unobserved(job, place, Exit(Outcome.INFRA, message=text))
    follower.forget(handle)
    return msgspec.structs.replace(observation, stages=list(followed.stages))
