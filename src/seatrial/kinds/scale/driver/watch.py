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
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import seatrial.kubernetes as k8s
from seatrial.http.http1 import RequestAttempt
from seatrial.job import decode
from seatrial.kinds.driver import DriverError, in_background
from seatrial.kinds.scale.driver.health import read_lines
from seatrial.kinds.scale.driver.stamps import StampFeed, Stamps, form_of
from seatrial.kinds.scale.followed import Followed, follow_root, followed_pods, kinds_between
from seatrial.kinds.scale.work import CANARY, WORKLOAD_LABEL, ObjectWait
from seatrial.targets import OwnedObjects

SYNCED, FAILED = "synced", "failed "  # printed when all existing objects have been seen, or on failure
TICK_S, TICKS = 0.02, 50  # sampling interval of the own event loop's lag; samples per record


class Watched(msgspec.Struct, frozen=True):
    """A watched kind on this cluster."""

    resource: k8s.Resource
    followed: Followed
    root: bool = False  # objects of this kind may be workloads themselves
    selector: str = ""  # new objects with these labels are workloads that others create


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
    access = k8s.load_access(Path(work.kubeconfig) if work.kubeconfig else None, work.context)
    stamps = Stamps(Path(work.stamps), work.prefix, work.selector)
    waiting = {(one, namespace) for one in work.watched for namespace in work.namespaces}

    async def follow_one(one: Watched, namespace: str) -> None:
        feed = StampFeed(stamps, one.followed, one.root, work.blind_since_s, adopts=bool(one.selector))
        form = form_of(one.followed, annotated=one.resource == k8s.PODS)  # the canary is a pod
        labels = one.selector or (work.selector if one.followed.labelled else "")
        chosen = {"namespace": namespace, "labels": labels, "fields": one.followed.fields}
        async for event in client.watch(one.resource, form, keep=False, **chosen):  # type: ignore[arg-type]
            feed.take(event)
            if event.object is None and waiting:
                waiting.discard((one, namespace))
                if not waiting:
                    print(SYNCED, flush=True)

    async with k8s.Kubernetes(access) as client, asyncio.TaskGroup() as group:
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


async def main() -> None:
    """Watches until stdin closes. The load generator holds it open, so this process never outlives it."""
    work = decode(Path(sys.argv[1]).read_bytes(), WatchWork)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)  # nothing is ever written to it
    following = asyncio.create_task(_follow(work))
    ended = asyncio.create_task(over.wait())
    await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if following.done():
        try:
            following.result()
        except* k8s.KubernetesError as errors:
            print(FAILED + str(errors.exceptions[0]).replace("\n", " "), flush=True)
            raise SystemExit(1) from None
    following.cancel()


# The load generator's side of that process.


_WATCH_S = 600.0  # time limit for the first list
_END_S = 10.0
OF_PLAIN_PODS = ("PodGroup", "Workload", "PersistentVolumeClaim", "ResourceClaim", "Event")  # of a pod without a job
WITHOUT_PODS = (
    "ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim", "PodGroup", "ResourceClaim",
    "ResourceClaimTemplate",
)  # fmt: skip


class Following(msgspec.Struct, frozen=True):
    watched: tuple[Watched, ...]
    left_out: tuple[str, ...]  # missing permissions for kinds that the cluster has


