"""Makes the workloads, each at its time: an open loop that waits for no answer.

Manifests are rendered to bytes before the clock starts. What is acknowledged is written down at once, so that a driver
that was killed makes only what is missing; one that was made and not written down is found by its name."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from seatrial.job import Unreadable, decode
from seatrial.job.scale import NAME, NUMBER, ScaleWork, Submission
from seatrial.kubernetes import AlreadyExists, Attempt, Kubernetes, KubernetesError, Resource

SPIN_S = 0.001  # sooner than that, a timer would be late
TOGETHER = 32
MOST = 1_000  # characters of what a server says


class Submitted:
    """The file of submissions, and what earlier lives of the driver wrote there."""

    def __init__(self, path: Path) -> None:
        self.all: dict[int, Submission] = {one.number: one for one in _read(path)}
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, submission: Submission) -> None:
        self.all[submission.number] = submission
        os.write(self._fd, msgspec.json.encode(submission) + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def _read(path: Path) -> Iterator[Submission]:
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # a last line without its end was not whole when we were killed
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield decode(line, Submission)
        except Unreadable:
            continue


def render(manifest: bytes, prefix: str, number: int) -> bytes:
    """The manifest of one workload, with its name and its number in their places."""
    name = f"{prefix}-{number}"
    return manifest.replace(NUMBER.encode(), str(number).encode()).replace(NAME.encode(), name.encode())


class Submitter:
    """One open loop. `stopping` ends it: what was not sent by then is not sent."""

    def __init__(
        self, client: Kubernetes, resource: Resource, work: ScaleWork, manifest: dict[str, Any], submitted: Submitted
    ) -> None:
        self._client, self._resource, self._work, self._submitted = client, resource, work, submitted
        self._manifest = orjson.dumps(manifest)

    async def run(self, offsets: list[float], start_s: float, stopping: asyncio.Event) -> None:
        missing = [(number, offset) for number, offset in enumerate(offsets) if number not in self._submitted.all]
        begun_s = start_s - (missing[0][1] if missing else 0.0)  # after a kill nobody waits once more for what is there
        async with asyncio.TaskGroup() as group:
            for number, offset in missing:
                if not await _until(begun_s + offset, stopping):
                    return
                group.create_task(self._submit(number, begun_s + offset))
                if number % TOGETHER == 0:
                    await asyncio.sleep(0)  # so that those of a burst are sent while the others are made

    async def _submit(self, number: int, intended_s: float) -> None:
        attempts: list[Attempt] = []
        problem = ""
        try:
            body = render(self._manifest, self._work.prefix, number)
            name = f"{self._work.prefix}-{number}"
            await self._client.create(body, resource=self._resource, name=name, attempts=attempts)
        except AlreadyExists:
            pass  # made by an earlier life of this driver, which did not come to write it down
        except KubernetesError as error:
            problem = str(error)
        sent_s = next((one.sent_s for one in attempts if one.sent_s is not None), None)
        answered_s = attempts[-1].answered_s if attempts else None
        refusals = tuple(one.status for one in attempts if one.status >= 300)
        self._submitted.add(
            Submission(
                number, intended_s, sent_s, None if problem else answered_s, len(attempts), refusals, problem[:MOST]
            )
        )


async def _until(at_s: float, stopping: asyncio.Event) -> bool:
    """Whether it is time; not when the driver is told to end before."""
    while (left_s := at_s - time.monotonic()) > 0:
        if left_s < SPIN_S:
            await asyncio.sleep(0)
            continue
        try:
            await asyncio.wait_for(stopping.wait(), left_s - SPIN_S / 2)
            return False
        except TimeoutError:
            pass
    return not stopping.is_set()
