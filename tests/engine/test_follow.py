"""What is known of the jobs of a target, and that the death of its watch is an error and not silence."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from seatrial.engine.follow import FollowedJob, Follower
from seatrial.job import Event, Exit, Outcome, Stage, StageTime
from seatrial.targets import TargetLost

HANDLE = "scripted://job"
QUEUED = Event(HANDLE, StageTime(Stage.QUEUED, 0.0, "script"), progress="no room")
STARTED = Event(HANDLE, StageTime(Stage.STARTED, 1.0, "script"))
ENDED = Event(HANDLE, exit=Exit(Outcome.EXITED, 0))


class Scripted:
    """Sends its events, and breaks when the test says so."""

    name = "scripted"

    def __init__(self, *events: Event) -> None:
        self._events = events
        self.sent, self.broken, self.closed = asyncio.Event(), asyncio.Event(), False

    async def open(self) -> None: ...

    async def close(self) -> None:
        self.closed = True

    async def watch(self) -> AsyncIterator[Event]:
        for event in self._events:
            yield event
        self.sent.set()
        await self.broken.wait()
        raise ConnectionError("the server went away")


async def opened(*events: Event) -> tuple[Follower, Any]:
    target: Any = Scripted(*events)
    follower = Follower(target)
    await follower.open()
    await target.sent.wait()
    return follower, target


def test_a_stage_that_is_reported_twice_counts_once() -> None:
    job = FollowedJob()
    for event in (STARTED, STARTED, ENDED):
        job.take(event)
    assert [one.stage for one in job.stages] == [Stage.STARTED]
    assert job.exit == ENDED.exit


def test_what_a_job_waited_for_is_over_when_it_starts() -> None:
    job = FollowedJob()
    job.take(QUEUED)
    assert job.progress == "no room"
    job.take(STARTED)
    assert job.progress == ""


async def test_a_watch_that_breaks_wakes_everyone_who_waits_and_is_an_error_for_who_comes_later() -> None:
    follower, target = await opened(STARTED)

    async def waiting(handle: str) -> None:
        job = follower.job(handle)
        while True:
            job.changed.clear()
            follower.check(job)
            await job.changed.wait()

    tasks = [asyncio.create_task(waiting(f"scripted://{number}")) for number in range(20)]
    await asyncio.sleep(0)
    target.broken.set()
    for task in tasks:
        with pytest.raises(ConnectionError, match="went away"):
            await task
    with pytest.raises(ConnectionError, match="went away"):
        follower.check(follower.job("scripted://late"))
    await follower.close()
    assert target.closed


async def test_a_job_that_ended_before_the_watch_broke_has_ended() -> None:
    follower, target = await opened(STARTED, ENDED)
    target.broken.set()
    await asyncio.sleep(0)
    job = follower.job(HANDLE)
    follower.check(job)
    assert job.exit == ENDED.exit
    await follower.close()


async def test_a_target_that_is_given_up_is_an_error_for_who_waits_there() -> None:
    follower, _ = await opened(STARTED)
    follower.give_up(TargetLost("token refused"))
    with pytest.raises(TargetLost, match="token refused"):
        follower.check(follower.job(HANDLE))
    await follower.close()
