"""The phases of a part, from planned to removed. Each phase is a class with the fields that are valid in it; its
`advance` does the work of the phase and returns the next one, or the same one if it is not over.

Every effect is journalled before and after, so that another process can continue from the journal:

    journal                      phase after attach
    planned                      Planned; the job may have been submitted
    submitted, started, ready    Adopting
    ended, collected, removed    Ended, Collected, Removed
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from seatrial.engine.collect import observe, unobserved
from seatrial.engine.context import PartContext
from seatrial.engine.follow import BEGUN, FollowedJob, Follower
from seatrial.engine.states import State
from seatrial.job import PEER, Exit, Job, Limits, Observation, Outcome, Peer, Place, Stage
from seatrial.targets import DamagedJob, RunInUse, TargetError, TargetLost

STOP_AGAIN_S = 5.0
REPLAY_S = 5.0  # a target reports the past events of an adopted job within this time
PREPARING_S = 0.5  # between two looks at what is done before a job can start
BACKSTOP_S = 5.0  # a target ends a job by its own limits; this long after that, the engine does
# Ends that a job did not choose: when we were ending it, our own reason says more.
_FORCED_OUTCOMES = (Outcome.CANCELLED, Outcome.EVICTED, Outcome.LOST, Outcome.SIGNAL)


class Unheld(Enum):
    """A part without a handle: whether its target has a job of that name."""

    NONE = "none"
    MAYBE = "maybe"  # a submission was started, and its answer is unknown


@dataclass(frozen=True)
class Planned:
    job: Unheld = Unheld.NONE
    stopping: Exit | None = None  # an earlier process gave it up, and may not have finished that

    async def advance(self, part: PartContext) -> "Phase":
        """Submit the job once the part that it comes after is ready; never if there is a reason to stop."""
        if self.stopping is not None:
            return await _give_up(self.stopping, part)
        if (why := part.stop_reason()) is not None:
            return await _abandon(self, why, part)
        if (after := part.part.after) and part.usable(after) is None:
            await part.wait()
            return self
        here = part.planned_on in ("", part.attempt.host) or part.part.target not in part.attempt.one_machine
        if self.job is Unheld.MAYBE and not here:
            text = (
                f"it may have been started on {part.planned_on}, and this is {part.attempt.host}: only there can that "
                "be told; `seatrial attach` it there, or run the cell anew"
            )
            return await _end(Exit(Outcome.REFUSED, message=text), Unheld.MAYBE, part)
        part.attempt.update(part.cell.id, "starting", "")
        target = await part.target()
        try:
            job = await _complete(part)
        except (RunInUse, TargetLost):
            raise
        except TargetError as error:
            return await _fail(error, self.job, part)
        if part.stop_reason() is not None or (after and part.usable(after) is None):
            return self  # it changed while the job was completed
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
        except (RunInUse, TargetLost):
            raise  # the state of the part is unknown and not recorded; the process that owns the run continues
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
        # The target now reports what happened while no process followed the job: it may have become ready in time.
        following = replace(following, heard_s=asyncio.get_running_loop().time() + REPLAY_S)
        return following if self.stopping is None else await _stop(following, self.stopping, part)


@dataclass(frozen=True)
class Following:
    """`step`: submitted, started or ready. Its limit counts from `since_s` and does not expire before `heard_s`. Both
    are times of the event loop."""

    handle: str
    followed: FollowedJob
    step: State
    since_s: float
    heard_s: float = 0.0

    @property
    def begun(self) -> bool:
        return self.step is not State.SUBMITTED

    async def advance(self, part: PartContext) -> "Phase":
        """Wait for events. Stop the job when it exceeds a limit or there is another reason to."""
        if (later := await _next_step(self, part)) is not None:
            return later
        if self.followed.exit is not None:
            return await _end(_exit(self.followed.exit, None, part), self.handle, part, self.followed)
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
    again_s: float | None = None  # when to ask again, if the target could not be asked

    async def advance(self, part: PartContext) -> "Phase":
        following, followed = self.following, self.following.followed
        if (later := await _next_step(following, part)) is not None:
            return replace(self, following=later)
        if followed.exit is not None:
            return await _end(_exit(followed.exit, self.why, part), following.handle, part, followed)
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
        """The results are safe: no failure here changes them. The sweep at the run's end, a later attach and reap find
        by label what could not be removed."""
        removed = Removed(self.ended, self.observation)
        try:
            handle = self.ended.job
            if handle is Unheld.MAYBE and (found := await part.find()) is not None:
                handle = found.handle  # of a submission whose answer was lost
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
class Removed:
    """Removed, or left behind with a `left` line in the journal."""

    ended: Ended
    observation: Observation


Phase = Planned | Submitting | Adopting | Following | Stopping | Ended | Collected | Removed


def end_of(phase: Phase) -> Ended | None:
    match phase:
        case Ended():
            return phase
        case Collected() | Removed():
            return phase.ended
        case _:
            return None


def handle_of(phase: Phase) -> str | None:
    """The handle of a job that has to be removed."""
    match phase:
        case Adopting() | Following():
            return phase.handle
        case Stopping():
            return phase.following.handle
        case Ended(job=str(handle)) | Collected(ended=Ended(job=str(handle))):
            return handle
        case _:
            return None


def loop_time(wall_s: float) -> float:
    """A wall time of the journal as a time of this event loop."""
    return asyncio.get_running_loop().time() - max(0.0, time.time() - wall_s)


# ---- planned, submitting


async def _complete(part: PartContext) -> Job:
    """The job with what was unknown when it was planned: how to reach the part or target that it uses."""
    job, after, uses = part.part.job, part.part.after, part.part.uses
    if after and (used := part.usable(after)) is not None:
        handle, name = used
        target = (await part.attempt.follower(name)).target
        inside = await target.addresses(handle, (await part.target()).address())
        way = Peer(after, name, part.attempt.kinds[name], target.address(), handle, inside)
    elif uses:
        way = Peer("", uses, part.attempt.kinds[uses], (await part.attempt.follower(uses)).target.address(), "")
    else:
        return job
    return msgspec.structs.replace(job, env={**job.env, PEER: msgspec.json.encode(way).decode()})


async def _new_handle(phase: Submitting, part: PartContext) -> str:
    """Wait for the submission. Building or pulling what the job needs counts as waiting for a place."""
    showing = asyncio.create_task(_show_preparing(phase.job, part))
    try:
        async with asyncio.timeout(phase.job.limits.queue_s):
            return await phase.task
    except TimeoutError:
        raise TargetError(_no_place(phase.job.limits), Outcome.QUEUE) from None
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if part.stop_reason() is None or not phase.task.cancelled() or (own and own.cancelling()):
            raise
        # The job may exist: its removal, or the sweep at the run's end, finds it by name.
        raise TargetError("cancelled while it was being submitted", Outcome.CANCELLED) from None
    finally:
        showing.cancel()


async def _show_preparing(job: Job, part: PartContext) -> None:
    """Building an environment, or pulling an image, may take minutes."""
    target = await part.target()
    while True:
        await asyncio.sleep(PREPARING_S)
        if doing := target.preparing(job.environment):
            part.attempt.update(part.cell.id, "waiting", part.attempt.mask(doing))


async def _abandon(phase: Planned, why: Exit, part: PartContext) -> Phase:
    """Do not submit the part. If an earlier process did, follow that job to its end."""
    found = await part.find() if phase.job is Unheld.MAYBE else None
    if found is None:
        return await _end(why, Unheld.NONE, part)
    if await _take_up(found.handle, part) is not None:  # half made: it never started
        return await _give_up(why, part)
    await part.enter(State.SUBMITTED, handle=found.handle)
    now_s = asyncio.get_running_loop().time()
    return _following(found.handle, await part.follower(), State.SUBMITTED, now_s, part)


async def _fail(error: TargetError, job: Unheld, part: PartContext) -> Phase:
    why = Exit(error.outcome, message=part.attempt.mask(str(error)))
    if job is Unheld.NONE:
        return await _end(why, job, part)
    await part.write("stopping", exit=why)
    return await _give_up(why, part)


async def _give_up(why: Exit, part: PartContext) -> Phase:
    """End a part after a failed submission. A job that exists is removed before other parts see this one as ended; if
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
    """Adopt the job; returns how it ended if its target has lost it. Raises TargetError if the job may still run: the
    run then stops rather than continue without it."""
    target = await part.target()
    try:
        await target.adopt(handle)
    except (RunInUse, TargetLost):
        raise
    except DamagedJob as error:  # it must not keep running unobserved, and is no reason to stop the other cells
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
    """Note `started` and `ready`. Each starts another limit."""
    for step, stages in ((State.STARTED, BEGUN), (State.READY, (Stage.READY,))):
        if not phase.step.reached(step) and phase.followed.reached(*stages):
            since_s = asyncio.get_running_loop().time()
            await part.enter(step)
            return replace(phase, step=step, since_s=since_s)
    return None


