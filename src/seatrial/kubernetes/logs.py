"""The log of a container, live or afterwards, line by line, across cuts.

1. Every line that the node still has is given once, in the node's order. One longer than `LINE_BYTES` is cut there.
2. With `follow` it goes on until the container has ended and all that it wrote has come, through restarts of the API
   server, of the kubelet and of the connection; a container that does not run yet is waited for.
3. It ends early only when the pod is gone: then `complete` is False.
4. What Kubernetes itself loses cannot be given: a node shows no more than its newest file (10 MiB by default), so what
   it rotated away while the connection was cut is gone, and a kubelet that follows can skip what is written at the very
   moment of a rotation (observed with 1.35). Whoever needs every line of a longer log keeps a copy inside the pod.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import Asked, Invalid, KubernetesError, NotFound, Unreachable
from seatrial.kubernetes.failures import backoff_s, failure
from seatrial.kubernetes.objects import Object, Part
from seatrial.kubernetes.resources import PODS
from seatrial.kubernetes.wire import decode

PATIENCE_S = 300.0
LOOK_S = 15.0  # a follow that is silent for so long is looked at: does the container still run?
LINE_BYTES = 4 << 20
BACK_S = 1  # how far before the newest line is asked again
STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?= |$)")
WAITING = ("waiting to start", "PodInitializing", "ContainerCreating", "does not have a host assigned", "not available")
RUNNING, ENDED, GONE = "running", "ended", "gone"


class Lines:
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
        """None for a line that was given before, and for what is none: words of the node itself, and the end of a line
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

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        pod: str,
        container: str = "",
        *,
        follow: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.complete: bool | None = None  # known when the iteration is over
        self._connection, self._namespace, self._pod, self._container = connection, namespace, pod, container
        self._follow = follow
        self._patience_s = patience_s
        self._lines = Lines()
        self._asked = Asked("get", PODS, namespace, pod, "log")
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
                if await self._look() == GONE:
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
                follow = await self._look() == RUNNING
            if failures:
                await asyncio.sleep(min(backoff_s(failures), 2.0))
        if last := self._lines.finish():
            yield last

    def _give_up(self, error: KubernetesError | None, failing_since: float) -> None:
        if error is None:
            return
        waiting = isinstance(error, Invalid) and any(word in error.message for word in WAITING)
        if waiting and self._follow:
            return
        lasting = error.lasting and not isinstance(error, NotFound)
        if lasting or time.monotonic() - failing_since > self._patience_s:
            raise error

    async def _connection_lines(self, follow: bool) -> AsyncIterator[bytes]:
        asked = {"container": self._container, "follow": "true" if follow else "", "sinceTime": self._lines.since()}
        query = {"timestamps": "true", **{key: value for key, value in asked.items() if value}}
        path = PODS.path(self._namespace, self._pod, "log")
        response = await self._connection.stream(self._asked, path, query, "*/*")
        self._begun = True
        self._lines.connected()
        try:
            while True:
                try:
                    async with asyncio.timeout(LOOK_S):
                        block = await response.content.readany()
                except TimeoutError:
                    if follow and await self._look() == RUNNING:
                        continue
                    return
                except (aiohttp.ClientError, OSError) as error:
                    wrong = failure(error)
                    raise Unreachable(self._connection.access.server, self._asked, wrong.words) from error
                if not block:
                    return
                for line in self._lines.feed(block):
                    yield line
        finally:
            self._connection.hang_up(response)

    async def _look(self) -> str:
        """Whether the container still runs: what tells a cut stream from one that has ended. `running` also before it
        has begun; `ended` when nothing more can come of it; `gone` with its pod."""
        asked = Asked("get", PODS, self._namespace, self._pod)
        try:
            answer = await self._connection.request(asked, "GET", PODS.path(self._namespace, self._pod))
        except NotFound:
            return GONE
        pod = decode(asked, _Pod, answer.body)
        status = pod.status
        if status.phase in ("Succeeded", "Failed"):
            return ENDED
        wanted = self._container or next((one.name for one in pod.spec.containers), "")
        known = status.container_statuses + status.init_container_statuses + status.ephemeral_container_statuses
        return ENDED if any(one.name == wanted and one.state.terminated is not None for one in known) else RUNNING


class _Ended(Part, frozen=True):
    exit_code: int = 0


class _State(Part, frozen=True):
    terminated: _Ended | None = None


class _Container(Part, frozen=True):
    name: str = ""
    state: _State = _State()


class _Status(Part, frozen=True):
    phase: str = ""
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    ephemeral_container_statuses: tuple[_Container, ...] = ()


class _Spec(Part, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()
