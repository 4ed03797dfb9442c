"""Jobs on a cluster, made by hand in the form that the target gives them, and a watcher that looks at them."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from on_cluster import make_namespace

from cluster.cluster import Cluster
from cluster.image import BUSYBOX
from seatrial.job import Event, Exit, Stage, StageTime
from seatrial.kubernetes import JOBS, NAMESPACES, PODS, Access, Kubernetes, Object, load_access
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import TrackedJob
from seatrial.targets.kubernetes.watch.waiting import Patience
from seatrial.targets.kubernetes.watch.watcher import Ender, JobWatcher

WITHIN_S = 600.0  # far beyond what anything takes here: who waits that long has waited for nothing
PATIENT = Patience(refused_s=600, infra_s=600, never_s=600, setup_s=600, lost_s=600)  # for what starts, however late
SHORT = Patience(refused_s=1.5, infra_s=2.0, never_s=2.0, setup_s=2.0, lost_s=600.0)  # for what never will
STAY = "trap 'exit 0' TERM; sleep 3600 & wait"
LONG = "trap 'exit 143' TERM; echo begun; sleep 3600 & wait"


def reports(outcome: str, code: int | None = None, message: str = "", **more: Any) -> str:
    """A line of shell that writes the trial's own message."""
    message = json.dumps({"seatrial": 1, "outcome": outcome, "code": code, "message": message, "left": 0, **more})
    return f"cat > /dev/termination-log <<'END'\n{message}\nEND\n"


def cancelled_when_asked() -> str:
    """A trial that, asked to end, reports it, as the agent does."""
    return f"trap '{reports('cancelled').replace(chr(39), '')}exit 143' TERM; sleep 3600 & wait"


def pod_spec(script: str, **more: Any) -> dict[str, Any]:
    container = {"image": BUSYBOX, "imagePullPolicy": "Never"}
    small = {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    trial = {**container, "name": "trial", "command": ["/bin/sh", "-c", script], "resources": small}
    keeper = {**container, "name": "keeper", "command": ["/bin/sh", "-c", STAY], "resources": small}
    trial.update(more.pop("trial", {}))
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [trial, keeper],
        **more,
    }


def root_manifest(name: str, run: str, pod: dict[str, Any], hosts: int = 1, **spec: Any) -> dict[str, Any]:
    def labels(part: str) -> dict[str, str]:
        return names.job_labels(run, name, "69b56f04", 1, part)

    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels("job")},
        "spec": {
            "completionMode": "Indexed",
            "completions": hosts,
            "parallelism": hosts,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {"metadata": {"labels": labels("pod")}, "spec": pod},
            **spec,
        },
    }


