"""The Kubernetes target: one Job or JobSet per job; this process only creates and watches them."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import seatrial.kubernetes as k8s
from seatrial.job import Environment, Event, Job, Outcome, Stage, StageTime
from seatrial.targets.agent_file import agent_bytes
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.collect import Collector, ProgressFollower
from seatrial.targets.kubernetes.doctor import examine_cluster, target_access
from seatrial.targets.kubernetes.endpoint import JobPort, make_service, opened_port
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.log import LiveLog
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.owned import ClusterObjects
from seatrial.targets.kubernetes.run_object import (
    LEAST_TTL_S,
    Annotated,
    Root,
    RunObject,
    in_use_by,
    refuse_another,
    remove_unused,
)
from seatrial.targets.kubernetes.submit import JobAnnotation, annotated, gpu_node_labels, try_job, try_run_object
from seatrial.targets.kubernetes.watch.objects import PodObject, TrackedJob, epoch_s
from seatrial.targets.kubernetes.watch.waiting import over_whole_quota
from seatrial.targets.kubernetes.watch.watcher import Ender, JobWatcher
from seatrial.targets.protocol import (
    Diagnostic,
    Endpoint,
    Found,
    RunInUse,
    TargetError,
    TargetLost,
    handle_parts,
    refused,
)

_REAPED = "reaped"  # part label of an object that lists deleted jobs
_FORCE_S = 20.0  # after the job's own grace, until it is deleted
_GONE_S = 120.0
_POLL_S = 0.5
ROOM_S = 5.0  # retry interval for a full quota


class KubernetesTarget:
    """Implements `targets.Target`; numbers in comments refer to its guarantees."""

    def __init__(self, name: str, options: KubernetesOptions) -> None:
        self.name = name
        self._options = options
        self._runs: dict[str, RunObject] = {}
        self._annotations: dict[str, JobAnnotation] = {}
        self._tried: set[str] = set()  # runs whose object had a dry run
        self._gpu_nodes: list[dict[str, str]] | None = None  # their labels, once listed
        self._opened = False

    def address(self) -> dict[str, Any]:
        """The options needed to find the same jobs; the others only matter for creating them."""
        chosen = {"context": self._context or None, "namespace": self._namespace}
        if self._options.kubeconfig is not None:
            chosen["kubeconfig"] = str(self._options.kubeconfig.absolute())
        fields = {"workload", "endpoint", "endpoint_host", "endpoint_class", "endpoint_tls"}
        return {**chosen, **self._options.model_dump(mode="json", include=fields)}

    async def open(self) -> None:
        with target_errors("cannot use the cluster"):
            access = target_access(self._options)
            self._client = k8s.Kubernetes(access)
            try:
                await self._client.version()
            except BaseException:
                await self._client.close()
                raise
        self._context, self._namespace = access.context, access.namespace
        self._resource = manifest.root_resource(self._options)
        self._ender = Ender(self._client, self._resource)
        self._watcher = JobWatcher(self._client, self._resource, ender=self._ender)
        self._collector = Collector(self._client, self._watcher, self._options)
        self._foreign = JobWatcher(self._client, self._resource, observe=True)
        self._progress = ProgressFollower(self._client, self._watcher)
        self._opened = True

    async def close(self) -> None:
        if not self._opened:
            return
        await self._progress.close()
        await self._watcher.close()
        await self._foreign.close()
        await self._collector.close()
        await asyncio.gather(*(run.close() for run in self._runs.values()))
        await self._client.close()

    async def prepare(self, environment: Environment) -> None:
        """Does nothing: nodes pull images when they get a job."""

    def preparing(self, environment: Environment) -> str:
        return ""  # nodes pull images; their progress comes as events

    async def examine(self) -> list[Diagnostic]:
        return await examine_cluster(self._options)

    # ---- submitting and adopting

    async def verify(self, job: Job) -> None:
        if (terms := manifest.gpu_terms(job, self._options)) is not None:
            if self._gpu_nodes is None:
                self._gpu_nodes = await gpu_node_labels(self._client, self._options)
            manifest.refuse_unmatched(job, terms, self._gpu_nodes)
        made = annotated(job, manifest.make(job, self._options, namespace=self._namespace))
        with target_errors(f"the cluster would reject {job.title}"):
            if job.run not in self._tried:
                self._tried.add(job.run)
                await try_run_object(self._client, self._options, job.run, job.environment.image or "")
            await try_job(self._client, self._options, made)

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        handle = self._handle(names.object_name(job.name))
        archive = await asyncio.to_thread(manifest.inputs_archive, job.inputs) if job.inputs else b""
        # If the server does not answer, the job may have been created and may run; the same name finds it again.
        with target_errors(f"cannot submit {job.name}", lost=(k8s.Unreachable,)):
            try:
                await self._submit(job, secrets, handle, archive)
            except asyncio.CancelledError:  # (2) leave nothing running
                with contextlib.suppress(k8s.KubernetesError):
                    await self._ender.delete(names.object_name(job.name))
                raise
        return handle

    async def _submit(self, job: Job, secrets: Mapping[str, str], handle: str, archive: bytes) -> None:
        """Submits again while the quota is full, within the queue limit."""
        limit_s = self._options.deadline_s if job.limits.queue_s is None else job.limits.queue_s
        until_s = time.monotonic() + limit_s
        while True:
            try:
                return await self._make(job, secrets, handle, archive)
            except (k8s.Forbidden, TargetError) as error:
                refused = error if isinstance(error, k8s.Forbidden) else error.__cause__
                full = isinstance(refused, k8s.Forbidden) and refused.of_quota and not over_whole_quota(refused.message)
                if not full:
                    raise
                if time.monotonic() + ROOM_S > until_s:
                    text = f"the namespace's quota was full for {limit_s:g} s: {error}; free or raise it"
                    raise TargetError(text, Outcome.QUEUE) from error
            await asyncio.sleep(ROOM_S)

    async def _make(self, job: Job, secrets: Mapping[str, str], handle: str, archive: bytes) -> None:
        run = self._run(job.run)
        run.image = run.image or job.environment.image or ""
        run.cover(manifest.root_deadline_s(job, self._options) + self._options.keep_s)
        owner = await run.owner()
        (agent,), inputs = await asyncio.gather(
            run.configs(manifest.agent_configs, agent_bytes()), run.configs(manifest.input_configs, archive)
        )
        made = manifest.make(
            job, self._options, namespace=self._namespace, run_owner=owner, agent=agent, inputs=inputs, secrets=secrets
        )
        annotated(job, made)
        begun_s, now_s = time.monotonic(), time.time()
        try:
            root = await self._client.create(made.root, Root, resource=self._resource)
            created = StageTime(Stage.CREATED, now_s, "submitter", time.monotonic() - begun_s)
        except k8s.AlreadyExists:
            root = await self._client.get(self._resource, made.root["metadata"]["name"], Root)
            created = _created(root)
        if root.spec.suspend or self._options.queue is not None:  # the objects that it needs may be missing
            reference = manifest.owner(self._resource, root.metadata.name, root.metadata.uid)

            owned = [manifest.owned_by(one, reference) for one in (made.config, made.secret, made.service) if one]
            await asyncio.gather(*map(self._client.create_missing, owned))
            if self._options.queue is None:
                await self._client.patch(self._resource, root.metadata.name, manifest.RELEASE)
        self._take_up(handle, root, created)

    async def adopt(self, handle: str) -> None:
        name = self._name(handle)
        with target_errors(f"cannot adopt {handle}", lost=(k8s.KubernetesError,)):
            try:
                root = await self._client.get(self._resource, name, Root)
            except k8s.NotFound:
                await self._refuse_held(name)
                raise TargetError(f"job not found: {handle}") from None
            if root.metadata.labels.get(names.PART) == "run":
                await self._refuse_held(name)
        annotation = JobAnnotation.read(root)
        try:
            await self._run(annotation.run).owner()
        except RunInUse:
            raise
        except TargetError as error:  # the job exists, whatever is wrong with its run
            raise TargetLost(f"cannot adopt {handle}: {error}") from error
        self._take_up(handle, root, _created(root))

    async def _refuse_held(self, name: str) -> None:
        """A run object is not a job and can only be removed, unless another machine owns the run (RunInUse)."""
        with contextlib.suppress(k8s.NotFound):
            run = await self._client.get(k8s.JOBS, name, Annotated)
            await refuse_another(self._client, run, run.metadata.labels.get(names.RUN, name))

    def _take_up(self, handle: str, root: Root, created: StageTime) -> None:
        annotation = self._annotations[handle] = JobAnnotation.read(root)
        self._watcher.add(handle, self._tracked(root, annotation, created))
        self._progress.add(handle, annotation)

    def _tracked(self, root: Root, annotation: JobAnnotation, created: StageTime) -> TrackedJob:
        return TrackedJob(
            name=root.metadata.name,
            run=names.label_value(annotation.run),
            uid=root.metadata.uid,
            hosts=annotation.hosts,
            created=created,
            queue=self._options.queue is not None,
            limited=annotation.limited,
        )

    def _run(self, run: str) -> RunObject:
        if run not in self._runs:
            self._runs[run] = RunObject(self._client, self._options, run)
            self._runs[run].lost.add_done_callback(lambda lost: self._watcher.fail(lost.result()))
        return self._runs[run]

    # ---- observing

    async def watch(self) -> AsyncIterator[Event]:
        async for event in self._watcher.events():
            yield event

    async def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]:
        """(6) Does not take the run over: jobs of another process are read through a watcher that stops nothing."""
        watcher, annotation = self._watcher, self._annotations.get(handle)
        if annotation is None:
            with target_errors(f"cannot read the log of {handle}"):
                try:
                    root = await self._client.get(self._resource, self._name(handle), Root)
                except k8s.NotFound:
                    raise TargetError(f"job not found: {handle}") from None
            watcher, annotation = self._foreign, JobAnnotation.read(root)
            watcher.add(handle, self._tracked(root, annotation, _created(root)))
            await watcher.synced(handle)
        live_log = LiveLog(self._client, watcher, self._options.other_containers)
        async for block in live_log.blocks(handle, annotation, follow):
            yield block

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        return await self._collector.fetch(handle, await self._annotation(handle), path, into)

    @contextlib.asynccontextmanager
    async def endpoint(self, handle: str, port: str) -> AsyncIterator[Endpoint]:
        """Does not take the run over: the process that owns it continues, here or on another machine."""
        ports = await self._ports(handle)
        if port not in ports:
            raise refused(f"{handle} has no port {port!r}; it has: {', '.join(ports) or 'none'}")
        async with opened_port(ports[port], self._options.endpoint) as address:
            yield address

    async def addresses(self, handle: str, asker: Mapping[str, Any]) -> dict[str, str]:
        """Addresses of Services, which every pod of the cluster can reach."""
        mine = self.address()
        if "namespace" not in asker or any(mine.get(key) != asker.get(key) for key in ("context", "kubeconfig")):
            return {}
        return {name: await make_service(port) for name, port in (await self._ports(handle)).items()}

    async def _ports(self, handle: str) -> dict[str, JobPort]:
        with target_errors(f"cannot reach {handle}"):
            root = await self._client.get(self._resource, self._name(handle), Root)
        job, owner = JobAnnotation.read(root), manifest.owner(self._resource, root.metadata.name, root.metadata.uid)
        return {port: JobPort(self._client, self._options, job, owner, port) for port in job.ports}

    @contextlib.asynccontextmanager
    async def api(
        self, run: str, cell: str, attempt: int, namespaces: tuple[str, ...], at_once: int, inside: bool
    ) -> AsyncIterator[ClusterObjects]:
        options = self._options
        if inside:  # the submitter's kubeconfig is not on this machine
            options = options.model_copy(update={"kubeconfig": None, "context": None})
        with target_errors():
            access = target_access(options)
        async with (
            k8s.Kubernetes(access, at_once=at_once) as client,
            ClusterObjects(client, options, run, cell, attempt, namespaces) as mine,
        ):
            yield mine

    async def list(self, run: str | None = None) -> list[Found]:
        chosen = {"run": names.label_value(run)} if run else {}
        found = []
        with target_errors("cannot list jobs"):
            now_s = await self._client.now_s()
            holders: dict[str, list[Annotated]] = {}
            async for one in self._client.list(k8s.JOBS, Annotated, labels=names.selector(part="run", **chosen)):
                holders.setdefault(one.metadata.labels.get(names.RUN, ""), []).append(one)
            pods = self._client.list(k8s.PODS, PodObject, labels=names.selector(part="pod", **chosen))
            kept = Counter([pod.job async for pod in pods if pod.trial.terminated is not None and not pod.phase_ended])
            async for root in self._client.list(self._resource, Root, labels=names.selector(part="job", **chosen)):
                if root.metadata.deletion_timestamp is None:
                    used = in_use_by(holders.get(root.metadata.labels.get(names.RUN, ""), ()), now_s)
                    # Other containers of its pods (keepers, or injected by a webhook) do not count.
                    waiting = root.status.start_time is None and not root.spec.suspend
                    alive = root.status.active > kept[root.metadata.name] or (self._resource is k8s.JOBS and waiting)
                    found.append(self._found(root, used, alive))
        # Objects of runs without jobs: their process was killed at its end, or has not created any job yet.
        mine = {names.label_value(run) for run in (*self._runs, *(one.run for one in found))}
        others = [one for label, objects in holders.items() if label not in mine for one in objects]
        alone = [one for one in others if one.metadata.deletion_timestamp is None]
        return found + [self._found(one, in_use_by([one], now_s), alive=False) for one in alone]

    def _found(self, root: Annotated, used: bool | None, alive: bool) -> Found:
        try:
            annotation = JobAnnotation.read(root)
        except TargetError:  # it has our labels, so it can be removed
            annotation = JobAnnotation(root.metadata.name, root.metadata.labels.get(names.RUN, ""))
        return Found(
            handle=self._handle(root.metadata.name),
            name=annotation.name,
            run=annotation.run,
            alive=alive,
            labels=annotation.labels,
            created_s=_created(root).wall_s,
            in_use=used,
        )

    # ---- stopping

    async def cancel(self, handle: str) -> None:
        name = self._name(handle)
        annotation = await self._annotation(handle)
        self._watcher.mark_cancelled(handle)
        await self._watcher.synced(handle)  # the pods of a job adopted just now may be unknown
        if await self._ender.ask(self._watcher.pods(handle)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(annotation.grace_s + _FORCE_S):
                    await self._watcher.ended(handle)
                    return
        with target_errors(f"cannot stop {handle}"):
            await self._ender.delete(name)

    async def remove(self, handle: str) -> None:
        name = self._name(handle)
        with target_errors(f"cannot remove {handle}"):
            run = "" if handle in self._annotations else await self._others_run(name)
            deleted = await self._ender.delete(name)
            if deleted or handle in self._annotations:  # its root may be gone while its pods are still stopping
                await self._until_gone(handle, name)
                if run:
                    await remove_unused(self._client, self._resource, run)
            elif self._resource is not k8s.JOBS:  # the object of a run without jobs
                await self._client.delete(k8s.JOBS, name)
        self._progress.forget(handle)
        self._watcher.forget(handle)
        await self._collector.forget(handle)
        self._annotations.pop(handle, None)

    async def bury(self, found: Found) -> None:
        """In an annotation of a Job without pods, which the cluster deletes after some days."""
        tombstone = names.run_object_name(found.run, _REAPED)
        made = manifest.run_object(found.run, LEAST_TTL_S, self._options, self._client.access.namespace)
        made["metadata"]["name"], made["metadata"]["labels"][names.PART] = tombstone, _REAPED
        with target_errors(f"cannot record that {found.name} is deleted"):
            await self._client.create_missing(made)
            annotations = {f"{names.SEATRIAL}/{names.object_name(found.name)}": _REAPED}
            await self._client.patch(k8s.JOBS, tombstone, {"metadata": {"annotations": annotations}})

    async def is_buried(self, run: str, job: str) -> bool:
        with target_errors(f"cannot read whether {job} was deleted"):
            try:
                found = await self._client.get(k8s.JOBS, names.run_object_name(run, _REAPED), Annotated)
            except k8s.NotFound:
                return False
        return f"{names.SEATRIAL}/{names.object_name(job)}" in found.metadata.annotations

    async def _others_run(self, name: str) -> str:
        """Label of the run if this process does not own it; its object is then deleted with its last job. Objects that
        a driver's run object lists in other namespaces are deleted now."""
        for resource in dict.fromkeys((self._resource, k8s.JOBS)):
            with contextlib.suppress(k8s.NotFound):
                found = await self._client.get(resource, name, Annotated)
                for namespace in found.metadata.annotations.get(names.ELSEWHERE, "").split():
                    await self._client.delete(k8s.JOBS, name, namespace=namespace)
                run = found.metadata.labels.get(names.RUN, "")
                return "" if run in map(names.label_value, self._runs) else run
        return ""

    async def _until_gone(self, handle: str, name: str) -> None:
        """(8) Waits until all pods are gone: deletion only starts their grace period."""
        annotation = self._annotations.get(handle)
        within_s = _GONE_S + (annotation.grace_s if annotation else 0.0)
        try:
            async with asyncio.timeout(within_s):
                if annotation is not None:
                    await self._watcher.gone(handle)
                    return
                labels = names.selector(job=name)
                while await self._client.has_any(k8s.PODS, labels=labels):  # noqa: ASYNC110 - not watched
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise TargetError(f"{handle} was deleted, but its pods still exist after {within_s:g} s") from None

    # ---- handles

    def _handle(self, name: str) -> str:
        """The context is informational: other machines may name it differently."""
        return f"kubernetes://{quote(self._context, safe='')}/{quote(self._namespace)}/{quote(name)}"

    def _name(self, handle: str) -> str:
        """Name of its root."""
        _, namespace, name = handle_parts(handle, "kubernetes://CONTEXT/NAMESPACE/NAME")
        if namespace != self._namespace:
            raise refused(f"{handle} is in another namespace; target {self.name} uses {self._namespace}")
        return name

    async def _annotation(self, handle: str) -> JobAnnotation:
        if handle not in self._annotations:
            await self.adopt(handle)
        return self._annotations[handle]


def _created(root: Annotated) -> StageTime:
    """Creation time by the API server's clock, which has whole seconds."""
    return StageTime(Stage.CREATED, (epoch_s(root.metadata.creation_timestamp) or 0.0) + 0.5, "api-server", 0.5)
