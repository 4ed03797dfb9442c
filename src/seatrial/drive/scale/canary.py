"""How late the watch is, measured all the time: one pod that never runs is changed again and again, and each change is
looked for in what the watch saw."""

import asyncio
import contextlib
import itertools
import os
import time
from pathlib import Path
from typing import Any

from seatrial.drive.scale.measured import read_lines
from seatrial.job.scale import CANARY, WORKLOAD_LABEL
from seatrial.kubernetes import PODS, AlreadyExists, Kubernetes, KubernetesError
from seatrial.target.kubernetes.belongings import Belongings

_EVERY_S = 0.2


class Canary:
    def __init__(self, client: Kubernetes, mine: Belongings, prefix: str) -> None:
        self._client, self._mine, self._name = client, mine, f"{prefix}-{CANARY}"
        self._acknowledged: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Canary":
        manifest = self._mine.own(_pod(self._name), PODS)
        manifest["metadata"]["labels"][WORKLOAD_LABEL] = CANARY
        with contextlib.suppress(AlreadyExists):  # of an earlier life of this driver
            await self._client.create(manifest, resource=PODS, name=self._name)
        self._task = asyncio.create_task(self._change_it())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(KubernetesError):
            await self._client.delete(PODS, self._name, grace_s=0)

    async def _change_it(self) -> None:
        for number in itertools.count():
            mark = f"{os.getpid()}-{number}"  # no other life of this driver has the same
            change = {"metadata": {"annotations": {CANARY: mark}}}
            with contextlib.suppress(KubernetesError):  # one that is not acknowledged is not looked for
                await self._client.patch(PODS, self._name, change)
                self._acknowledged[mark] = time.monotonic()
            await asyncio.sleep(_EVERY_S)

    def lags(self, stamps: Path) -> list[tuple[float, float]]:
        """When each change was acknowledged, and how long after that it arrived, in seconds; 0 where the watch was
        first. One that never arrived was late by at least as long as others arrived after it."""
        arrived: dict[str, float] = {}
        for line in read_lines(stamps):
            if line.canary:
                arrived.setdefault(line.canary, line.at_s)
        last_s = max(arrived.values(), default=0.0)
        return [
            (at_s, max(arrived.get(mark, last_s) - at_s, 0.0))
            for mark, at_s in self._acknowledged.items()
            if mark in arrived or at_s < last_s
        ]


def _pod(name: str) -> dict[str, Any]:
    """Held back by a gate that nobody opens: it is never scheduled."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": "seatrial/canary"}],
            "containers": [{"name": "none", "image": "none"}],
        },
    }
