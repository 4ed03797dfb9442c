"""Who reads a live log may leave at any time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from seatrial.kubernetes import Kubernetes
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.files.live_log import LiveLog
from seatrial.target.kubernetes.watch.jobs import TrackedPod
from seatrial.target.kubernetes.watch.objects import PodObject
from seatrial.target.kubernetes.watch.watcher import JobWatcher

STATUS = {"containerStatuses": [{"name": name, "state": {"running": {}}} for name in ("trial", "keeper")]}
POD = TrackedPod(msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "status": STATUS}, PodObject))


class Running:
    """A job of one pod that goes on."""

    def pods(self, handle: str) -> list[TrackedPod]:
        return [POD]

    async def ended(self, handle: str) -> None:
        await asyncio.Event().wait()


class Talking(LiveLog):
    """Its log comes faster than anybody reads it."""

    async def _trial(self, pod: TrackedPod, follow: bool) -> AsyncIterator[bytes]:
        while True:
            yield b"line\n"


async def test_one_who_reads_slowly_and_leaves_does_not_wait_for_the_rest() -> None:
    log = Talking(cast(Kubernetes, None), cast(JobWatcher, cast(Any, Running())), ())
    async with asyncio.timeout(600):
        async with contextlib.aclosing(cast(Any, log.blocks("handle", JobAnnotation("j", "r"), follow=True))) as blocks:
            async for _ in blocks:
                await asyncio.sleep(0.05)  # by now as much waits as may
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}
