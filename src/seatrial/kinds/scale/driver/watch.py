"""Watches the objects of all workloads in a separate process, so that bursts of submissions do not delay its stamps:
`python -c PROGRAM FILE`, where FILE lists what to watch.

Writes each stage of each object to a file when it is first seen, with the time when its bytes arrived. For a stage that
was reached in a gap (before the watch began, or after the server lost its history) also writes when the gap began."""

import asyncio
import contextlib
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.job import decode
from seatrial.kinds.driver import DriverError, in_background
from seatrial.kinds.scale.driver.health import read_lines
from seatrial.kinds.scale.driver.stamps import StampFeed, Stamps, form_of
from seatrial.kinds.scale.followed import BETWEEN, PODS_LABELLED, PODS_OF_OTHERS, Followed, follow_root
from seatrial.kinds.scale.work import CANARY, WORKLOAD_LABEL
from seatrial.kubernetes import (
    PODS,
    AlreadyExists,
    Kubernetes,
    KubernetesError,
    Resource,
    Right,
    UnknownKind,
    load_access,
    pod_metadata,
)
from seatrial.targets import OwnedObjects

SYNCED, FAILED = "synced", "failed "  # printed when all existing objects have been seen, or on failure
TICK_S, TICKS = 0.02, 50  # sampling interval of the own event loop's lag; samples per record


class Watched(msgspec.Struct, frozen=True):
    """A watched kind on this cluster."""

    resource: Resource
    followed: Followed
    root: bool = False  # objects of this kind may be workloads themselves


class WatchWork(msgspec.Struct, frozen=True):
    kubeconfig: str | None
    context: str | None
    namespaces: tuple[str, ...]
    selector: str
    stamps: str
    prefix: str  # of workload names
    watched: tuple[Watched, ...]
    blind_since_s: float | None = None  # when an earlier watch of the same workloads ended


async def _follow(work: WatchWork) -> None:
    access = load_access(Path(work.kubeconfig) if work.kubeconfig else None, work.context)
    stamps = Stamps(Path(work.stamps), work.prefix, work.selector)
    waiting = {(one.resource, namespace) for one in work.watched for namespace in work.namespaces}

    async def follow_one(one: Watched, namespace: str) -> None:
        feed = StampFeed(stamps, one.followed, one.root, work.blind_since_s)
        form = form_of(one.followed, annotated=one.resource == PODS)  # the canary is a pod
        labels = work.selector if one.followed.labelled else ""
        chosen = {"namespace": namespace, "labels": labels, "fields": one.followed.fields}
        async for event in client.watch(one.resource, form, keep=False, **chosen):  # type: ignore[arg-type]
            feed.take(event)
            if event.object is None and waiting:
                waiting.discard((one.resource, namespace))
                if not waiting:
                    print(SYNCED, flush=True)

    async with Kubernetes(access) as client, asyncio.TaskGroup() as group:
        group.create_task(_measure_own_loop(stamps))
        for one in work.watched:
            for namespace in work.namespaces:
                group.create_task(follow_one(one, namespace))


async def _measure_own_loop(stamps: Stamps) -> None:
    """Records the lag of this process's event loop, which is part of every stamp."""
    while True:
        worst_s = 0.0
        for _ in range(TICKS):
            wanted_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            worst_s = max(worst_s, time.monotonic() - wanted_s)
        stamps.write({"loop_s": worst_s, "at_s": time.monotonic()})


async def watch_until_cancelled(path: Path) -> None:
    """Watches until stdin closes. The load generator holds it open, so this process never outlives it."""
    work = decode(path.read_bytes(), WatchWork)
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    following = asyncio.create_task(_follow(work))
    ended = asyncio.create_task(over.wait())
    await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if following.done():
        try:
            following.result()
        except* KubernetesError as errors:
            print(FAILED + str(errors.exceptions[0]).replace("\n", " "), flush=True)
            raise SystemExit(1) from None
    following.cancel()


# The load generator's side of that process.


_WATCH_S = 600.0  # time limit for the first list
_END_S = 10.0
OF_PLAIN_PODS = ("PodGroup", "Workload", "PersistentVolumeClaim", "Event")  # may belong to a pod without a job


class Following(msgspec.Struct, frozen=True):
    watched: tuple[Watched, ...]
    left_out: tuple[str, ...]  # missing permissions for kinds that the cluster has


