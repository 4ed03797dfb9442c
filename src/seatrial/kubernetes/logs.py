"""The log of a container, live or afterwards, line by line, across cuts.

1. Every line that the node still has is given once, in the node's order, with its stamp.
2. With `follow` it goes on until the container has ended and all that it wrote has come, through restarts of the API
   server, of the kubelet and of the connection; a container that does not run yet is waited for.
3. It ends early only when the pod is gone: then `complete` is False.
4. What Kubernetes itself loses cannot be given: a node shows no more than its newest file (10 MiB by default), so what
   it rotated away while the connection was cut is gone (`gaps` counts how often that may have happened), and a kubelet
   that follows can skip what is written at the very moment of a rotation (seen with 1.35; nobody tells). Whoever needs
   every line of a log that is longer keeps a copy inside the pod.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import Asked, Invalid, KubernetesError, NotFound, Unreachable
from seatrial.kubernetes.failures import backoff_s, failure
from seatrial.kubernetes.log_resume import LogLine, LogResume
from seatrial.kubernetes.pod_state import GONE, RUNNING, container_state
from seatrial.kubernetes.resources import PODS

PATIENCE_S = 300.0
LOOK_S = 15.0  # a follow that is silent for so long is looked at: does the container still run?
WAITING = ("waiting to start", "PodInitializing", "ContainerCreating", "does not have a host assigned", "not available")


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
        self.reconnects = 0
        self._connection, self._namespace, self._pod, self._container = connection, namespace, pod, container
        self._follow = follow
        self._patience_s = patience_s
        self._resume = LogResume()
        self._asked = Asked("get", PODS, namespace, pod, "log")
        self._begun = False

    @property
    def notices(self) -> list[str]:
        """What the node said within the log about itself."""
        return self._resume.notices

    @property
    def gaps(self) -> int:
        """How often lines may be missing, because the node rotated its file while the connection was cut."""
        return self._resume.gaps

    async def __aiter__(self) -> AsyncIterator[LogLine]:
        failures, failing_since, follow = 0, time.monotonic(), self._follow
        while True:
            before = self._resume.lines
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
            if error is None and (not self._follow or (not follow and self._resume.lines == before)):
                self.complete = True
                break
            if not failures:
                failing_since = time.monotonic()
            failures += error is not None or self._resume.lines == before
            self._give_up(error, failing_since)
            self.reconnects += 1
            if self._follow:
                # Once it has ended, what is left is read until nothing new comes: a clean end can be a cut one.
                follow = await self._look() == RUNNING
            if failures:
                await asyncio.sleep(min(backoff_s(failures), 2.0))
        for line in self._resume.finish():
            yield line

    def _give_up(self, error: KubernetesError | None, failing_since: float) -> None:
        if error is None:
            return
        waiting = isinstance(error, Invalid) and any(word in error.message for word in WAITING)
        if waiting and self._follow:
            return
        lasting = error.lasting and not isinstance(error, NotFound)
        if lasting or time.monotonic() - failing_since > self._patience_s:
            raise error

    async def _connection_lines(self, follow: bool) -> AsyncIterator[LogLine]:
        response = await self._connection.stream(
            self._asked, PODS.path(self._namespace, self._pod, "log"), self._query(follow), "*/*"
        )
        self._begun = True
        self._resume.connected()
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
                for line in self._resume.feed(block):
                    yield line
        finally:
            self._connection.hang_up(response)

    def _query(self, follow: bool) -> dict[str, str]:
        query = {"timestamps": "true"}
        if self._container:
            query["container"] = self._container
        if follow:
            query["follow"] = "true"
        since = self._resume.since()
        if since is not None:
            query["sinceTime"] = since
        return query

    async def _look(self) -> str:
        return await container_state(self._connection, self._namespace, self._pod, self._container)