@dataclass
class Watched:
    client: Kubernetes
    namespace: str
    watcher: JobWatcher
    events: list[Event] = field(default_factory=list)
    finals: list[str] = field(default_factory=list)
    asked: list[set[int]] = field(default_factory=list)  # hosts that were to end
    run: str = field(default_factory=lambda: f"r{uuid.uuid4().hex[:6]}")

    async def start(
        self,
        script: str = "true",
        *,
        hosts: int = 1,
        root: Any = None,
        queue: bool = False,
        limited: bool = False,
        **pod: Any,
    ) -> str:
        name = f"job-{uuid.uuid4().hex[:6]}"
        manifest = root_manifest(name, self.run, pod_spec(script, **pod), hosts, **(root or {}))
        made = await self.client.create(manifest, namespace=self.namespace)
        self.add(name, made, hosts, queue=queue, limited=limited)
        return name

    def add(self, name: str, made: Object | None = None, hosts: int = 1, uid: str = "", **known_more: bool) -> None:
        created = StageTime(Stage.CREATED, 0.0, "api-server")  # long ago, so that it moves no other
        known = TrackedJob(name, self.run, made.metadata.uid if made else uid, hosts, created, **known_more)
        self.watcher.add(name, known)

    async def read(self) -> None:
        async for event in self.watcher.events():
            self.events.append(event)

    async def take_up(self, name: str, hosts: int = 1) -> None:
        self.add(name, await self.client.get(JOBS, name, namespace=self.namespace), hosts)

    async def exit(self, handle: str) -> Exit:
        await asyncio.wait_for(self.watcher.ended(handle), WITHIN_S)
        await asyncio.sleep(0)
        await self.until(lambda: any(event.exit for event in self.of(handle)))
        exits = [event.exit for event in self.of(handle) if event.exit]
        assert len(exits) == 1, exits
        assert self.of(handle)[-1].exit is not None, "the exit is the last event"
        self.check_times(handle)
        return exits[0]

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 - what is waited for is many things
                await asyncio.sleep(0.02)

    async def until_running(self, handle: str, hosts: int = 1) -> None:
        await self.until(lambda: sum(pod.trial_running for pod in self.watcher.pods(handle)) == hosts)

    def of(self, handle: str) -> list[Event]:
        return [event for event in self.events if event.handle == handle]

    def stages(self, handle: str) -> list[str]:
        return [event.time.stage.value for event in self.of(handle) if event.time]

    def progress(self, handle: str) -> list[str]:
        return [event.progress for event in self.of(handle) if event.progress]

    def check_times(self, handle: str) -> None:
        times = [event.time for event in self.of(handle) if event.time]
        assert [one.wall_s for one in times] == sorted(one.wall_s for one in times)
        assert all(one.uncertainty_s >= 0 and one.source for one in times)

    async def delete_pod(self, handle: str, number: int = 0, grace_s: int | None = None) -> None:
        await self.client.delete(
            PODS, self.watcher.pods(handle)[number].name, namespace=self.namespace, grace_s=grace_s
        )


class Recording(Ender):
    """Ends nothing, and notes what it was asked to end."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched.client)
        self._watched = watched

    async def delete(self, name: str) -> bool:
        self._watched.finals.append(name)
        assert not any(event.exit for event in self._watched.of(name))
        return True

    async def ask(self, pods: Sequence[TrackedPod]) -> bool:
        self._watched.asked.append({pod.number for pod in pods})
        return True


@asynccontextmanager
async def watching(
    cluster: Cluster, patience: Patience = PATIENT, access: Access | None = None, labels: Sequence[str] = ()
) -> AsyncIterator[Watched]:
    """In a namespace of its own, gone afterwards."""
    namespace = f"watch-{uuid.uuid4().hex[:8]}"
    async with Kubernetes(load_access(cluster.kubeconfig)) as admin:
        await asyncio.to_thread(make_namespace, cluster, namespace, *labels)
        client = Kubernetes(replace(access or admin.access, namespace=namespace))
        watched = Watched(client, namespace, None)  # type: ignore[arg-type]

        ender = Recording(watched)
        watched.watcher = JobWatcher(client, patience=patience, ender=ender)
        reading = asyncio.create_task(watched.read())
        try:
            yield watched
        finally:
            await watched.watcher.close()
            await client.close()
            await asyncio.gather(reading, return_exceptions=True)
            await admin.delete(NAMESPACES, namespace)


@dataclass(frozen=True)
class Row:
    """A job of a table: what it runs, how its pod differs, and what is done to it as soon as it runs."""

    script: str = "true"
    pod: dict[str, Any] = field(default_factory=dict)
    act: Callable[[Watched, str], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Result:
    exit: Exit
    stages: list[str]
    progress: str
    held_back: bool  # it was to be deleted before its exit was given


async def results(cluster: Cluster, rows: Mapping[str, Row], patience: Patience) -> dict[str, Result]:
    """Of all jobs of a table, started at once in one namespace."""
    async with watching(cluster, patience) as watched:

        async def one(row: Row) -> Result:
            handle = await watched.start(row.script, **row.pod)
            if row.act is not None:
                await watched.until_running(handle)
                await row.act(watched, handle)
            found = await watched.exit(handle)
            text = " ".join(watched.progress(handle))
            return Result(found, watched.stages(handle), text, handle in watched.finals)

        return dict(zip(rows, await asyncio.gather(*map(one, rows.values())), strict=True))
