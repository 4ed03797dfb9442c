"""The log of a container, live or afterwards, line by line, across cuts.

1. Every line that the node still has is given once, in the node's order. After a cut, lines are told by their stamps,
   which have nanoseconds: two lines with one stamp count as one then.
2. With `follow` it goes on until the container has ended and all that it wrote has come, through restarts of the API
   server, of the kubelet and of the connection; a container that does not run yet is waited for.
3. It ends early only when the pod is gone.
4. What Kubernetes itself loses cannot be given: a node shows no more than its newest file (10 MiB by default), so what
   it rotated away while the connection was cut is gone, and a kubelet that follows can skip what is written at the very
   moment of a rotation (observed with 1.35). To keep every line of a longer log, write a copy inside the pod.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator

from seatrial.kubernetes.errors import Invalid, KubernetesError, NotFound
from seatrial.kubernetes.http.failures import backoff_s
from seatrial.kubernetes.objects import Tree
from seatrial.kubernetes.pod.commands import PodContainer
from seatrial.kubernetes.wire import decode

LOG_PATIENCE_S = 300.0
SILENCE_S = 15.0  # after so long without output: does the container still run?
SILENCES = 8  # after so many the connection may be dead: another is opened
LINE_BYTES = 4 << 20
RECENT = 100  # lines that are asked for again after a cut: two streams may be written a little out of order
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?= |$)")
WAITING = ("waiting to start", "PodInitializing", "ContainerCreating", "does not have a host assigned", "not available")
STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
RUNNING, ENDED, GONE = "running", "ended", "gone"


class Logs:
    """Iterate over it, once."""

    def __init__(self, pod: PodContainer, *, follow: bool = False, patience_s: float = LOG_PATIENCE_S) -> None:
        self._pod, self._connection = pod, pod.connection
        self._follow = follow
        self._patience_s = patience_s
        self._count = 0
        self._recent: deque[bytes] = deque(maxlen=RECENT)  # stamps of lines that were given; all of one length
        self._rest = b""  # the beginning of a line of which the newline has not come
        self._begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failures, failing_since, follow = 0, time.monotonic(), self._follow
        while True:
            before = self._count
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
                    return
                error = missing
            except KubernetesError as broken:
                error = broken
            if error is None and (not self._follow or (not follow and self._count == before)):
                if found := STAMP.match(self._rest):  # at the end, without a newline
                    yield self._rest[found.end() + 1 :]
                return
            if not failures:
                failing_since = time.monotonic()
            failures += error is not None or self._count == before
            self._give_up(error, failing_since)
            if self._follow:
                # Once it has ended, what is left is read until nothing new comes: a clean end can be a cut one.
                follow = await self._state() == RUNNING
            if failures:
                await asyncio.sleep(min(backoff_s(failures), 2.0))

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
        query += [("sinceTime", self._recent[0].decode())] if self._recent else []
        request = self._pod.request("get", "log")
        response = await self._connection.stream(request, query, "*/*")
        self._begun, silences = True, 0
        given, oldest, self._rest = frozenset(self._recent), self._recent[0] if self._recent else b"", b""
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        block = await self._connection.read(request, response)
                except TimeoutError:
                    silences += 1
                    if follow and silences < SILENCES and await self._state() == RUNNING:
                        continue
                    return
                silences = 0
                if not block:
                    return
                *lines, self._rest = (self._rest + block).split(b"\n")
                if len(self._rest) > LINE_BYTES:  # what follows of it has no stamp, and is left out
                    lines, self._rest = [*lines, self._rest], b""
                for text in lines:
                    if (found := STAMP.match(text)) and found[0] > oldest and found[0] not in given:
                        self._recent.append(found[0])
                        self._count += 1
                        yield text[found.end() + 1 :] + b"\n"
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
