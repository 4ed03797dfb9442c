"""One pod: its logs, commands inside it, its ports, its files."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from seatrial.kubernetes.errors import KubernetesError, backoff_s
from seatrial.kubernetes.pod_exec import PodContainer
from seatrial.kubernetes.pod_files import NO_LIMIT, fetch_archive
from seatrial.kubernetes.port_forward import Forward, port_forward

LOG_PATIENCE_S = 60.0
SILENCE_S = 30.0  # all of a log is there already: who sends nothing for so long is not there


class Pod(PodContainer):
    """Made by `Kubernetes.pod`. Asks nothing until it is used; `container` is needed when there are several."""

    def forward(self, port: int) -> AbstractAsyncContextManager[Forward]:
        return port_forward(self, port)

    async def fetch_folder(
        self, path: str, into: Path, pack: Sequence[str] = (), most_bytes: int = NO_LIMIT
    ) -> tuple[str, ...]:
        """`pack`: another command than `tar` that writes the archive. Raises TooLarge beyond `most_bytes`. Gives what
        was left out: links that lead outside, devices."""
        return await fetch_archive(self, path, into, pack, most_bytes)

    async def log(self, patience_s: float = LOG_PATIENCE_S) -> AsyncIterator[bytes]:
        """What its node has of what the container has written so far: no more than the newest file (10 MiB by default).
        After a cut it is read anew, and what was given is not given again."""
        until_s, failures, given = time.monotonic() + patience_s, 0, 0
        while True:
            try:
                at = 0
                async for block in self._log_blocks():
                    at += len(block)
                    if at > given:
                        yield block[len(block) - (at - given) :]
                        given = at
                return
            except KubernetesError as error:
                failures += 1
                if error.lasting or time.monotonic() > until_s:
                    raise
            await asyncio.sleep(min(backoff_s(failures), 2.0))

    async def _log_blocks(self) -> AsyncIterator[bytes]:
        request = self.request("get", "log")
        query = [("container", self.container)] if self.container else []
        response = await self.connection.stream(request, query, "*/*")
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    block = await self.connection.read(request, response)
                if not block:
                    return
                yield block
        except TimeoutError:
            what = f"the log of {self.namespace}/{self.name}"
            raise KubernetesError(f"{what}: nothing came for {SILENCE_S:g} s") from None
        finally:
            self.connection.hang_up(response)
