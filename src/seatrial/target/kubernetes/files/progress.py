"""Reports how far running jobs are: follows the agent's records in their keepers, for jobs that take long enough."""

import asyncio
import contextlib

from seatrial.job import Event
from seatrial.kubernetes import STDOUT, Kubernetes, KubernetesError
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.watch.watcher import JobWatcher
from seatrial.target.progress import Progress
from seatrial.target.protocol import TargetError

AFTER_S = 0.3  # what has ended by then needs no progress
_MOST = 64  # jobs at a time: each is a connection through the API server
FOLLOW_AGAIN_S = (0.2, 0.5, 2.0)


class ProgressFollower:
    def __init__(self, client: Kubernetes, watcher: JobWatcher) -> None:
        self._client, self._watcher = client, watcher
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()  # those too that are just being ended
        self._places = asyncio.Semaphore(_MOST)

    def add(self, handle: str, job: JobAnnotation) -> None:
        if handle not in self._tasks and job.steps:
            task = self._tasks[handle] = asyncio.create_task(self._follow(handle, job))
            self._all.add(task)
            task.add_done_callback(self._all.discard)

    def forget(self, handle: str) -> None:
        task = self._tasks.pop(handle, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        for handle in list(self._tasks):
            self.forget(handle)
        await asyncio.gather(*self._all, return_exceptions=True)

    async def _follow(self, handle: str, job: JobAnnotation) -> None:
        """Host 0 speaks for all. Whatever goes wrong here is no misfortune of the job."""
        with contextlib.suppress(TargetError):  # those that wait for the job's events get it
            await self._watcher.started(handle)
        await asyncio.sleep(AFTER_S)
        async with self._places:
            progress, offset, failures = Progress(job.steps), 0, 0
            while pod := next((pod for pod in self._watcher.pods(handle) if pod.trial_running and pod.real), None):
                keeper = self._client.pod(pod.name, names.KEEPER)
                with contextlib.suppress(KubernetesError):
                    command = ["tail", "-c", f"+{offset + 1}", "-f", f"{names.OUT}/records.jsonl"]
                    async with await keeper.start(command) as running:
                        async for channel, block in running:
                            if channel == STDOUT:
                                offset, failures = offset + len(block), 0
                                if step := progress.feed(block):
                                    self._watcher.report(Event(handle, progress=step))
                await asyncio.sleep(FOLLOW_AGAIN_S[min(failures, len(FOLLOW_AGAIN_S) - 1)])
                failures += 1
