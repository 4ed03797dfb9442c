"""Who reads a live log may leave at any time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from seatrial.kubernetes import Kubernetes
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.files.live_log import LiveLog
from seatrial.target.kubernetes.watch.objects import PodSummary
from seatrial.target.kubernetes.watch.watcher import Watcher

POD = PodSummary("p", 0, "n", True, False, True, False, "u")


class Running:
    """A job of one pod that goes on."""

    def pods(self, handle: str) -> list[PodSummary]:
        return [POD]

    async def ended(self, handle: str) -> None:
        await asyncio.Event().wait()


class Talking(LiveLog):
    """Its log comes faster than anybody reads it."""

    async def _trial(self, pod: PodSummary, follow: bool) -> AsyncIterator[bytes]:
        while True:
            yield b"line\n"


async def test_one_who_reads_slowly_and_leaves_does_not_wait_for_the_rest() -> None:
    log = Talking(cast(Kubernetes, None), "ns", cast(Watcher, cast(Any, Running())), ())
    async with asyncio.timeout(10):
        async with contextlib.aclosing(cast(Any, log.blocks("handle", JobAnnotation("j", "r"), follow=True))) as blocks:
            async for _ in blocks:
                await asyncio.sleep(0.05)  # by now as much waits as may
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}
