"""The phases of a part, from planned to removed. Each is a class with what is valid in it; `advance` does what is to be
done in a phase and returns the next one.

Every effect is journalled before and after, so that another process goes on from what the journal says:

    journal                      phase of the process that takes the run up
    planned                      Planned, whose job may have been submitted
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
from seatrial.job import PEER, Exit, Job, Limits, Observation, Outcome, Peer, Place, Ready, Stage
from seatrial.targets import DamagedJob, RunInUse, TargetError, TargetLost

STOP_AGAIN_S = 5.0
REPLAY_S = 5.0  # in which a target tells of an adopted job what happened before
PREPARING_S = 0.5  # between two looks at what is done before a job can start
BACKSTOP_S = 5.0  # a target ends a job by its own limits; this long after that, the engine does
# Ends that a job did not choose: when we were ending it, our own reason says more.
_FORCED_OUTCOMES = (Outcome.CANCELLED, Outcome.EVICTED, Outcome.LOST, Outcome.SIGNAL)


class Unheld(Enum):
    """What a target has of a part when we have no handle."""

    NONE = "none"
    MAYBE = "maybe"  # a submission was begun, and its answer is not known


@dataclass(frozen=True)
class Planned:
    job: Unheld = Unheld.NONE
    stopping: Exit | None = None  # an earlier process gave it up, and may not have got to the end of that


@dataclass(frozen=True)
class Submitting:
    job: Job
    task: asyncio.Task[str]
    since_s: float


@dataclass(frozen=True)
class Adopting:
    handle: str
    step: State
    since_s: float
    stopping: Exit | None


@dataclass(frozen=True)
class Following:
    """`step`: submitted, started or ready. Its limit began at `since_s`, and is not over before `heard_s`."""

    handle: str
    followed: FollowedJob
    step: State
    since_s: float
    heard_s: float = 0.0

    @property
    def begun(self) -> bool:
        return self.step is not State.SUBMITTED


@dataclass(frozen=True)
class Stopping:
    following: Following
    why: Exit
    again_s: float | None = None  # when to tell it again: its target could not be told


@dataclass(frozen=True)
class Ended:
    """`job`: its handle, where the target still has it. `followed` in the process that saw it end."""

    exit: Exit
    job: str | Unheld
    followed: FollowedJob | None = None


@dataclass(frozen=True)
class Collected:
    ended: Ended
    observation: Observation


@dataclass(frozen=True)
class Removed:
    """Or left behind, which the journal says."""

    ended: Ended
    observation: Observation


Phase = Planned | Submitting | Adopting | Following | Stopping | Ended | Collected | Removed


async def advance(phase: Phase, part: PartContext) -> Phase:
    """The next phase; the same where only time has passed."""
    match phase:
        case Planned():
            return await _submit(phase, part)
        case Submitting():
            return await _submitted(phase, part)
        case Adopting():
            return await _adopt(phase, part)
        case Following():
            return await _follow(phase, part)
        case Stopping():
            return await _await_end(phase, part)
        case Ended():
            return await _collect(phase, part)
        case Collected():
            return await _remove(phase, part)
        case Removed():
            return phase


def end_of(phase: Phase) -> Ended | None:
    match phase:
        case Ended():
            return phase
        case Collected() | Removed():
            return phase.ended
        case _:
            return None


def handle_of(phase: Phase) -> str | None:
    """Of a job that is still to be removed."""
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
    """The time of this loop at a time of the journal."""
    return asyncio.get_running_loop().time() - max(0.0, time.time() - wall_s)


# ---- planned, submitting


async def _submit(phase: Planned, part: PartContext) -> Phase:
    """Once the part that it comes after is ready; never when it is not needed any more."""
    if phase.stopping is not None:
        return await _give_up(phase.stopping, part)
    if (why := part.stop_reason()) is not None:
        return await _abandon(phase, why, part)
    if (after := part.part.after) and part.usable(after) is None:
        await part.wait()
        return phase
    if phase.job is Unheld.MAYBE and _elsewhere(part):
        text = (
            f"it may have been started on {part.planned_on}, and this is {part.attempt.host}: only there can that be "
            "told; `seatrial attach` it there, or run the cell anew"
        )
        return await _end(Exit(Outcome.REFUSED, message=text), Unheld.MAYBE, part)
    part.attempt.update(part.cell.id, "starting", "")
    target = await part.target()
    try:
        job = await _complete(part)
    except (RunInUse, TargetLost):
        raise
    except TargetError as error:
        return await _fail(error, phase.job, part)
    if part.stop_reason() is not None or (after and part.usable(after) is None):
        return phase  # while the job was completed
    task = asyncio.create_task(target.submit(job, part.attempt.secrets.of(job)))
    return Submitting(job, task, asyncio.get_running_loop().time())


def _elsewhere(part: PartContext) -> bool:
    return part.planned_on not in ("", part.attempt.host) and part.part.target in part.attempt.one_machine


async def _complete(part: PartContext) -> Job:
    """The job with what was not known when it was planned: the way to the part or the target that it uses."""
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


async def _submitted(phase: Submitting, part: PartContext) -> Phase:
    try:
        handle = await _new_handle(phase, part)
    except (RunInUse, TargetLost):
        raise  # nothing is known of the part, and nothing is to be: whoever has the run then goes on with it
    except TargetError as error:
        return await _fail(error, Unheld.MAYBE, part)
    part.attempt.at("submit done")
    await part.enter(State.SUBMITTED, handle=handle)
    return _following(handle, await part.follower(), State.SUBMITTED, phase.since_s, part)


async def _new_handle(phase: Submitting, part: PartContext) -> str:
    """What has to be built or pulled before the job can start counts as waiting for a place."""
    showing = asyncio.create_task(_show_preparing(phase.job, part))
    try:
        async with asyncio.timeout(phase.job.limits.queue_s):
            return await phase.task
    except TimeoutError:
        raise TargetError(_no_place(phase.job.limits), Outcome.QUEUE) from None
    except asyncio.CancelledError:
        if part.stop_reason() is None or not phase.task.cancelled() or _is_being_cancelled():
            raise
        # Whether it came to be is not known: removing it, or the sweep at the run's end, finds it by its name.
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
    """A part that is not needed is not submitted; what an earlier process submitted is followed to its end."""
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
    """End a part whose submission failed. What that may have left is removed before other parts see this one as over;
    where it cannot be now, it is tried again when the part is removed."""
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


async def _adopt(phase: Adopting, part: PartContext) -> Phase:
    if (gone := await _take_up(phase.handle, part)) is not None:
        return await _end(gone.exit, gone.job, part)
    following = _following(phase.handle, await part.follower(), phase.step, phase.since_s, part)
    # What happened while no process followed the job is told now: it may have become ready in time.
    following = replace(following, heard_s=asyncio.get_running_loop().time() + REPLAY_S)
    return following if phase.stopping is None else await _stop(following, phase.stopping, part)


async def _take_up(handle: str, part: PartContext) -> Ended | None:
    """Take the job up; where its target does not have it any more, how it ended. Raises TargetError where that cannot
    be told: then it may still run, and the run stops rather than go on without it."""
    target = await part.target()
    try:
        await target.adopt(handle)
    except (RunInUse, TargetLost):
        raise
    except DamagedJob as error:  # others need not stop for it, and it must not go on with nobody to end it
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
    part.news.set()  # of events that came before
    return Following(handle, followed, step, since_s)


async def _follow(phase: Following, part: PartContext) -> Phase:
    """Until the job has ended. What is over a limit, or not needed any more, is told to end."""
    if (later := await _next_step(phase, part)) is not None:
        return later
    if phase.followed.exit is not None:
        return await _end(_exit(phase.followed.exit, None, part), phase.handle, part, phase.followed)
    _show(phase, part)
    over, deadline_s = _limit(phase, part)
    if (why := part.stop_reason() or over) is not None:
        await part.write("stopping", exit=why)
        return await _stop(phase, why, part)
    await part.wait(deadline_s)
    (await part.follower()).check(phase.followed)
    return phase


async def _await_end(phase: Stopping, part: PartContext) -> Phase:
    following, followed = phase.following, phase.following.followed
    if (later := await _next_step(following, part)) is not None:
        return replace(phase, following=later)
    if followed.exit is not None:
        return await _end(_exit(followed.exit, phase.why, part), following.handle, part, followed)
    _show(following, part)
    await part.wait(phase.again_s)
    (await part.follower()).check(followed)
    if phase.again_s is not None and followed.exit is None:
        return await _stop(following, phase.why, part)
    return phase


async def _next_step(phase: Following, part: PartContext) -> Following | None:
    """`started` and `ready`, as they come. Each begins another limit."""
    for step, stages in ((State.STARTED, BEGUN), (State.READY, (Stage.READY,))):
        if not phase.step.reached(step) and phase.followed.reached(*stages):
            since_s = asyncio.get_running_loop().time()
            await part.enter(step)
            return replace(phase, step=step, since_s=since_s)
    return None


async def _stop(phase: Following, why: Exit, part: PartContext) -> Stopping:
    """Tell the job to end; again after a while when its target could not be told."""
    follower = await part.follower()
    try:
        await follower.target.cancel(phase.handle)
    except TargetLost as error:
        follower.give_up(error)  # nothing will be heard of its end
    except RunInUse:
        raise
    except TargetError:
        return Stopping(phase, why, asyncio.get_running_loop().time() + STOP_AGAIN_S)
    return Stopping(phase, why)


def _exit(reported: Exit, stopping: Exit | None, part: PartContext) -> Exit:
    """How it ended: as its target says, or by us."""
    if stopping is not None and reported.outcome in _FORCED_OUTCOMES:
        return msgspec.structs.replace(stopping, code=reported.code, signal=reported.signal)
    if reported.outcome is Outcome.CANCELLED:
        return Exit(Outcome.EVICTED, reported.code, reported.signal, "it was told to end, and not by us")
    return msgspec.structs.replace(reported, message=part.attempt.mask(reported.message))


def _limit(phase: Following, part: PartContext) -> tuple[Exit | None, float | None]:
    """Why the job is over its limit, if it is; else when it would be."""
    limits, ready = part.part.job.limits, part.part.job.ready
    candidates: list[tuple[float, Exit]] = []
    if not phase.begun and limits.queue_s is not None:
        text = _no_place(limits, part.attempt.mask(phase.followed.progress))
        candidates.append((limits.queue_s, Exit(Outcome.QUEUE, message=text)))
    if phase.begun and limits.run_s is not None:
        text = f"ran for more than {limits.run_s:g} s, and its target did not end it"
        candidates.append((limits.run_s + limits.grace_s + BACKSTOP_S, Exit(Outcome.TIMEOUT, message=text)))
    if phase.step is State.STARTED and ready is not None and ready.within_s is not None:
        candidates.append((ready.within_s, Exit(Outcome.UNREADY, message=_unready(ready))))
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


def _unready(ready: Ready) -> str:
    asked = (
        f"GET {ready.path} of port {ready.port} had no good answer" if ready.path else f"port {ready.port} was closed"
    )
    return f"{asked} {ready.within_s:g} s after it started"


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# ---- ended, collected


async def _collect(phase: Ended, part: PartContext) -> Phase:
    if isinstance(phase.job, str) and phase.followed is None:
        return await _replay_events(phase, phase.job, part)
    place = Place(part.part.target, part.cell.machine_name, hosts=phase.followed.hosts if phase.followed else ())
    if isinstance(phase.job, str) and phase.followed is not None:
        observation = await _observed(phase.job, phase, phase.followed, place, part)
    else:
        observation = unobserved(part.part.job, place, phase.exit)
    written = part.attempt.folder.write_observation(part.cell.hash, part.part.name, observation)
    part.attempt.at("observation written")
    await part.enter(State.COLLECTED, files=[written])
    return Collected(phase, observation)


async def _replay_events(phase: Ended, handle: str, part: PartContext) -> Phase:
    """When and where a job ran that had ended when an earlier process was killed: its events come once more."""
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


async def _remove(phase: Collected, part: PartContext) -> Phase:
    """The results are safe, and whatever goes wrong here changes nothing of them; what cannot be removed is found by
    its label at the run's end, or by whoever takes the run up, or by reap."""
    removed = Removed(phase.ended, phase.observation)
    try:
        handle = phase.ended.job
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
