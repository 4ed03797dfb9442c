"""Who reads a live log may leave at any time, and may be cut off at any time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from seatrial.kubernetes import STDOUT, Kubernetes, KubernetesError, Pod
from seatrial.kubernetes.pod import Completed
from seatrial.targets.kubernetes.log import HEAD_BYTES, SEGMENT_BYTES, KeeperLog, LiveLog
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import PodObject
from seatrial.targets.kubernetes.watch.watcher import JobWatcher

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


class Cut:
    """A keeper whose first part is gone when it is asked, and whose connection is cut when it is asked for the next."""

    def __init__(self) -> None:
        self.asked, self.cuts = list[str](), 0

    @contextlib.asynccontextmanager
    async def _started(self, at: int) -> AsyncIterator["Said"]:
        yield Said([(STDOUT, b"the rest")], 0) if at >= HEAD_BYTES else Said([], 77)

    async def start(self, command: list[str]) -> Any:
        self.asked.append(command[4])
        return self._started(int(command[4]))

    async def run(self, command: list[str], check: bool) -> Any:
        self.cuts += 1
        if self.cuts == 1:
            raise KubernetesError("/bin/sh: the connection ended")
        return Completed(0, b"3\n", b"")


class Said:
    def __init__(self, blocks: list[tuple[int, bytes]], code: int) -> None:
        self._blocks, self.exit_code = blocks, code

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        for block in self._blocks:
            yield block


async def test_a_cut_while_it_is_asked_what_is_left_of_a_log_is_no_end_of_it() -> None:
    keeper = Cut()
    async with asyncio.timeout(600):
        blocks = [block async for block in KeeperLog(cast(Pod, keeper), POD).blocks(follow=False)]
    left_out = HEAD_BYTES + 2 * SEGMENT_BYTES
    assert blocks == [b"\n[seatrial: %d bytes left out here]\n" % left_out, b"the rest"]
    assert keeper.asked == ["0", "0", str(left_out)]
