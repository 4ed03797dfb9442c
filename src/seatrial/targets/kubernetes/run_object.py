"""The run object: owns all objects of a run on a cluster and names the process that owns the run.

It is a Job without pods, which completes at once: Kubernetes deletes Jobs some time after their end
(`ttlSecondsAfterFinished`). While a process owns the run, its heartbeat extends that time. Heartbeats use the clock of
the API server, the only clock that writer and readers share.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

import seatrial.kubernetes as k8s
from seatrial.job import Unreadable, decode
from seatrial.job.reading import boot_id, process_start
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.manifest.placement import seconds
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.watch.objects import RootSpec, epoch_s
from seatrial.targets.protocol import RunInUse, TargetError
from seatrial.targets.tasks import end_tasks, failed, shared_task

BEAT_S = 30.0
_AGAIN_S = 5.0  # after a refused heartbeat: a server that has just started may refuse for a moment
STALE_S = 120.0  # without a heartbeat for this long, the process is gone, disconnected or asleep
LEAST_TTL_S = 3 * 24 * 3600
WORKED_ON_S = 24 * 3600  # least time that a run is kept after each heartbeat


MakeConfigs = Callable[[str, bytes, k8s.Manifest, str], list[k8s.Manifest]]


class RunMeta(k8s.Meta, frozen=True, gc=False):
    annotations: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class Annotated(k8s.Object, frozen=True, gc=False):
    metadata: RunMeta = RunMeta()


class JobStatus(k8s.ObjectPart, frozen=True, gc=False):
    active: int = 0
    start_time: str | None = None  # None until its controller has processed the Job


class Root(Annotated, frozen=True, gc=False):
    """Fields of a job's root object, or of a run object, that are read."""

    spec: RootSpec = RootSpec()
    status: JobStatus = JobStatus()


class Holder(msgspec.Struct, frozen=True):
    """The process that owns a run. `boot` identifies the machine's last boot, `space` the pid namespace."""

    host: str
    boot: str
    pid: int
    space: str = ""
    start: int = 0  # start time; 0 if unknown

    @classmethod
    def me(cls) -> "Holder":
        space, pid = "", os.getpid()
        with contextlib.suppress(OSError):
            space = os.readlink("/proc/self/ns/pid")
        return cls(socket.gethostname(), boot_id(), pid, space, process_start(pid) or 0)

    def elsewhere(self) -> bool:
        """On another machine, or in another container of this one. Between processes of one machine the lock of the run
        folder decides."""
        me = Holder.me()
        return (self.host, self.boot, self.space) != (me.host, me.boot, me.space)

    def gone(self) -> bool:
        """Whether it was a process of this machine that has exited."""
        if self.elsewhere() or not self.boot:
            return False
        try:
            os.kill(self.pid, 0)
        except (OSError, OverflowError) as error:  # another user's process may be hidden in /proc
            return isinstance(error, ProcessLookupError)
        start = process_start(self.pid)
        return start is None or self.start not in (0, start)


def beating(found: Annotated, now_s: float) -> Holder | None:
    """The process that owns the run of this object; None if its heartbeat is stale or it was a process of this machine
    that has exited. `now_s` is the server's clock."""
    holder, renewed_s = _heartbeat(found)
    return None if holder is None or holder.gone() or now_s - renewed_s > STALE_S else holder


def in_use_by(objects: Sequence[Annotated], now_s: float) -> bool | None:
    """Whether a process owns the run of these objects; None if its heartbeat is stale: it may be asleep."""
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
    """Raises RunInUse if a process of another machine owns the run of this object."""
    holder = beating(found, await client.now_s())
    if holder is not None and holder.elsewhere():
        raise RunInUse(
            f"{run} is owned by process {holder.pid} on {holder.host}; stop that process, or wait {STALE_S:g} s "
            "after its last heartbeat"
        )


