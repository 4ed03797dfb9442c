"""The one object of a run on a cluster: it owns all others, names the process that works on the run, and goes away by
itself.

It is a Job without pods, because Jobs are what Kubernetes itself removes some time after their end
(`ttlSecondsAfterFinished`), and this one ends at once. While a process works on the run, a heartbeat keeps it: the time
of the API server, which is the only clock that its readers share with its writer.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import seatrial.kubernetes as k8s
from seatrial.job import Unreadable, decode
from seatrial.job.reading import boot_id, process_start
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.manifest.placement import seconds
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.watch.objects import epoch_s
from seatrial.targets.protocol import RunInUse, TargetError

BEAT_S = 30.0
_AGAIN_S = 5.0  # after a beat that was refused: a server that has just started does that for a moment
STALE_S = 120.0  # without a heartbeat for so long, the process is gone, cut off or asleep
LEAST_TTL_S = 3 * 24 * 3600
WORKED_ON_S = 24 * 3600  # that a run is kept from each beat on, at least


MakeConfigs = Callable[[str, bytes, k8s.Manifest, str], list[k8s.Manifest]]


class RunMeta(k8s.Meta, frozen=True, gc=False):
    annotations: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class Annotated(k8s.Object, frozen=True, gc=False):
    metadata: RunMeta = RunMeta()


class JobStatus(k8s.ObjectPart, frozen=True, gc=False):
    active: int = 0
    start_time: str | None = None  # of a Job that may run: None until its controller has come to it


class JobSpec(k8s.ObjectPart, frozen=True, gc=False):
    suspend: bool = False
    ttl_seconds_after_finished: int = 0


class Root(Annotated, frozen=True, gc=False):
    """What is read of the root object of a job, and of the object of a run."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Holder(msgspec.Struct, frozen=True):
    """The process that works on a run, on a machine since its last start; `space` is where its number counts."""

    host: str
    boot: str
    pid: int
    space: str = ""
    start: int = 0  # when it began; 0: not known

    @classmethod
    def me(cls) -> "Holder":
        space, pid = "", os.getpid()
        with contextlib.suppress(OSError):
            space = os.readlink("/proc/self/ns/pid")
        return cls(socket.gethostname(), boot_id(), pid, space, process_start(pid) or 0)

    def elsewhere(self) -> bool:
        """On another machine, or in another container of this one. Which process of one place works on a run is settled
        by the lock of its folder."""
        me = Holder.me()
        return (self.host, self.boot, self.space) != (me.host, me.boot, me.space)

    def gone(self) -> bool:
        """Whether it was a process of this place, and is not any more."""
        if self.elsewhere() or not self.boot:
            return False
        try:
            os.kill(self.pid, 0)
        except (OSError, OverflowError) as error:  # another user's may be hidden from us: then /proc says nothing
            return isinstance(error, ProcessLookupError)
        start = process_start(self.pid)
        return start is None or self.start not in (0, start)


def beating(found: Annotated, now_s: float) -> Holder | None:
    """The process that works on the run of this object; None: none has for some time, or it was one of this place
    that is gone. `now_s` is the server's."""
    holder, renewed_s = _heartbeat(found)
    return None if holder is None or holder.gone() or now_s - renewed_s > STALE_S else holder


def in_use_by(objects: Sequence[Annotated], now_s: float) -> bool | None:
    """Whether a process works on the run of these objects; None: it was not heard of for some time, and may be
    asleep."""
    holders = [holder for holder, _ in map(_heartbeat, objects)]
    if all(holder is None or holder.gone() for holder in holders):
        return False
    return True if any(beating(one, now_s) is not None for one in objects) else None


def _heartbeat(found: Annotated) -> tuple[Holder | None, float]:
    try:
        renewed_s = float(found.metadata.annotations[names.RENEWED])
        return decode(found.metadata.annotations[names.HOLDER], Holder), renewed_s
    except (LookupError, ValueError, Unreadable):
        return None, 0.0


async def refuse_another(client: k8s.Kubernetes, found: Annotated, run: str) -> None:
    """Raises RunInUse when a process of another machine works on the run of this object."""
    holder = beating(found, await client.now_s())
    if holder is not None and holder.elsewhere():
        raise RunInUse(
            f"{run} is being worked on by process {holder.pid} on {holder.host}; stop that one first, or wait "
            f"{STALE_S:g} s after it was lost"
        )


