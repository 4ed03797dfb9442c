"""The log of a container, live or afterwards, line by line, across cuts.

1. Every line that the node still has is given once, in the node's order. One longer than `LINE_BYTES` is cut there.
2. With `follow` it goes on until the container has ended and all that it wrote has come, through restarts of the API
   server, of the kubelet and of the connection; a container that does not run yet is waited for.
3. It ends early only when the pod is gone: then `complete` is False.
4. What Kubernetes itself loses cannot be given: a node shows no more than its newest file (10 MiB by default), so what
   it rotated away while the connection was cut is gone, and a kubelet that follows can skip what is written at the very
   moment of a rotation (observed with 1.35). To keep every line of a longer log, write a copy inside the pod.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from seatrial.kubernetes.errors import Invalid, KubernetesError, NotFound
from seatrial.kubernetes.http.failures import backoff_s
from seatrial.kubernetes.objects import Tree
from seatrial.kubernetes.pod.commands import PodContainer
from seatrial.kubernetes.wire import decode

LOG_PATIENCE_S = 300.0
SILENCE_S = 15.0  # after so long without output: does the container still run?
LINE_BYTES = 4 << 20
BACK_S = 1  # how far before the newest line is asked again
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?= |$)")
WAITING = ("waiting to start", "PodInitializing", "ContainerCreating", "does not have a host assigned", "not available")
STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
RUNNING, ENDED, GONE = "running", "ended", "gone"


class LogLines:
    """Whole lines out of the blocks of several connections, each line once.

    The node stamps its lines. After a cut it is asked for everything from a second before the newest one, because it
    counts in whole seconds and two streams of one container may be written a little out of order; of what comes then,
    a line is left out as often as one with its stamp was given before.
    """

    def __init__(self) -> None:
        self.count = 0
        self._newest_s = 0
        self._asked_s = 0  # from when on this connection gives lines
        self._recent: dict[int, Counter[bytes]] = {}  # by second: the stamps of the lines that were given
        self._known: Counter[bytes] = Counter()  # those of them that this connection has not shown again yet
        self._rest = b""

    def since(self) -> str | None:
        """What the next connection asks for; None is everything."""
        if not self._newest_s:
            return None
        return datetime.fromtimestamp(self._newest_s - BACK_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def connected(self) -> None:
        self._rest, self._known = b"", Counter()
        self._asked_s = max(0, self._newest_s - BACK_S)
        for stamps in self._recent.values():
            self._known += stamps

    def feed(self, block: bytes) -> list[bytes]:
        *whole, self._rest = (self._rest + block).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            whole, self._rest = [*whole, self._rest], b""  # what follows of it has no stamp, and is left out
        return [line + b"\n" for text in whole if (line := self._new(text)) is not None]

    def finish(self) -> bytes:
        """After the last connection: what stands in the log without a newline at its end."""
        return self._new(self._rest) or b""

    def _new(self, text: bytes) -> bytes | None:
        """None for a line that was given before, and for what is none: a text of the node itself, and the end of a line
        whose beginning was not asked for, which may look as if it had a stamp."""
        found = STAMP.match(text)
        second = _second(found[0]) if found else -1
        if found is None or second < self._asked_s:
            return None
        if self._known[found[0]]:
            self._known[found[0]] -= 1
            return None
        if second > self._newest_s:
            self._newest_s = second
            self._recent = {key: stamps for key, stamps in self._recent.items() if key >= second - BACK_S}
        if second >= self._newest_s - BACK_S:
            self._recent.setdefault(second, Counter())[found[0]] += 1
        self.count += 1
        return text[found.end() + 1 :]


def _second(stamp: bytes) -> int:
    try:
        return int(datetime.fromisoformat(stamp.decode()).timestamp())
    except ValueError:  # the form of a stamp, but no time
        return -1


class Logs:
    """Iterate over it, once."""

    def __init__(self, pod: PodContainer, *, follow: bool = False, patience_s: float = LOG_PATIENCE_S) -> None:
        self.complete: bool | None = None  # known when the iteration is over
        self._pod, self._connection = pod, pod.connection
        self._follow = follow
        self._patience_s = patience_s
        self._lines = LogLines()
        self._begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failures, failing_since, follow = 0, time.monotonic(), self._follow
        while True:
            before = self._lines.count
            error: KubernetesError | None = None
            try:
                async for line in self._connection_lines(follow):
                    yield line
                    failures = 0
            except NotFound as missing:
                # A kubelet that has just started does not know its own pods yet: the API server does.
                if await self._state() == GONE:
                    if not self._begun:
                        raise
                    self.complete = False
                    break
                error = missing
            except KubernetesError as broken:
                error = broken
            if error is None and (not self._follow or (not follow and self._lines.count == before)):
                self.complete = True
                break
            if not failures:
                failing_since = time.monotonic()
            failures += error is not None or self._lines.count == before
            self._give_up(error, failing_since)
            if self._follow:
                # Once it has ended, what is left is read until nothing new comes: a clean end can be a cut one.
                follow = await self._state() == RUNNING
            if failures:
                await asyncio.sleep(min(backoff_s(failures), 2.0))
        if last := self._lines.finish():
            yield last

    def _give_up(self, error: KubernetesError | None, failing_since: float) -> None:
        if error is None:
            return
        waiting = isinstance(error, Invalid) and any(text in error.message for text in WAITING)
        if waiting and self._follow:
            return
        lasting = error.lasting and not isinstance(error, NotFound)
        if lasting or time.monotonic() - failing_since > self._patience_s:
            raise error

    async def _connection_lines(self, follow: bool) -> AsyncIterator[bytes]:
        query = [("timestamps", "true"), ("follow", "true" if follow else "false")]
        query += [("container", self._pod.container)] if self._pod.container else []
        query += [("sinceTime", since)] if (since := self._lines.since()) else []
        request = self._pod.request("get", "log")
        response = await self._connection.stream(request, query, "*/*")
        self._begun = True
        self._lines.connected()
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        block = await self._connection.read(request, response)
                except TimeoutError:
                    if follow and await self._state() == RUNNING:
                        continue
                    return
                if not block:
                    return
                for line in self._lines.feed(block):
                    yield line
        finally:
            self._connection.hang_up(response)

    async def _state(self) -> str:
        """Whether the container still runs: what tells a cut stream from one that has ended. `running` also before it
        has begun; `ended` when nothing more can come of it; `gone` with its pod."""
        request = self._pod.request("get")
        try:
            answer = await self._connection.request(request)
        except NotFound:
            return GONE
        pod = decode(request, Tree, answer.body)
        status = pod.status or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return ENDED
        wanted = self._pod.container or pod.spec["containers"][0]["name"]
        known = [one for sort in STATUSES for one in status.get(sort) or ()]
        return (
            ENDED if any(one["name"] == wanted and one.get("state", {}).get("terminated") for one in known) else RUNNING
        )
