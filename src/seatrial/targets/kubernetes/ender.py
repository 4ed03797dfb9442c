"""Ends jobs on a cluster: asked politely, by a file that their keepers write for them, or deleted."""

import asyncio
import contextlib
from collections.abc import Sequence

from seatrial.kubernetes import JOBS, Kubernetes, KubernetesError, Resource
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.watch.jobs import TrackedPod

ASK_S = 20.0  # for one try at a pod
REQUEST_AGAIN_S = 0.5
_ASK = ["/bin/sh", "-c", f"mkdir -p {names.OUT} && : > {names.OUT}/cancel"]


class Ender:
    def __init__(self, client: Kubernetes, resource: Resource = JOBS) -> None:
        self._client, self._resource = client, resource

    async def delete(self, name: str) -> bool:
        """The root, and with it all of the job, each pod after its grace. False: it was not there."""
        return await self._client.delete(self._resource, name)

    async def ask(self, pods: Sequence[TrackedPod]) -> bool:
        """Whether all that run were reached. One that has not begun cannot be asked: it is deleted."""
        running = [pod for pod in pods if pod.trial_running]
        if not running and any(pod.trial_ended for pod in pods):
            return True
        reached = await asyncio.gather(*(self._ask(pod.name) for pod in running))
        return bool(running) and all(reached)

    async def _ask(self, pod: str) -> bool:
        keeper = self._client.pod(pod, names.KEEPER)
        for attempt in range(3):
            with contextlib.suppress(KubernetesError, TimeoutError):
                async with asyncio.timeout(ASK_S):
                    return (await keeper.run(_ASK)).exit_code == 0
            await asyncio.sleep(REQUEST_AGAIN_S * attempt)
        return False


class Bystander(Ender):
    """Ends nothing: of one who only looks at the jobs of somebody else."""

    async def delete(self, name: str) -> bool:
        return False

    async def ask(self, pods: Sequence[TrackedPod]) -> bool:
        return True
