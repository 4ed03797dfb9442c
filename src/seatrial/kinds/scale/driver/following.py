"""Which kinds are followed on this cluster, and the process that watches them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from seatrial.kinds.driver import DriverError
from seatrial.kinds.scale.driver.watch import FAILED, SYNCED, Watched, WatchWork
from seatrial.kinds.scale.followed import BETWEEN, PODS_LABELLED, PODS_OF_OTHERS, Followed, follow_root
from seatrial.kubernetes import PODS, Kubernetes, Resource, Right, UnknownKind, pod_metadata

_WATCH_S = 600.0  # for the first list
_END_S = 10.0


class Following(msgspec.Struct, frozen=True):
    watched: tuple[Watched, ...]
    left_out: tuple[str, ...]  # kinds that the cluster has and does not let us watch


def pods_labelled(manifests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the pods of all these workloads carry the attempt's labels, because they are described in them. Pure."""
    return all(one.get("kind") == "Pod" or [*pod_metadata(one.get("spec"))] for one in manifests)


async def followed_on(
    client: Kubernetes, roots: Iterable[Resource], labelled: bool, named: Iterable[Followed], namespaces: Iterable[str]
) -> Following:
    """Pods and the workloads themselves always, and of what is between them all that the cluster has; `named` are the
    user's own, which it must have. `labelled`: pods carry the attempt's labels.

    Raises UnknownKind."""
    pods = PODS_LABELLED if labelled else PODS_OF_OTHERS
    roots = {*roots}
    found = {PODS: Watched(PODS, pods)}  # also where pods are the workloads themselves: their stages are these
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
            if resource in roots and len(roots) > 1:  # workloads of one class, and between those of another
                found[resource] = Watched(resource, one, root=True)
            if (resource.group, resource.kind) in groups:
                continue  # the same in another version, or a workload itself
            groups.add((resource.group, resource.kind))
            missing = await _missing(client, resource, namespaces)
            if missing:
                left_out.append(str(missing[0]))
            else:
                found[resource] = Watched(resource, one)
    return Following(tuple(found.values()), tuple(left_out))


OF_PLAIN_PODS = ("PodGroup", "Workload", "PersistentVolumeClaim", "Event")  # what may belong to a pod without a job


async def _missing(client: Kubernetes, resource: Resource, namespaces: Iterable[str]) -> list[Right]:
    wanted = [
        Right(verb, resource.group, resource.plural, namespace)
        for namespace in namespaces
        for verb in ("list", "watch")
    ]
    answers = await asyncio.gather(*(client.can(right) for right in wanted))
    return [right for right, allowed in zip(wanted, answers, strict=True) if not allowed]


@contextlib.asynccontextmanager
async def watching(work: WatchWork, path: Path) -> AsyncIterator[None]:
    """While it is open, every stage is written down; it is open when all that is there has been seen."""
    path.write_bytes(msgspec.json.encode(work))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "seatrial.kinds.scale.driver.watch", str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        try:
            async with asyncio.timeout(_WATCH_S):
                first = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            raise DriverError(f"the watch of the workloads saw nothing within {_WATCH_S:g} s") from None
        if first != SYNCED:
            why = first.removeprefix(FAILED) or f"it ended with {await process.wait()}"
            raise DriverError(f"the workloads cannot be watched: {why}")
        yield
        if process.returncode is not None:
            last = (await process.stdout.read()).decode().strip().removeprefix(FAILED)
            why = last or f"it ended with {process.returncode}"
            raise DriverError(f"the watch of the workloads ended before they did: {why}")
    finally:
        process.stdin.close()
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        path.unlink(missing_ok=True)
