"""The state of all jobs of a namespace: watches that keep it up to date, and single queries.

One watch each for the pods and the roots of a run, and one for the events of the namespace; events cannot be selected
by label, so those of other jobs are dropped. For jobs that are not followed only the current state is kept. A query
that is forbidden or not answered leaves something unknown; nothing fails because of it.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec

import seatrial.kubernetes as k8s
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.placement import gpu_labels_text
from seatrial.targets.kubernetes.watch.jobs import SUBMITTER, JobState, TrackedPod, wall_s
from seatrial.targets.kubernetes.watch.objects import KUEUE_WORKLOAD, PodObject, Regarding, RootObject, WarningEvent
from seatrial.targets.kubernetes.watch.waiting import AUTOSCALER, INSUFFICIENT, NO_MATCH
from seatrial.targets.tasks import end_tasks

UNMATCHED_WARNINGS = 512  # kept for jobs that may be followed later
ASK_AGAIN_S = 5.0
ON_ITS_WAY_S = 30.0  # limit for the watch to report a new root, behind hundreds of others
WORKLOAD_LABEL, WORKLOAD_VERSIONS = "kueue.x-k8s.io/job-uid", ("v1beta1", "v1beta2")
NODES_S = 60.0  # how long a list of nodes is reused
# Selects warnings and messages of autoscalers, which are normal events: all but the routine ones.
EVERYDAY = ("Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "SuccessfulCreate", "Completed")
_NOT_EVERYDAY = ",".join(f"reason!={reason}" for reason in EVERYDAY)


class NodeStatus(k8s.ObjectPart, frozen=True, gc=False):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class NodeObject(k8s.Object, frozen=True, gc=False):
    status: NodeStatus = NodeStatus()


def largest_on(nodes: Iterable[NodeObject]) -> dict[str, float]:
    """The largest amount of each resource on a node."""
    most: dict[str, float] = {}
    for node in nodes:
        for name, text in node.status.allocatable.items():
            most[name] = max(most.get(name, 0.0), k8s.parse_quantity(text) or 0.0)
    return most


class Feeds:
    """Feeds of a namespace. The caller waits for `changed`; there are no callbacks."""

    def __init__(self, client: k8s.Kubernetes, resource: k8s.Resource, fail: Callable[[BaseException], None]) -> None:
        """`fail` is called with the error of a watch or another task that failed for good."""
        self._client, self._resource, self._fail = client, resource, fail
        self.synced: set[str] = set()  # runs with all pods known
        self.most: dict[str, float] | None = None  # largest amount of each resource on a node; None if unknown
        self.gpu_labels = ""  # of all nodes, as text
        self._ask_nodes_s: float | None = 0.0  # earliest time of the next query; None: never again
        self.jobs: dict[str, JobState] = {}  # followed jobs by the root's name
        self._pods: dict[str, dict[str, TrackedPod]] = {}  # of all jobs, by root's name and uid
        self._roots: dict[str, k8s.Watch[RootObject]] = {}  # by run
        self._runs: dict[str, list[asyncio.Task[None]]] = {}
        self._warnings: asyncio.Task[None] | None = None
        self._unmatched: deque[WarningEvent] = deque(maxlen=UNMATCHED_WARNINGS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: dict[str, None] = {}  # names of followed jobs, in the order in which they changed
        self._news = asyncio.Event()

    async def changed(self) -> list[JobState]:
        """The followed jobs that changed since the last call."""
        await self._news.wait()
        self._news.clear()
        changed, self._changed = self._changed, {}
        return [self.jobs[name] for name in changed if name in self.jobs]

    def mark_changed(self, name: str) -> None:
        self._changed[name] = None
        self._news.set()

    def mark_later(self, job: JobState) -> None:
        """Marks the job as changed at the earliest time that matters to it."""
        if job.timer is not None:
            job.timer.cancel()
        if job.wake_s < math.inf:
            job.timer = asyncio.get_running_loop().call_at(job.wake_s, self.mark_changed, job.known.name)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` in the background until `close`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, k8s.Closed):
            self._fail(error)

    async def close(self) -> None:
        await end_tasks(*self._tasks)

    # ---- which jobs

    def follow(self, job: JobState) -> None:
        known = job.known
        self.jobs[known.name] = job
        job.pods = self._pods.setdefault(known.name, {})
        for warning in [one for one in self._unmatched if self._about(one) is job]:
            self._unmatched.remove(warning)
            job.warn(warning)
        if self._warnings is None:
            self._warnings = self.start(self._watch_warnings())
        if known.run not in self._runs:
            labels = names.selector(run=known.run, part="job")
            self._roots[known.run] = self._client.watch(self._resource, RootObject, labels=labels)
            pods, roots = self._watch_pods(known.run), self._watch_roots(known.run)
            self._runs[known.run] = [self.start(pods), self.start(roots)]
        else:
            job.root = self._roots[known.run].objects.get(known.uid)
            if job.root is None:
                self.start(self._find_root(job))
        self.mark_changed(known.name)

    def forget(self, name: str) -> None:
        job = self.jobs.pop(name)
        self._pods[name] = {uid: pod for uid, pod in job.pods.items() if not pod.gone}
        if not self._pods[name]:
            del self._pods[name]

    def leave(self, run: str) -> None:
        """Stops the watches of a run if none of its jobs is followed any more."""
        if run not in self._runs or any(job.known.run == run for job in self.jobs.values()):
            return
        for task in self._runs.pop(run):
            task.cancel()
        self.synced.discard(run)
        del self._roots[run]
        for name, pods in list(self._pods.items()):
            if any(pod.pod.metadata.labels.get(names.RUN) == run for pod in pods.values()):
                del self._pods[name]

    # ---- the watches

    async def _watch_pods(self, run: str) -> None:
        labels, live = names.selector(run=run), False
        async for event in self._client.watch(k8s.PODS, PodObject, labels=labels):
            if event.kind is k8s.SYNCED:
                live = True
                self.synced.add(run)
                for name in [name for name, job in self.jobs.items() if job.known.run == run]:
                    self.mark_changed(name)
            elif event.object is not None:
                pod, gone = event.object, event.kind is k8s.DELETED
                name, uid = pod.job, pod.metadata.uid
                pods = self._pods.setdefault(name, {})
                if uid not in pods:
                    pods[uid] = TrackedPod(pod)
                pods[uid].update(pod, wall_s(event.at_s), live and not event.relisted, gone)
                if name in self.jobs:
                    self.mark_changed(name)
                elif gone:
                    del pods[uid]
                    if not pods:
                        del self._pods[name]

    async def _watch_roots(self, run: str) -> None:
        async for event in self._roots[run]:
            if event.kind is k8s.SYNCED:
                for waiting in [one for one in self.jobs.values() if one.known.run == run and one.root is None]:
                    self.start(self._find_root(waiting))
            elif event.object is not None:
                job = self.jobs.get(event.object.metadata.name)
                if job is not None and event.object.metadata.uid == job.known.uid:
                    job.root, job.root_gone = event.object, event.kind is k8s.DELETED
                    self.mark_changed(job.known.name)

    async def _watch_warnings(self) -> None:
        # Repeated events after a relist are harmless; keeping all events would cost memory.
        async for event in self._client.watch(k8s.EVENTS, WarningEvent, fields=_NOT_EVERYDAY, keep=False):
            if event.object is None or event.kind is k8s.DELETED:
                continue
            if event.object.type != "Warning" and event.object.reason not in AUTOSCALER:
                continue
            job = self._about(event.object)
            if job is None:
                self._unmatched.append(event.object)
            else:
                job.warn(event.object)
                self.mark_changed(job.known.name)

    async def _find_root(self, job: JobState) -> None:
        """A root that a synced watch does not know is either still to come or was deleted before the watch began."""
        if job.known.created.source == SUBMITTER:  # created just now: the watch will report it
            await asyncio.sleep(ON_ITS_WAY_S)
        while job.root is None and not job.root_gone and self.jobs.get(job.known.name) is job:
            try:
                await self.read_root(job)
            except k8s.KubernetesError as error:  # the watches retry longer and fail by themselves
                if error.lasting:
                    raise
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                self.mark_changed(job.known.name)

    def _about(self, warning: WarningEvent) -> JobState | None:
        """The job of the warning's root, pod or workload: their names begin with the root's name."""
        about = warning.involved_object
        if about.kind == self._resource.kind and about.name in self.jobs:
            job = self.jobs[about.name]
            return job if about.uid in ("", job.known.uid) else None
        name = about.name.partition("-")[2] if about.kind == KUEUE_WORKLOAD else about.name
        while name and name not in self.jobs:
            name = name.rpartition("-")[0]
        return self.jobs.get(name)

    # ---- queries

    async def read_root(self, job: JobState) -> None:
        """Reads a job's root, or notes that it is gone: a watch does not report roots deleted before it began."""
        known_gone = job.root_gone
        try:
            found = await self._client.get(self._resource, job.known.name, RootObject)
        except k8s.NotFound:
            job.root_gone = True
        else:
            job.root_gone = found.metadata.uid != job.known.uid
            job.root = job.root if job.root_gone else found
        if job.root_gone and not known_gone:
            self.mark_changed(job.known.name)

    async def has_other_pods(self, job: JobState) -> bool:
        """Whether the job has pods that the watch has not reported yet."""
        labels = names.selector(job=job.known.name)
        with contextlib.suppress(k8s.KubernetesError):
            async for pod in self._client.list(k8s.PODS, labels=labels):
                if pod.metadata.uid not in job.pods:
                    return True
        return False

    async def namespace_going(self) -> bool:
        try:
            found = await self._client.get(k8s.NAMESPACES, self._client.access.namespace)
        except k8s.KubernetesError as error:
            return isinstance(error, k8s.NotFound)
        return found.metadata.deletion_timestamp is not None

    async def ask_kueue(self, job: JobState) -> None:
        """Adds Kueue's reason for not admitting a job as a warning, because Kueue does not send events for all."""
        labels = f"{WORKLOAD_LABEL}={job.known.uid}"
        for version in WORKLOAD_VERSIONS:
            resource = k8s.Resource("kueue.x-k8s.io", version, KUEUE_WORKLOAD, "workloads")
            with contextlib.suppress(k8s.KubernetesError):
                async for found in self._client.list(resource, RootObject, labels=labels):
                    about = Regarding(KUEUE_WORKLOAD, found.metadata.name, found.metadata.uid)
                    for one in found.status.conditions:
                        if one.status == "False" and one.message:
                            job.warn(WarningEvent(involved_object=about, reason=one.reason, message=one.message))
                            self.mark_changed(job.known.name)
                            break
                    return

    def should_ask_nodes(self, why: str) -> bool:
        """Whether the capacity or labels of nodes could explain the reason better. True at most once per NODES_S."""
        helps = any(text in why for text in (INSUFFICIENT, *NO_MATCH))
        if not helps or self._ask_nodes_s is None or time.monotonic() < self._ask_nodes_s:
            return False
        self._ask_nodes_s = time.monotonic() + NODES_S
        return True

    async def ask_nodes(self) -> None:
        """Reads the capacity and GPU labels of nodes and marks all waiting jobs as changed."""
        try:
            nodes = [node async for node in self._client.list(k8s.NODES, NodeObject)]
        except k8s.KubernetesError as error:
            if isinstance(error, k8s.Forbidden):
                self._ask_nodes_s = None
            return
        self.most = largest_on(nodes)
        self.gpu_labels = gpu_labels_text([node.metadata.labels for node in nodes])
        for name, job in self.jobs.items():
            if not job.started.is_set():
                self.mark_changed(name)