def pods_labelled(manifests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all pods of these objects carry the attempt's labels: manifests contain their templates. Pure."""
    return all(
        one.get("kind") == "Pod" or one.get("kind") in WITHOUT_PODS or [*k8s.pod_metadata(one.get("spec"))]
        for one in manifests
    )


def kinds_unused(manifests: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Kinds that workloads of these objects cannot have, so that nothing must be allowed to watch them. Pure."""
    services = any(one.get("kind") == "Service" for one in manifests) or not pods_labelled(manifests)
    claims = b'"resourceClaims"' in msgspec.json.encode(manifests) or not pods_labelled(manifests)
    return frozenset({*(() if services else ("EndpointSlice",)), *(() if claims else ("ResourceClaim",))})


async def followed_on(
    client: k8s.Kubernetes,
    roots: set[k8s.Resource],
    labelled: bool,
    named: Iterable[Followed],
    namespaces: Iterable[str],
    unused: frozenset[str] = frozenset(),
    selector: str = "",
) -> Following:
    """What to watch: pods, the workloads, and the kinds between them that the cluster has, except `unused` ones.
    `named` are the user's own, which must exist. `labelled`: pods carry the attempt's labels. `selector`: others create
    the workloads, which have these labels. Raises UnknownKind."""
    found = {k8s.PODS: Watched(k8s.PODS, followed_pods(labelled))}  # also if the workloads are pods themselves
    for resource in roots - {k8s.PODS}:
        found[resource] = Watched(resource, follow_root(resource.api_version, resource.kind), root=True)
    for one in named:
        resource = await client.discovery.of_kind(one.api_version, one.kind)
        found[resource] = Watched(resource, one, root=resource in roots)
    left_out, groups = [], {(resource.group, resource.kind) for resource in found}
    between = [one for one in kinds_between() if roots != {k8s.PODS} or one.kind in OF_PLAIN_PODS]
    for one in (one for one in between if one.kind not in unused):
        with contextlib.suppress(k8s.UnknownKind):
            resource = await client.discovery.of_kind(one.api_version, one.kind)
            if resource in roots and len(roots) > 1:  # one class's workloads, between workloads and pods of another
                found[resource] = Watched(resource, one, root=True)
            if (resource.group, resource.kind) in groups:
                continue  # the same kind in another version, or a workload itself
            groups.add((resource.group, resource.kind))
            group, plural = resource.group, resource.plural
            wanted = [k8s.Right(verb, group, plural, space) for space in namespaces for verb in ("list", "watch")]
            answers = await asyncio.gather(*(client.can(right) for right in wanted))
            if all(answers):
                found[resource] = Watched(resource, one)
            else:
                left_out.append(str(wanted[answers.index(False)]))
    watched = [replace(one, selector=selector if one.resource in roots else "") for one in found.values()]
    if selector and k8s.PODS in roots:
        watched.append(Watched(k8s.PODS, followed_pods(labelled=True)))  # for the canary, which has no such labels
    return Following(tuple(watched), tuple(left_out))


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


class ConditionWatch:
    """Waits until objects of the attempt have a condition, with one watch per kind and namespace."""

    def __init__(self, mine: OwnedObjects, within_s: float) -> None:
        self._mine, self._within_s = mine, within_s
        self._met: defaultdict[tuple[ObjectWait, str, str], asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, wanted: ObjectWait, namespace: str, name: str) -> None:
        """Raises KubernetesError if it takes too long."""
        try:
            async with asyncio.timeout(self._within_s):
                await self._met[wanted, namespace, name].wait()
        except TimeoutError:
            why = f"is not {wanted.condition} after {self._within_s:g} s"
            raise k8s.KubernetesError(f"{wanted.kind} {name} {why}; the objects after it were not created") from None

    @contextlib.asynccontextmanager
    async def watching(self, waited: Iterable[tuple[ObjectWait, k8s.Resource]]) -> AsyncIterator[None]:
        async def follow(wanted: ObjectWait, resource: k8s.Resource, namespace: str) -> None:
            chosen = {"namespace": namespace, "labels": self._mine.selector}
            async for event in self._mine.client.watch(resource, k8s.Tree, keep=False, **chosen):  # type: ignore[arg-type]
                if event.object is not None and has_condition(event.object.status, wanted.condition):
                    self._met[wanted, namespace, event.object.metadata.name].set()

        async with contextlib.AsyncExitStack() as stack:
            for wanted, resource in waited:
                for namespace in self._mine.namespaces:
                    await stack.enter_async_context(in_background(follow(wanted, resource, namespace)))
            yield


def has_condition(status: Any, condition: str) -> bool:
    """Whether this is the phase, or the type of a condition that is true. Pure."""
    status = status if isinstance(status, dict) else {}
    listed = status.get("conditions") if isinstance(status.get("conditions"), list) else []
    found = [one for one in listed or () if isinstance(one, dict) and one.get("type") == condition]
    return status.get("phase") == condition or any(one.get("status") == "True" for one in found)


_EVERY_S = 0.2


class Canary:
    """Measures the lag of the watch: patches a pod that never runs, and looks for each change in what the watch saw."""

    def __init__(self, mine: OwnedObjects, prefix: str) -> None:
        self._client, self._mine, self._name = mine.client, mine, f"{prefix}-{CANARY}"
        self._sent: dict[str, float] = {}  # when each acknowledged change was sent
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
        manifest = self._mine.own(pod, k8s.PODS)
        manifest["metadata"]["labels"][WORKLOAD_LABEL] = CANARY
        with contextlib.suppress(k8s.AlreadyExists):  # from before a restart
            await self._client.create(manifest, resource=k8s.PODS, name=self._name)
        try:
            async with in_background(self._change_it()):
                yield
        finally:
            with contextlib.suppress(k8s.KubernetesError):
                await self._client.delete(k8s.PODS, self._name, grace_s=0)

    async def _change_it(self) -> None:
        for number in itertools.count():
            mark = f"{os.getpid()}-{number}"  # differs after a restart
            change = {"metadata": {"annotations": {CANARY: mark}}}
            with contextlib.suppress(k8s.KubernetesError):  # an unacknowledged change is not measured
                # Not retried, because the next change soon shows whether the server is back.
                await self._client.patch(k8s.PODS, self._name, change, retry=False, attempts=self.attempts)
                self._sent[mark] = self.attempts[-1].sent_s or self.attempts[-1].queued_s
            await asyncio.sleep(_EVERY_S)

    def lags(self, stamps: Path) -> list[tuple[float, float]]:
        """(time of arrival, lag in seconds) of each change. The server made it after it was sent, so the true lag is
        at most this. A change that never arrived counts as arriving with the next one."""
        arrived: dict[str, float] = {}
        for line in read_lines(stamps):
            if line.canary:
                arrived.setdefault(line.canary, line.at_s)
        found, arrived_s = list[tuple[float, float]](), math.inf
        for mark, sent_s in reversed(self._sent.items()):
            arrived_s = arrived.get(mark, arrived_s)
            found.append((arrived_s, arrived_s - sent_s))
        return [one for one in reversed(found) if one[1] < math.inf]


# Not with -m: the package has imported this module by then, and Python would warn on standard error.
PROGRAM = "import asyncio; from seatrial.kinds.scale.driver.watch import main; asyncio.run(main())"