async def _stop(phase: Following, why: Exit, part: PartContext) -> Stopping:
    """Cancel the job; if its target cannot be asked, try again after a while."""
    follower = await part.follower()
    try:
        await follower.target.cancel(phase.handle)
    except TargetLost as error:
        follower.give_up(error)  # it will not report the end of the job
    except RunInUse:
        raise
    except TargetError:
        return Stopping(phase, why, asyncio.get_running_loop().time() + STOP_AGAIN_S)
    return Stopping(phase, why)


def _exit(reported: Exit, stopping: Exit | None, part: PartContext) -> Exit:
    """How the job ended: as its target says, or by our own reason."""
    if stopping is not None and reported.outcome in _FORCED_OUTCOMES:
        return msgspec.structs.replace(stopping, code=reported.code, signal=reported.signal)
    if reported.outcome is Outcome.CANCELLED:
        return Exit(Outcome.EVICTED, reported.code, reported.signal, "it was told to end, and not by us")
    return msgspec.structs.replace(reported, message=part.attempt.mask(reported.message))


def _limit(phase: Following, part: PartContext) -> tuple[Exit | None, float | None]:
    """Why the job exceeds a limit, if it does; else when it would."""
    limits, ready = part.part.job.limits, part.part.job.ready
    candidates: list[tuple[float, Exit]] = []
    if not phase.begun and limits.queue_s is not None:
        text = _no_place(limits, part.attempt.mask(phase.followed.progress))
        candidates.append((limits.queue_s, Exit(Outcome.QUEUE, message=text)))
    if phase.begun and limits.run_s is not None:
        text = f"ran for more than {limits.run_s:g} s, and its target did not end it"
        candidates.append((limits.run_s + limits.grace_s + BACKSTOP_S, Exit(Outcome.TIMEOUT, message=text)))
    if phase.step is State.STARTED and ready is not None and ready.within_s is not None:
        path, port = ready.path, ready.port
        text = f"GET {path} of port {port} had no good answer" if path else f"port {port} was closed"
        text = f"{text} {ready.within_s:g} s after it started"
        candidates.append((ready.within_s, Exit(Outcome.UNREADY, message=text)))
    if not candidates:
        return None, None
    after_s, why = min(candidates, key=lambda one: one[0])
    deadline_s = max(phase.since_s + after_s, phase.heard_s)
    return (why, None) if asyncio.get_running_loop().time() >= deadline_s else (None, deadline_s)


def _show(phase: Following, part: PartContext) -> None:
    if not part.part.leads and not part.alone and phase.step is State.READY:
        return  # the others say what goes on
    doing = phase.followed.progress
    state = "running" if phase.begun or not doing else "waiting"
    part.attempt.update(part.cell.id, state, doing if part.alone else f"{part.part.name}: {doing}")


def _no_place(limits: Limits, waited_for: str = "") -> str:
    return f"got no place within {limits.queue_s:g} s" + (f"; {waited_for}" if waited_for else "")


# ---- ended, collected


async def _replay_events(phase: Ended, handle: str, part: PartContext) -> Phase:
    """Get the events of a job again, for its times and hosts: the process that saw them was killed."""
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
        raise  # its results are still there
    except TargetError as error:
        text = f"its results could not be collected: {part.attempt.mask(str(error))}"
        observation = unobserved(job, place, Exit(Outcome.INFRA, message=text))
    follower.forget(handle)
    return msgspec.structs.replace(observation, stages=list(followed.stages))
