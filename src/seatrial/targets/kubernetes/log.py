"""Reads logs of jobs from the agent's files in the keepers: each byte once, across broken connections.

Kubernetes' own container log loses lines when it is rotated. The agent keeps a head and the last segments
(`agent/log.py`), so that a reader that was disconnected for a while loses nothing; if it does, the log says so.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from seatrial.kubernetes import STDOUT, Kubernetes, KubernetesError, Pod
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.manifest.pod import script
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.watcher import JobWatcher
from seatrial.targets.tasks import end_tasks

HEAD_BYTES, SEGMENT_BYTES = 4 << 20, 1 << 20  # as in agent/log.py
_PATIENCE_S = 300.0
_GONE = 77  # exit code: the requested part was deleted, later ones exist
_BACKOFF_S = (0.1, 0.3, 1.0, 2.0)

_FIRST = f'cd {names.OUT} && ls | sed -n "s/^log.txt.\\([0-9]*\\)$/\\1/p" | sort -n | head -n 1'


class KeeperLog:
    """Log of one pod. Complete once `pod` reports that the trial has ended."""

    def __init__(self, keeper: Pod, pod: TrackedPod) -> None:
        self._keeper, self._pod = keeper, pod
        self._at = 0  # the next byte

    async def blocks(self, follow: bool) -> AsyncIterator[bytes]:
        """`follow`: until the trial has ended. Raises the last error if the pod is unreachable for too long."""
        for following in (True, False) if follow else (False,):
            async for block in self._patiently(following):
                yield block

    async def _patiently(self, follow: bool) -> AsyncIterator[bytes]:
        failing_since: float | None = None
        failures = 0
        while not (follow and self._pod.ended.is_set()):
            before = self._at
            try:
                async for block in self._stream(follow):
                    self._at += len(block)
                    yield block
                if not self._overtaken:
                    return
                yield await self._skip()
                continue
            except KubernetesError:
                if not self._pod.keeper_running:
                    return
                now_s = time.monotonic()
                if self._at > before or failing_since is None:
                    failing_since, failures = now_s, 0
                if now_s - failing_since > _PATIENCE_S:
                    raise
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            failures += 1

    async def _stream(self, follow: bool) -> AsyncIterator[bytes]:
        self._overtaken = False

        async def leave_at_end() -> None:
            await self._pod.ended.wait()
            await running.leave()  # the rest is read without following

        sizes = map(str, (HEAD_BYTES, SEGMENT_BYTES, _GONE))
        command = ["/bin/sh", "-c", script("log"), "sh", str(self._at), "follow" if follow else "once", *sizes]
        async with await self._keeper.start(command) as running:
            leaving = asyncio.create_task(leave_at_end()) if follow else None
            try:
                async for channel, block in running:
                    if channel == STDOUT:
                        yield block
                self._overtaken = running.exit_code == _GONE
            finally:
                if leaving is not None:
                    leaving.cancel()

    async def _skip(self) -> bytes:
        """Continues with the first part that still exists; returns a line with the number of skipped bytes."""
        found = await self._keeper.run(["/bin/sh", "-c", _FIRST], check=True)
        number = int(found.stdout.split()[0]) if found.stdout.split() else 1
        following = max(self._at, HEAD_BYTES + (number - 1) * SEGMENT_BYTES)
        skipped, self._at = following - self._at, following
        return b"\n[seatrial: %d bytes left out here]\n" % skipped if skipped else b""


class LinePrefixer:
    """Turns blocks, which may end anywhere, into whole lines that begin with their host, if there are several, and with
    their container, if it is not the trial. Blocks without such a prefix stay unchanged."""

    def __init__(self, number: int, hosts: int, container: str = "") -> None:
        host = b"[%d] " % number if hosts > 1 else b""
        self._prefix = host + (b"(%s) " % container.encode() if container else b"")
        self._rest = b""

    def feed(self, block: bytes) -> bytes:
        if not self._prefix:
            return block
        *lines, self._rest = (self._rest + block).split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def end(self) -> bytes:
        """The last line if it had no newline, with one added."""
        return self._prefix + self._rest + b"\n" if self._rest else b""


BlockQueue = asyncio.Queue[bytes | None]  # None at the end
QUEUED_BLOCKS = 64
_POLL_S = 0.2


class LiveLog:
    """Log of a running job: all hosts, and the containers that the user's template adds."""

    def __init__(self, client: Kubernetes, watcher: JobWatcher, others: tuple[str, ...]) -> None:
        self._client, self._watcher, self._others = client, watcher, others

    async def blocks(self, handle: str, job: JobAnnotation, follow: bool) -> AsyncIterator[bytes]:
        """With `follow` until the job has ended. With several sources, lines are whole and prefixed with host or
        container."""
        queue: BlockQueue = asyncio.Queue(QUEUED_BLOCKS)
        reading = asyncio.create_task(self._read_all(handle, job, follow, queue))
        try:
            with target_errors(f"cannot read the log of {job.name}"):
                while (block := await queue.get()) is not None:
                    yield block
                await reading
        finally:
            await end_tasks(reading)

    async def _read_all(self, handle: str, job: JobAnnotation, follow: bool, queue: BlockQueue) -> None:
        """Starts a reader for each pod once its trial runs; all pods exist before the job ends. Puts None at the end,
        but not when cancelled: the consumer is gone, and a full queue would block forever."""
        ended = asyncio.create_task(self._watcher.ended(handle))
        readers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                last = not follow or ended.done()
                for pod in self._watcher.pods(handle):
                    if pod.uid not in readers and (pod.trial_running or pod.trial_ended):
                        readers[pod.uid] = asyncio.create_task(self._read(job, pod, follow, queue))
                if last or len(readers) == job.hosts:
                    break
                await asyncio.wait([ended], timeout=_POLL_S)
            await asyncio.gather(*readers.values())
            await queue.put(None)
        except Exception:
            await queue.put(None)
            raise
        finally:
            await end_tasks(ended, *readers.values())

    async def _read(self, job: JobAnnotation, pod: TrackedPod, follow: bool, queue: BlockQueue) -> None:
        async def pass_on(source: AsyncIterator[bytes], container: str = "") -> None:
            lines = LinePrefixer(pod.number, job.hosts, container)
            async for block in source:
                if whole := lines.feed(block):
                    await queue.put(whole)
            if last := lines.end():
                await queue.put(last)

        others = (pass_on(self._container(pod, name, follow), name) for name in self._others)
        await asyncio.gather(pass_on(self._trial(pod, follow)), *others)

    async def _trial(self, pod: TrackedPod, follow: bool) -> AsyncIterator[bytes]:
        # The containers of a pod start one after the other: the keeper may be about to start.
        while not pod.keeper_running and not pod.over and not (pod.trial_ended and pod.real):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if pod.keeper_running:
            keeper = self._client.pod(pod.name, names.KEEPER)
            async for block in KeeperLog(keeper, pod).blocks(follow):
                yield block
        elif pod.real:  # the keeper has exited: read the node's log
            async for block in self._container(pod, names.TRIAL, follow):
                yield block

    async def _container(self, pod: TrackedPod, container: str, follow: bool) -> AsyncIterator[bytes]:
        """The node's log of a container, read when the trial has ended."""
        if follow:
            await pod.ended.wait()
        async for block in self._client.pod(pod.name, container).log():
            yield block
