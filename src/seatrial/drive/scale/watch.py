"""Follows the pods of all workloads from a process of its own, so that no burst of submissions delays its stamps:
`python -m seatrial.drive.scale.watch FILE`, where FILE says what to watch.

Each stage of each pod is written to a file when it is first seen, stamped as its bytes arrived. Of what was reached
while the watch was blind (before it began, or after the server had forgotten), it is written since when it was."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from seatrial.job import decode
from seatrial.job.scale import (
    CANARY,
    DELETED,
    FINISHED,
    POD_CREATED,
    READY,
    SCHEDULED,
    STARTED,
    UNSCHEDULABLE,
    WORKLOAD_LABEL,
    Stamp,
)
from seatrial.kubernetes import PODS, Kubernetes, Meta, Object, ObjectPart, load_access
from seatrial.kubernetes import watch as kubernetes_watch

SYNCED = "synced"  # printed when everything that is there has been seen


class WatchWork(msgspec.Struct, frozen=True):
    kubeconfig: str | None
    context: str | None
    namespaces: tuple[str, ...]
    selector: str
    stamps: str
    blind_since_s: float | None = None  # an earlier watch of the same workloads ended then


class Condition(ObjectPart, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""


class CanaryMeta(Meta, frozen=True, gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Spec(ObjectPart, frozen=True, gc=False):
    node_name: str = ""


class Status(ObjectPart, frozen=True, gc=False):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class WorkloadPod(Object, frozen=True, gc=False):
    metadata: CanaryMeta = CanaryMeta()
    spec: Spec = Spec()
    status: Status = Status()


def stages_of(pod: WorkloadPod) -> Iterator[str]:
    """All that this state of a pod shows to have been reached."""
    yield POD_CREATED
    phase = pod.status.phase
    conditions = {one.type: one for one in pod.status.conditions}
    if pod.spec.node_name:
        yield SCHEDULED
    elif (decision := conditions.get("PodScheduled")) and decision.reason == "Unschedulable":
        yield UNSCHEDULABLE
    if phase in ("Running", "Succeeded", "Failed"):
        yield STARTED
    if (ready := conditions.get("Ready")) and ready.status == "True":
        yield READY
    if phase in ("Succeeded", "Failed"):
        yield FINISHED


class Stamps:
    """Which stages of which pods were seen, and the file that says when. One number a pod is kept, no object."""

    def __init__(self, path: Path, blind_since_s: float | None) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seen: dict[str, int] = {}
        self._bits = {name: 1 << place for place, name in enumerate(_ORDER)}
        self._blind_since_s = blind_since_s
        self._last_s = blind_since_s

    def take(self, event: "kubernetes_watch.WatchEvent[WorkloadPod]") -> None:
        if event.object is None:  # all that was there when the watch began, or began again, has been seen
            self._blind_since_s = None
            return
        since_s = self._last_s if event.relisted else self._blind_since_s
        pod = event.object
        number = pod.metadata.labels.get(WORKLOAD_LABEL, "")
        if number == CANARY:
            self._write({"canary": pod.metadata.annotations.get(CANARY, ""), "at_s": event.at_s})
        elif number.isdigit():
            reached = [DELETED] if event.kind == kubernetes_watch.DELETED else list(stages_of(pod))
            self._reach(int(number), pod, reached, event.at_s, since_s)
        self._last_s = event.at_s

    def _reach(self, workload: int, pod: WorkloadPod, stages: list[str], at_s: float, since_s: float | None) -> None:
        uid = pod.metadata.uid
        seen = self._seen.get(uid, 0)
        for stage in stages:
            if not seen & self._bits[stage]:
                failed = stage == FINISHED and pod.status.phase == "Failed"
                self._write(Stamp(workload, uid, stage, at_s, since_s, failed))
                seen |= self._bits[stage]
        self._seen[uid] = seen

    def _write(self, line: object) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")


_ORDER = (POD_CREATED, SCHEDULED, UNSCHEDULABLE, STARTED, READY, FINISHED, DELETED)


async def follow(work: WatchWork) -> None:
    access = load_access(Path(work.kubeconfig) if work.kubeconfig else None, work.context)
    waiting = set(work.namespaces)

    async def follow_one(namespace: str) -> None:
        stamps = Stamps(Path(work.stamps), work.blind_since_s)
        watch = client.watch(PODS, WorkloadPod, namespace=namespace, labels=work.selector, keep=False)
        async for event in watch:
            stamps.take(event)
            if event.object is None and namespace in waiting:
                waiting.discard(namespace)
                if not waiting:
                    print(SYNCED, flush=True)

    async with Kubernetes(access) as client, asyncio.TaskGroup() as group:
        for namespace in work.namespaces:
            group.create_task(follow_one(namespace))


async def _main(path: Path) -> None:
    """Until the input ends: the driver holds it, so this process never outlives it."""
    work = decode(path.read_bytes(), WatchWork)
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    following = asyncio.create_task(follow(work))
    ended = asyncio.create_task(over.wait())
    await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()
    following.cancel()
    ended.cancel()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
