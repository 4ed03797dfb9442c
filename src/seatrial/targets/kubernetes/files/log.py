"""Reads logs of jobs from the agent's files in the keepers: each byte once, across broken connections.

Kubernetes' own container log loses lines when it is rotated. The agent keeps a head and the last segments
(`agent/log.py`), so that a reader that was disconnected for a while loses nothing; if it does, the log says so.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from seatrial.kubernetes import STDOUT, Kubernetes, KubernetesError, Pod
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.errors import target_error
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.watcher import JobWatcher

HEAD_BYTES, SEGMENT_BYTES = 4 << 20, 1 << 20  # as in agent/log.py
_PATIENCE_S = 300.0
_GONE = 77  # exit code: the requested part was deleted, later ones exist
_BACKOFF_S = (0.1, 0.3, 1.0, 2.0)

# $1: offset over all parts; $2: `once` or `follow`.
_READ = f"""
at=$1
until cd {names.OUT} 2>/dev/null; do
    if test $2 = once; then exit 0; fi
    sleep 0.2 2>/dev/null || sleep 1
done
while :; do
    ended=; test -e end.json && ended=1
    if test $at -lt {HEAD_BYTES}; then part=log.txt skip=$at; else
        part=log.txt.$(( (at - {HEAD_BYTES}) / {SEGMENT_BYTES} + 1 )) skip=$(( (at - {HEAD_BYTES}) % {SEGMENT_BYTES} ))
    fi
    if test -e $part; then
        size=$(wc -c < $part) || size=0
        if test $size -gt $skip; then
            tail -c +$((skip + 1)) $part | head -c $((size - skip)) || exit 1
            at=$((at + size - skip))
            continue
        fi
    elif test $at -ge {HEAD_BYTES}; then
        for later in log.txt.*; do
            if test -e $later && test ${{later#log.txt.}} -gt ${{part#log.txt.}}; then exit {_GONE}; fi
        done
    fi
    if test -n "$ended" || test $2 = once; then exit 0; fi
    sleep 0.2 2>/dev/null || sleep 1
done
"""
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
        ended = asyncio.create_task(self._pod.ended.wait()) if follow else None
        try:
            command = ["/bin/sh", "-c", _READ, "sh", str(self._at), "follow" if follow else "once"]
            async with await self._keeper.start(command) as running:
                blocks = aiter(running)
                while True:
                    following = asyncio.ensure_future(anext(blocks, None))
                    either = [following, *([ended] if ended else [])]
                    try:
                        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not following.done():
                            following.cancel()
                            await asyncio.gather(following, return_exceptions=True)
                    if following.cancelled():  # the rest is read without following
                        return
                    block = following.result()
                    if block is None:
                        break
                    if block[0] == STDOUT:
                        yield block[1]
                self._overtaken = running.exit_code == _GONE
        finally:
            if ended is not None:
                ended.cancel()

    async def _skip(self) -> bytes:
        """Continues with the first part that still exists; returns a line with the number of skipped bytes."""
        found = await self._keeper.run(["/bin/sh", "-c", _FIRST], check=True)
        number = int(found.stdout.split()[0]) if found.stdout.split() else 1
        following = max(self._at, HEAD_BYTES + (number - 1) * SEGMENT_BYTES)
        skipped, self._at = following - self._at, following
        return b"\n[seatrial: %d bytes left out here]\n" % skipped if skipped else b""


def line_prefix(number: int, hosts: int, container: str = "") -> bytes:
    host = b"[%d] " % number if hosts > 1 else b""
    return host + (b"(%s) " % container.encode() if container else b"")


class LinePrefixer:
    """Turns blocks, which may end anywhere, into whole lines with `prefix`. Without a prefix, blocks stay unchanged."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def feed(self, block: bytes) -> bytes:
        if not self._prefix:
            return block
        *lines, self._rest = (self._rest + block).split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def end(self) -> bytes:
        """The last line if it had no newline, with one added."""
        return self._prefix + self._rest + b"\n" if self._rest else b""


QUEUED_BLOCKS = 64
_POLL_S = 0.2


class LiveLog:
    """Log of a running job: all hosts, and the containers that the user's template adds."""

    def __init__(self, client: Kubernetes, watcher: JobWatcher, others: tuple[str, ...]) -> None:
        self._client, self._watcher, self._others = client, watcher, others

    async def blocks(self, handle: str, job: JobAnnotation, follow: bool) -> AsyncIterator[bytes]:
        """With `follow` until the job has ended. With several sources, lines are whole and prefixed with host or
        container."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_BLOCKS)
        reading = asyncio.create_task(self._read_all(handle, job, follow, queue))
        try:
            while (block := await queue.get()) is not None:
                yield block
            await reading
        except KubernetesError as error:
            raise target_error(error, f"cannot read the log of {job.name}") from error
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_all(
        self, handle: str, job: JobAnnotation, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        """Starts a reader for each pod once its trial runs; all pods exist before the job ends. Puts None at the end,
        but not when cancelled: the consumer is gone, and a full queue would block forever."""
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
            await queue.put(None)
        except Exception:
            await queue.put(None)
            raise
        finally:
            tasks = [*readers.values(), *([ended] if ended else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self, job: JobAnnotation, pod: TrackedPod, follow: bool, queue: "asyncio.Queue[bytes | None]"
    ) -> None:
        async def pass_on(source: AsyncIterator[bytes], container: str = "") -> None:
            lines = LinePrefixer(line_prefix(pod.number, job.hosts, container))
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