def pods_labelled(manifests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the pods of all these workloads carry the attempt's labels: manifests contain their templates. Pure."""
    return all(one.get("kind") == "Pod" or [*pod_metadata(one.get("spec"))] for one in manifests)


async def followed_on(
    client: Kubernetes, roots: Iterable[Resource], labelled: bool, named: Iterable[Followed], namespaces: Iterable[str]
) -> Following:
    """What to watch: pods, the workloads, and the kinds between them that the cluster has. `named` are the user's own,
    which must exist. `labelled`: pods carry the attempt's labels. Raises UnknownKind."""
    pods = PODS_LABELLED if labelled else PODS_OF_OTHERS
    roots = {*roots}
    found = {PODS: Watched(PODS, pods)}  # also if the workloads are pods themselves
    for resource in roots - {PODS}:
        found[resource] = Watched(resource, follow_root(resource.api_version, resource.kind), root=True)
    for one in named:
        resource = await client.discovery.of_kind(one.api_version, one.kind)
        found[resource] = Watched(resource, one, root=resource in roots)
    left_out, groups = [], {(resource.group, resource.kind) for resource in found}
    between = BETWEEN if roots != {PODS} else tuple(one for one in BETWEEN if one.kind in OF_PLAIN_PODS)
    for one in between:
        with contextlib.suppress(UnknownKind):
            resource = await client.discovery.of_kind(one.api_version, one.kind)
            if resource in roots and len(roots) > 1:  # one class's workloads, between workloads and pods of another
                found[resource] = Watched(resource, one, root=True)
            if (resource.group, resource.kind) in groups:
                continue  # the same kind in another version, or a workload itself
            groups.add((resource.group, resource.kind))
            group, plural = resource.group, resource.plural
            wanted = [Right(verb, group, plural, space) for space in namespaces for verb in ("list", "watch")]
            answers = await asyncio.gather(*(client.can(right) for right in wanted))
            if all(answers):
                found[resource] = Watched(resource, one)
            else:
                left_out.append(str(wanted[answers.index(False)]))
    return Following(tuple(found.values()), tuple(left_out))


@contextlib.asynccontextmanager
async def watching(work: WatchWork, path: Path) -> AsyncIterator[None]:
    """Runs the watch process for the block. On entry, all existing objects have been seen. Raises DriverError."""
    path.write_bytes(msgspec.json.encode(work))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        try:
            async with asyncio.timeout(_WATCH_S):
                first = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            raise DriverError(f"the watch received nothing within {_WATCH_S:g} s") from None
        if first != SYNCED:
            why = first.removeprefix(FAILED) or f"the watch process exited {await process.wait()}"
            raise DriverError(f"cannot watch the workloads: {why}")
        yield
        if process.returncode is not None:
            last = (await process.stdout.read()).decode().strip().removeprefix(FAILED)
            why = last or f"the watch process exited {process.returncode}"
            raise DriverError(f"the watch stopped early: {why}")
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        path.unlink(missing_ok=True)


_EVERY_S = 0.2


class Canary:
    """Measures the lag of the watch: patches a pod that never runs, and looks for each change in what the watch saw."""

    def __init__(self, mine: OwnedObjects, prefix: str) -> None:
        self._client, self._mine, self._name = mine.client, mine, f"{prefix}-{CANARY}"
        self._acknowledged: dict[str, float] = {}
        self.attempts: list[RequestAttempt] = []  # all its requests

    @contextlib.asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        # A scheduling gate that is never removed keeps it from being scheduled.
        # Because it never runs, it can always meet the restricted pod security standard.
        least = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        spec = {
            "schedulingGates": [{"name": "seatrial/canary"}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "none", "image": "none", "securityContext": least}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self._name}, "spec": spec}
        manifest = self._mine.own(pod, PODS)
        manifest["metadata"]["labels"][WORKLOAD_LABEL] = CANARY
        with contextlib.suppress(AlreadyExists):  # from before a restart
            await self._client.create(manifest, resource=PODS, name=self._name)
        try:
            async with in_background(self._change_it()):
                yield
        finally:
            with contextlib.suppress(KubernetesError):
                await self._client.delete(PODS, self._name, grace_s=0)

    async def _change_it(self) -> None:
        for number in itertools.count():
            mark = f"{os.getpid()}-{number}"  # differs after a restart
            change = {"metadata": {"annotations": {CANARY: mark}}}
            with contextlib.suppress(KubernetesError):  # an unacknowledged change is not measured
                # Not retried, because the next change soon shows whether the server is back.
                await self._client.patch(PODS, self._name, change, retry=False, attempts=self.attempts)
                self._acknowledged[mark] = time.monotonic()
            await asyncio.sleep(_EVERY_S)

    def lags(self, stamps: Path) -> list[tuple[float, float]]:
        """(time of acknowledgement, lag in seconds) of each change; 0 if the watch was first. A change that never
        arrived counts as arriving with the next one."""
        arrived: dict[str, float] = {}
        for line in read_lines(stamps):
            if line.canary:
                arrived.setdefault(line.canary, line.at_s)
        found, arrived_s = list[tuple[float, float]](), math.inf
        for mark, at_s in reversed(self._acknowledged.items()):
            arrived_s = arrived.get(mark, arrived_s)
            found.append((at_s, max(arrived_s - at_s, 0.0)))
        return [one for one in reversed(found) if one[1] < math.inf]


def main() -> None:
    asyncio.run(watch_until_cancelled(Path(sys.argv[1])))


# Not with -m: the package has imported this module by then, and Python would warn on standard error.
PROGRAM = "from seatrial.kinds.scale.driver.watch import main; main()"
