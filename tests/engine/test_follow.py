"""The engine's own limits, on targets that do not keep theirs: these are data, a list of the events that they send."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from seatrial.engine import follow
from seatrial.engine.follow import Follower
from seatrial.job import Event, Exit, Limits, Outcome, Stage, StageTime

HANDLE = "scripted://job"
STARTED = Event(HANDLE, StageTime(Stage.STARTED, 0.0, "script"))
QUEUED = Event(HANDLE, StageTime(Stage.QUEUED, 0.0, "script"))


class Scripted:
    """Sends its events, then nothing until it is cancelled."""

    name = "scripted"

    def __init__(self, *events: Event, breaks: bool = False) -> None:
        self._events = events
        self._breaks = breaks
        self._cancelled = asyncio.Event()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def watch(self) -> AsyncIterator[Event]:
        for event in self._events:
            yield event
        if self._breaks:
            raise ConnectionError("the server went away")
        await self._cancelled.wait()
        yield Event(HANDLE, exit=Exit(Outcome.CANCELLED))
        await asyncio.Event().wait()

    async def cancel(self, handle: str) -> None:
        self._cancelled.set()


async def followed(target: Any, limits: Limits) -> follow.Followed:
    follower = Follower(target)
    await follower.open()
    try:
        return await asyncio.wait_for(follower.wait(HANDLE, limits, lambda progress, begun: None), 30)
    finally:
        await follower.close()


async def test_a_job_that_gets_no_place_within_its_queue_limit_is_cancelled_and_said_to_be_so() -> None:
    seen = await followed(Scripted(QUEUED), Limits(queue_s=0.1, run_s=100))
    assert seen.exit is not None
    assert seen.exit.outcome is Outcome.QUEUE
    assert "no place within 0.1 s" in seen.exit.message


async def test_a_job_that_has_started_is_no_longer_held_to_its_queue_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BACKSTOP_S", 0.1)
    seen = await followed(Scripted(QUEUED, STARTED), Limits(queue_s=0.05, run_s=0.1, grace_s=0.1))
    assert seen.exit is not None
    assert seen.exit.outcome is Outcome.TIMEOUT
    assert [stage.stage for stage in seen.stages] == [Stage.QUEUED, Stage.STARTED]


async def test_a_stage_that_is_told_twice_counts_once() -> None:
    seen = await followed(Scripted(STARTED, STARTED, Event(HANDLE, exit=Exit(Outcome.EXITED, 0))), Limits())
    assert len(seen.stages) == 1


async def test_a_watch_that_breaks_is_an_error_and_not_silence() -> None:
    with pytest.raises(ConnectionError, match="went away"):
        await followed(Scripted(STARTED, breaks=True), Limits())


class Breaking(Scripted):
    """Breaks when the test says so, and notes that it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.broken, self.closed = asyncio.Event(), False

    async def watch(self) -> AsyncIterator[Event]:
        yield STARTED
        await self.broken.wait()
        raise ConnectionError("the server went away")

    async def close(self) -> None:
        self.closed = True


async def test_a_watch_that_breaks_is_told_to_everybody_who_waits_and_to_who_comes_later() -> None:
    target: Any = Breaking()
    follower = Follower(target)
    await follower.open()

    async def waiting(handle: str) -> None:
        with pytest.raises(ConnectionError, match="went away"):
            await asyncio.wait_for(follower.wait(handle, Limits(), lambda progress, begun: None), 30)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(waiting(f"scripted://{number}"))
        await asyncio.sleep(0)
        target.broken.set()
    await waiting("scripted://late")
    await follower.close()
    assert target.closed


async def test_a_job_whose_end_was_told_before_the_watch_broke_has_ended() -> None:
    ended = Event(HANDLE, exit=Exit(Outcome.EXITED, 0))
    seen = await followed(Scripted(STARTED, ended, breaks=True), Limits())
    assert seen.exit is not None
    assert seen.exit.outcome is Outcome.EXITED
