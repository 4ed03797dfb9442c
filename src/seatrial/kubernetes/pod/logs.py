"""The log of a container as its node has it: no more than the newest file of it (10 MiB by default)."""

import asyncio
import time
from collections.abc import AsyncIterator

from seatrial.kubernetes.errors import Incomplete, KubernetesError
from seatrial.kubernetes.http.failures import backoff_s
from seatrial.kubernetes.pod.commands import PodContainer

LOG_PATIENCE_S = 60.0
SILENCE_S = 30.0  # all of it is there already: who sends nothing for so long is not there


async def read_log(pod: PodContainer, patience_s: float = LOG_PATIENCE_S) -> AsyncIterator[bytes]:
    """Blocks of what has been written so far. After a cut it is read anew, and what was given is not given again."""
    until_s, failures, given = time.monotonic() + patience_s, 0, 0
    while True:
        try:
            at = 0
            async for block in _stream(pod):
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


async def _stream(pod: PodContainer) -> AsyncIterator[bytes]:
    request = pod.request("get", "log")
    query = [("container", pod.container)] if pod.container else []
    response = await pod.connection.stream(request, query, "*/*")
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                block = await pod.connection.read(request, response)
            if not block:
                return
            yield block
    except TimeoutError:
        raise Incomplete(f"the log of {pod.namespace}/{pod.name}", f"nothing came for {SILENCE_S:g} s") from None
    finally:
        pod.connection.hang_up(response)
