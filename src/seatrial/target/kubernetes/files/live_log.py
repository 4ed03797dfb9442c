"""The log of a whole job while it is written: all hosts, and the containers that the user's template adds."""

import asyncio
from collections.abc import AsyncIterator

from seatrial.kubernetes import Kubernetes, KubernetesError
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.errors import target_error
from seatrial.target.kubernetes.files.keeper_log import KeeperLog, Prefixed, prefix_of
from seatrial.target.kubernetes.watch.watcher import PodSummary, Watcher

QUEUED_BLOCKS = 64
LOOK_S = 0.2


class LiveLog:
    def __init__(self, client: Kubernetes, namespace: str, watcher: Watcher, others: tuple[str, ...]) -> None:
        self._client, self._namespace, self._watcher, self._others = client, namespace, watcher, others

    async def blocks(self, handle: str, job: JobAnnotation, follow: bool) -> AsyncIterator[bytes]:
        """With `follow` until the job has ended. Lines of several are whole and say whose they are."""
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
        """`None` is the end, unless it is cancelled: who wanted it is gone, and a full queue would never take it."""
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
                await asyncio.wait([ended, *busy], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if len(readers) == job.hosts:
                    break
            await asyncio.gather(*readers.values())
        finally:
            tasks = [*readers.values(), *([ended] if ended else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self, job: JobAnnotation, pod: PodSummary, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        sources = [self._trial(pod, follow), *(self._other(pod, name, follow) for name in self._others)]
        prefixes = [prefix_of(pod.number, job.hosts, name) for name in ("", *self._others)]
        await asyncio.gather(
            *(_pass_on(source, prefix, queue) for source, prefix in zip(sources, prefixes, strict=True))
        )

    async def _trial(self, pod: PodSummary, follow: bool) -> AsyncIterator[bytes]:
        def there() -> bool:
            now = self._watcher.pod(pod.uid)
            return now is not None and now.keeper_running

        while not there() and self._may_come(pod):  # noqa: ASYNC110 - seldom, and for a moment
            await asyncio.sleep(LOOK_S)
        if there():
            keeper = self._client.pod(pod.name, names.KEEPER, namespace=self._namespace)
            log = KeeperLog(keeper, self._watcher.trial_ended(pod.uid), there)
            async for block in log.blocks(follow):
                yield block
            return
        now = self._watcher.pod(pod.uid)
        if now is not None and now.real:  # its keeper has left: what the node still has
            async for block in self._other(pod, names.TRIAL, follow):
                yield block

    def _may_come(self, pod: PodSummary) -> bool:
        """Whether its keeper is just about to start: the two containers of a pod do so one after the other."""
        now = self._watcher.pod(pod.uid)
        return now is not None and not now.ended and not (now.trial_ended and now.real and not now.keeper_running)

    async def _other(self, pod: PodSummary, container: str, follow: bool) -> AsyncIterator[bytes]:
        async for line in self._client.pod(pod.name, container, namespace=self._namespace).logs(follow=follow):
            yield line


async def _pass_on(source: AsyncIterator[bytes], prefix: bytes, queue: "asyncio.Queue[bytes | None]") -> None:
    lines = Prefixed(prefix)
    async for block in source:
        if whole := lines.feed(block):
            await queue.put(whole)
    if last := lines.end():
        await queue.put(last)
