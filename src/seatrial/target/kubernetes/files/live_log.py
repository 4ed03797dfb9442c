"""The log of a whole job while it is written: all hosts, and the containers that the user's template adds."""

import asyncio
from collections.abc import AsyncIterator

from seatrial.kubernetes import Kubernetes, KubernetesError
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.errors import target_error
from seatrial.target.kubernetes.files.keeper_log import KeeperLog, LinePrefixer, line_prefix
from seatrial.target.kubernetes.watch.jobs import TrackedPod
from seatrial.target.kubernetes.watch.watcher import JobWatcher

QUEUED_BLOCKS = 64
_POLL_S = 0.2


class LiveLog:
    def __init__(self, client: Kubernetes, watcher: JobWatcher, others: tuple[str, ...]) -> None:
        self._client, self._watcher, self._others = client, watcher, others

    async def blocks(self, handle: str, job: JobAnnotation, follow: bool) -> AsyncIterator[bytes]:
        """With `follow` until the job has ended. Lines of several are whole and begin with their host or container."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_BLOCKS)
        reading = asyncio.create_task(self._read_to_end(handle, job, follow, queue))
        try:
            while (block := await queue.get()) is not None:
                yield block
            await reading
        except KubernetesError as error:
            raise target_error(error, f"cannot read the log of {job.name}") from error
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_to_end(
        self, handle: str, job: JobAnnotation, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        """`None` is the end, unless it is cancelled: its reader is gone, and a full queue would never take it."""
        try:
            await self._read_all(handle, job, follow, queue)
        except Exception:
            await queue.put(None)
            raise
        await queue.put(None)

    async def _read_all(
        self, handle: str, job: JobAnnotation, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        """A reader for each pod as soon as it has begun; all pods of a job are there before it has ended."""
        ended = asyncio.create_task(self._watcher.ended(handle)) if follow else None
        readers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                last = ended is None or ended.done()
                for pod in self._watcher.pods(handle):
                    if pod.uid not in readers and (pod.trial_running or pod.trial_ended):
                        readers[pod.uid] = asyncio.create_task(self._read(job, pod, follow, queue))
                if last:
                    break
                assert ended is not None
                busy = [task for task in readers.values() if not task.done()]
                await asyncio.wait([ended, *busy], timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
                if len(readers) == job.hosts:
                    break
            await asyncio.gather(*readers.values())
        finally:
            tasks = [*readers.values(), *([ended] if ended else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self, job: JobAnnotation, pod: TrackedPod, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        sources = [self._trial(pod, follow), *(self._container(pod, name, follow) for name in self._others)]
        prefixes = [line_prefix(pod.number, job.hosts, name) for name in ("", *self._others)]
        await asyncio.gather(
            *(_pass_on(source, prefix, queue) for source, prefix in zip(sources, prefixes, strict=True))
        )

    async def _trial(self, pod: TrackedPod, follow: bool) -> AsyncIterator[bytes]:
        # The two containers of a pod start one after the other: its keeper may be just about to.
        while not pod.keeper_running and not pod.over and not (pod.trial_ended and pod.real):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if pod.keeper_running:
            keeper = self._client.pod(pod.name, names.KEEPER)
            async for block in KeeperLog(keeper, pod).blocks(follow):
                yield block
        elif pod.real:  # its keeper has left: what the node still has
            async for block in self._container(pod, names.TRIAL, follow):
                yield block

    async def _container(self, pod: TrackedPod, container: str, follow: bool) -> AsyncIterator[bytes]:
        """What its node has of it, at the end of the trial: it is not for live reading."""
        if follow:
            await pod.ended.wait()
        async for block in self._client.pod(pod.name, container).log():
            yield block


async def _pass_on(source: AsyncIterator[bytes], prefix: bytes, queue: "asyncio.Queue[bytes | None]") -> None:
    lines = LinePrefixer(prefix)
    async for block in source:
        if whole := lines.feed(block):
            await queue.put(whole)
    if last := lines.end():
        await queue.put(last)