class RunObject:
    def __init__(self, client: k8s.Kubernetes, options: KubernetesOptions, run: str, of: str = "") -> None:
        """With `of`, an object for one attempt, which owns the objects that a driver creates."""
        self.run, self._of = run, of
        self.elsewhere: tuple[str, ...] = ()  # namespaces with an object of the same name, deleted with this one
        self.image = ""  # image of one of the run's jobs
        # Why this process cannot continue the run: its credentials are no longer valid (nothing else may notice for
        # hours), or another machine has taken the run over.
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.name = names.run_object_name(run, of)
        self._client, self._options = client, options
        self._namespace = client.access.namespace
        self._making: dict[str, asyncio.Task[k8s.Manifest]] = {}
        self._configs: dict[str, asyncio.Task[list[str]]] = {}
        self._beat: asyncio.Task[None] | None = None
        self._made_s = time.time()
        self._until_s = self._made_s + LEAST_TTL_S

    # ---- shared by the whole run

    async def owner(self) -> k8s.Manifest:
        """Owner reference for objects of the run. Creates the run object or takes it over if needed.

        Raises RunInUse if another machine owns the run."""
        return await shared_task(self._making, self.name, self._make)

    async def configs(self, make: MakeConfigs, content: bytes) -> list[str]:
        """Names of the ConfigMaps with `content`: the agent or an archive of inputs. Jobs with the same content share
        them: the first call creates them, the others wait for it."""
        key = hashlib.sha256(content).hexdigest()
        return await shared_task(self._configs, key, lambda: self._create_configs(make, content))

    def cover(self, life_s: float) -> None:
        """Ensures that it outlives a job that may run for `life_s` from now on."""
        self._until_s = max(self._until_s, time.time() + 2 * life_s)

    # ---- its end

    async def close(self) -> None:
        """Stops the heartbeat. Deletes the object if no job of the run is left, but not one that was never ours."""
        await end_tasks(*(task for task in (self._beat, *self._configs.values()) if task is not None))
        await asyncio.gather(*self._making.values(), return_exceptions=True)
        if all(map(failed, self._making.values())):
            return
        root, jobs = manifest.root_resource(self._options), names.selector(run=names.label_value(self.run), part="job")
        with contextlib.suppress(k8s.KubernetesError):  # its TTL or `reap` deletes it
            if self._of or not await self._client.has_any(root, labels=jobs):
                await self._client.delete(k8s.JOBS, self.name)

    # ---- inner

    async def _make(self) -> k8s.Manifest:
        wanted = manifest.run_object(self.run, self._until_s - self._made_s, self._options, self._namespace, self.image)
        wanted["metadata"]["name"] = self.name
        with target_errors(f"cannot start run {self.run} in namespace {self._namespace}", lost=(k8s.Unreachable,)):
            annotations = wanted["metadata"].setdefault("annotations", {})
            annotations.update(await self._beats())
            if self.elsewhere:
                annotations[names.ELSEWHERE] = " ".join(self.elsewhere)
            try:
                found = await self._client.create(wanted, Annotated, resource=k8s.JOBS)
            except k8s.AlreadyExists:
                found = await self._take_over()
        if found.metadata.deletion_timestamp is not None:
            text = f"run {self.run} is being deleted from namespace {self._namespace}"
            raise TargetError(f"{text}; try again when it is gone")
        if self._beat is None:
            self._beat = asyncio.create_task(self._send_heartbeats())
        return manifest.owner(k8s.JOBS, self.name, found.metadata.uid)

    async def _take_over(self) -> Annotated:
        """Takes the run over from a process that is gone. If several try at the same time, one succeeds."""
        while True:
            found = await self._client.get(k8s.JOBS, self.name, Root)
            await refuse_another(self._client, found, self.run)
            # The TTL counts from the object's own end and must not become shorter.
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
            with target_errors(f"cannot create the ConfigMap {name}", lost=(k8s.Unreachable,)):
                await self._client.create_missing(manifest.marked(config, self._options))
            return name

        made = make(self.run, content, await self.owner(), self._namespace)
        return await asyncio.gather(*map(create, made))

    async def _beats(self) -> dict[str, str]:
        now_s = await self._client.now_s()
        return {names.HOLDER: msgspec.json.encode(Holder.me()).decode(), names.RENEWED: f"{now_s:.0f}"}

    async def _renew(self, version: str = "") -> None:
        """With `version`, only if the object has not changed since."""
        self._until_s = max(self._until_s, time.time() + WORKED_ON_S)
        metadata = {"annotations": await self._beats(), **({"resourceVersion": version} if version else {})}
        patch = {"metadata": metadata, "spec": {"ttlSecondsAfterFinished": seconds(self._until_s - self._made_s)}}
        await self._client.patch(k8s.JOBS, self.name, patch)

    async def _send_heartbeats(self) -> None:
        refused = False
        while True:
            await asyncio.sleep(_AGAIN_S if refused else BEAT_S)
            try:
                # After a long pause (asleep, disconnected), another machine may have taken the run over.
                found = await self._client.get(k8s.JOBS, self.name, Annotated)
                await refuse_another(self._client, found, self.run)
                await self._renew()
                refused = False
            except (k8s.NotFound, RunInUse) as error:  # deleted with all that it owned, or taken over: start over
                self._making, self._configs, self._beat = {}, {}, None
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
                continue  # one missed heartbeat does no harm


async def remove_unused(client: k8s.Kubernetes, root: k8s.Resource, run: str) -> None:
    """Deletes the object of a run, given by its label value, if the run has no jobs left and no process owns it."""
    if await client.has_any(root, labels=names.selector(run=run, part="job")):
        return
    labels, now_s = names.selector(run=run, part="run"), await client.now_s()
    for found in [one async for one in client.list(k8s.JOBS, Annotated, labels=labels)]:
        if beating(found, now_s) is None:
            await client.delete(k8s.JOBS, found.metadata.name)