class RunObject:
    def __init__(self, client: k8s.Kubernetes, options: KubernetesOptions, run: str, of: str = "") -> None:
        """`of` one attempt of the run: an object of its own, which owns what a driver makes and ends with that."""
        self.run, self._of = run, of
        self.elsewhere: tuple[str, ...] = ()  # namespaces with an object of the same name, that goes with this one
        self.image = ""  # of a job of the run
        # Why this process cannot go on with the run: its credentials are no longer valid (nothing else may notice for
        # hours), or another machine has taken the run over.
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.name = names.run_object_name(run, of)
        self._client, self._options = client, options
        self._namespace = client.access.namespace
        self._making: asyncio.Task[k8s.Manifest] | None = None
        self._configs: dict[str, asyncio.Task[list[str]]] = {}
        self._beat: asyncio.Task[None] | None = None
        self._made_s = time.time()
        self._until_s = self._made_s + LEAST_TTL_S

    # ---- what is there once for the whole run

    async def owner(self) -> k8s.Manifest:
        """The reference by which it owns what is made; made or taken over if need be.

        Raises RunInUse when another machine works on the run."""
        if self._making is None or (self._making.done() and _failed(self._making)):
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def configs(self, make: MakeConfigs, content: bytes) -> list[str]:
        """The names of the ConfigMaps that hold `content`, the agent or an archive of inputs. Jobs of the same
        content share them: the first call makes them, the others wait for it."""
        key = hashlib.sha256(content).hexdigest()
        task = self._configs.get(key)
        if task is None or (task.done() and _failed(task)):
            task = self._configs[key] = asyncio.create_task(self._create_configs(make, content))
        return await asyncio.shield(task)

    def cover(self, life_s: float) -> None:
        """Make sure that it outlives a job that may live for so long from now on."""
        self._until_s = max(self._until_s, time.time() + 2 * life_s)

    # ---- its end

    async def close(self) -> None:
        """Let go; the last one to leave removes it, when no job of the run is left. Not one that was never ours."""
        tasks = [task for task in (self._beat, *self._configs.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._making is None:
            return
        await asyncio.gather(self._making, return_exceptions=True)
        if _failed(self._making):
            return
        root, jobs = manifest.root_resource(self._options), names.selector(run=names.label_value(self.run), part="job")
        with contextlib.suppress(k8s.KubernetesError):  # it goes by itself, or with `reap`
            if self._of or not await self._client.has_any(root, labels=jobs):
                await self._client.delete(k8s.JOBS, self.name)

    # ---- inner

    async def _make(self) -> k8s.Manifest:
        wanted = manifest.run_object(self.run, self._until_s - self._made_s, self._options, self._namespace, self.image)
        wanted["metadata"]["name"] = self.name
        with target_errors(f"cannot begin run {self.run} in namespace {self._namespace}", k8s.Unreachable):
            annotations = wanted["metadata"].setdefault("annotations", {})
            annotations.update(await self._beats())
            if self.elsewhere:
                annotations[names.ELSEWHERE] = " ".join(self.elsewhere)
            try:
                found = await self._client.create(wanted, Annotated, resource=k8s.JOBS)
            except k8s.AlreadyExists:
                found = await self._take_over()
        if found.metadata.deletion_timestamp is not None:
            raise TargetError(f"run {self.run} is being removed from namespace {self._namespace}")
        if self._beat is None:
            self._beat = asyncio.create_task(self._keep_beating())
        return manifest.owner(k8s.JOBS, self.name, found.metadata.uid)

    async def _take_over(self) -> Annotated:
        """From a process that is gone. Of several who try at the same time one gets it."""
        while True:
            found = await self._client.get(k8s.JOBS, self.name, Root)
            await refuse_another(self._client, found, self.run)
            # The cluster counts from the object's own end, and its time to live must not become shorter.
            self._made_s = epoch_s(found.metadata.creation_timestamp) or self._made_s
            self._until_s = max(self._until_s, self._made_s + found.spec.ttl_seconds_after_finished)
            try:
                await self._renew(found.metadata.resource_version)
                return found
            except k8s.ApiError as error:
                if error.code != 409:  # it changed meanwhile
                    raise

    async def _create_configs(self, make: MakeConfigs, content: bytes) -> list[str]:
        async def create(config: k8s.Manifest) -> str:
            name = str(config["metadata"]["name"])
            with (
                target_errors(f"cannot hand {name} to the jobs", k8s.Unreachable),
                contextlib.suppress(k8s.AlreadyExists),
            ):
                await self._client.create(manifest.marked(config, self._options), resource=k8s.CONFIG_MAPS)
            return name

        made = make(self.run, content, await self.owner(), self._namespace)
        return await asyncio.gather(*map(create, made))

    async def _beats(self) -> dict[str, str]:
        now_s = await self._client.now_s()
        return {names.HOLDER: msgspec.json.encode(Holder.me()).decode(), names.RENEWED: f"{now_s:.0f}"}

    async def _renew(self, version: str = "") -> None:
        """With `version` only if it has not changed since."""
        self._until_s = max(self._until_s, time.time() + WORKED_ON_S)
        metadata = {"annotations": await self._beats(), **({"resourceVersion": version} if version else {})}
        patch = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": seconds(self._until_s - self._made_s)}}
        await self._client.patch(k8s.JOBS, self.name, patch)

    async def _keep_beating(self) -> None:
        refused = False
        while True:
            await asyncio.sleep(_AGAIN_S if refused else BEAT_S)
            try:
                # After a long absence (asleep, cut off), another machine may have taken the run over.
                found = await self._client.get(k8s.JOBS, self.name, Annotated)
                await refuse_another(self._client, found, self.run)
                await self._renew()
                refused = False
            except (k8s.NotFound, RunInUse) as error:  # removed with all that it owned, or taken over: all begins anew
                self._making, self._configs, self._beat = None, {}, None
                if isinstance(error, RunInUse) and not self.lost.done():
                    self.lost.set_result(error)
                return
            except k8s.CredentialsError as error:
                if refused:
                    if not self.lost.done():
                        self.lost.set_result(error)
                    return
                refused = True
            except k8s.KubernetesError:
                continue  # a missed beat; the next one comes


async def remove_unused(client: k8s.Kubernetes, root: k8s.Resource, run: str) -> None:
    """The object of a run, named by the label's value, when that has no jobs any more and no process works on it."""
    if await client.has_any(root, labels=names.selector(run=run, part="job")):
        return
    labels, now_s = names.selector(run=run, part="run"), await client.now_s()
    for found in [one async for one in client.list(k8s.JOBS, Annotated, labels=labels)]:
        if beating(found, now_s) is None:
            await client.delete(k8s.JOBS, found.metadata.name)


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.cancelled() or task.exception() is not None
