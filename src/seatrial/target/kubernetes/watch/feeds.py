"""What the watches of runs have told: pods, roots and warnings by the job that they belong to, in their last state.

A watch each for the pods and the roots of a run, and one for the warnings of the namespace, which cannot be chosen by
label: those of others come too and are dropped. Of jobs that nobody follows no more is kept than what is there now.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from seatrial.kubernetes import (
    DELETED,
    EVENTS,
    PODS,
    SYNCED,
    Closed,
    Kubernetes,
    KubernetesError,
    NotFound,
    Resource,
)
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.watch.objects import PodObject, RootObject, TrackedJob, WarningEvent
from seatrial.target.kubernetes.watch.stage_times import Clock, PodTimes
from seatrial.target.kubernetes.watch.waiting import KUEUE_WORKLOAD

UNMATCHED_WARNINGS = 512  # of jobs that may be followed yet
WARNINGS = 32  # of one job
ASK_AGAIN_S = 5.0
ON_ITS_WAY_S = 30.0  # behind hundreds of others that are just being made


class JobFeed:
    """What is known of one job's objects."""

    def __init__(self, known: TrackedJob) -> None:
        self.known = known
        self.pods: dict[str, PodTimes] = {}  # by uid; those that are gone stay
        self.root: RootObject | None = None  # its last state, also when it is gone
        self.root_gone = False
        self._warnings: dict[tuple[str, str], WarningEvent] = {}  # by whom and what for, the latest last

    @property
    def warnings(self) -> tuple[WarningEvent, ...]:
        return tuple(self._warnings.values())

    def warn(self, warning: WarningEvent) -> None:
        key = (warning.involved_object.name, warning.reason)
        self._warnings.pop(key, None)
        self._warnings[key] = warning
        if len(self._warnings) > WARNINGS:
            del self._warnings[next(iter(self._warnings))]

    def hosts(self) -> list[PodTimes]:
        """A pod for each number, in their order: the one that is there, or that was there last."""
        if len(self.pods) < 2:
            return list(self.pods.values())
        chosen: dict[int, PodTimes] = {}
        for times in self.pods.values():
            other = chosen.get(times.pod.number)
            if other is None or other.gone or not times.gone:
                chosen[times.pod.number] = times
        return [chosen[number] for number in sorted(chosen)]

    @property
    def all_gone(self) -> bool:
        return self.root_gone and all(times.gone for times in self.pods.values())


class Feeds:
    """Whoever holds it asks what has changed; nothing of it calls back."""

    def __init__(self, client: Kubernetes, namespace: str, resource: Resource, clock: Clock) -> None:
        self._client, self._namespace, self._resource, self._clock = client, namespace, resource, clock
        self._jobs: dict[str, JobFeed] = {}  # by the root's name
        self._others: dict[str, dict[str, PodTimes]] = {}  # pods of jobs that nobody follows, by root's name and uid
        self._pods: dict[str, PodTimes] = {}  # all, by uid
        self._roots: dict[str, RootObject] = {}
        self._runs: dict[str, list[asyncio.Task[None]]] = {}
        self._synced: set[str] = set()  # runs all of whose pods are known
        self._warnings: asyncio.Task[None] | None = None
        self._unmatched: deque[WarningEvent] = deque(maxlen=UNMATCHED_WARNINGS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: dict[str, None] = {}  # names of followed jobs, in the order in which they changed
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    async def changed(self) -> list[str]:
        """The followed jobs of which something is new since it was last asked; raises what a watch failed with."""
        await self._news.wait()
        self._news.clear()
        if self._failure is not None:
            raise self._failure
        names_, self._changed = list(self._changed), {}
        return names_

    def follow(self, known: TrackedJob) -> JobFeed:
        feed = self._jobs[known.name] = JobFeed(known)
        feed.pods.update(self._others.pop(known.name, {}))
        for warning in [one for one in self._unmatched if self._about(one) is feed]:
            self._unmatched.remove(warning)
            feed.warn(warning)
        if self._warnings is None:
            self._warnings = self._task(self._watch_warnings())
        root = self._roots.get(known.name)
        if known.run not in self._runs:
            pods, roots = self._watch_pods(known.run), self._watch_roots(known.run)
            self._runs[known.run] = [self._task(pods), self._task(roots)]
        elif root is None or root.metadata.uid != known.uid:
            self._task(self._find_root(feed))
        if root is not None and root.metadata.uid == known.uid:
            feed.root = root
        return feed

    def forget(self, name: str) -> None:
        feed = self._jobs.pop(name, None)
        for uid, times in feed.pods.items() if feed is not None else ():
            if times.gone:
                self._pods.pop(uid, None)
            else:
                self._others.setdefault(name, {})[uid] = times

    def leave(self, run: str) -> None:
        """Ends the watches of a run of which nobody follows a job any more."""
        if run not in self._runs or any(feed.known.run == run for feed in self._jobs.values()):
            return
        for task in self._runs.pop(run):
            task.cancel()
        self._synced.discard(run)
        for name in [name for name, root in self._roots.items() if root.metadata.labels.get(names.RUN) == run]:
            del self._roots[name]
        for name, pods in list(self._others.items()):
            if any(times.pod.metadata.labels.get(names.RUN) == run for times in pods.values()):
                for uid in self._others.pop(name):
                    self._pods.pop(uid, None)

    def pod(self, uid: str) -> PodTimes | None:
        return self._pods.get(uid)

    def synced(self, run: str) -> bool:
        return run in self._synced

    def counts(self) -> dict[str, int]:
        """How much is kept, for those who look after growth."""
        return {
            "jobs": len(self._jobs),
            "pods": len(self._pods),
            "roots": len(self._roots),
            "warnings": len(self._unmatched),
            "runs": len(self._runs),
        }

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- the watches

    def _note(self, name: str) -> None:
        self._changed[name] = None
        self._news.set()

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Closed):
            self._failure = self._failure or error
            self._news.set()

    async def _watch_pods(self, run: str) -> None:
        labels, live = names.selector(run=run), False
        async for event in self._client.watch(PODS, PodObject, namespace=self._namespace, labels=labels):
            if event.kind is SYNCED:
                live = True
                self._synced.add(run)
                for name in [name for name, feed in self._jobs.items() if feed.known.run == run]:
                    self._note(name)
            elif event.object is not None:
                self._take_pod(event.object, event.at_s, live and not event.relisted, event.kind is DELETED)

    async def _watch_roots(self, run: str) -> None:
        labels = names.selector(run=run, part="job")
        async for event in self._client.watch(self._resource, RootObject, namespace=self._namespace, labels=labels):
            if event.kind is SYNCED:
                for feed in [one for one in self._jobs.values() if one.known.run == run and one.root is None]:
                    self._task(self._find_root(feed))
            elif event.object is not None:
                self._take_root(event.object, event.kind is DELETED)

    async def _watch_warnings(self) -> None:
        watch = self._client.watch(EVENTS, WarningEvent, namespace=self._namespace, fields="type=Warning")
        async for event in watch:
            watch.objects.clear()  # a relist may tell them again, which does no harm; keeping all would
            if event.object is None or event.kind is DELETED:
                continue
            feed = self._about(event.object)
            if feed is None:
                self._unmatched.append(event.object)
            else:
                feed.warn(event.object)
                self._note(feed.known.name)

    def _take_pod(self, pod: PodObject, at_s: float, live: bool, gone: bool) -> None:
        name, uid = pod.job, pod.metadata.uid
        feed = self._jobs.get(name)
        times = self._pods.get(uid)
        if times is None:
            times = self._pods[uid] = PodTimes(pod)
            pods = feed.pods if feed is not None else self._others.setdefault(name, {})
            pods[uid] = times
        times.take(pod, self._clock.wall_s(at_s), live, gone)
        if feed is not None:
            self._note(name)
        elif gone:
            del self._pods[uid]
            self._others[name].pop(uid, None)
            if not self._others[name]:
                del self._others[name]

    def _take_root(self, root: RootObject, gone: bool) -> None:
        name = root.metadata.name
        if gone:
            self._roots.pop(name, None)
        else:
            self._roots[name] = root
        feed = self._jobs.get(name)
        if feed is not None and root.metadata.uid == feed.known.uid:
            feed.root, feed.root_gone = root, gone
            self._note(name)

    async def _find_root(self, feed: JobFeed) -> None:
        """One that a synced watch does not know is on its way to us, or was gone before we came."""
        if feed.known.created.source == "submitter":  # a moment ago, so that the watch tells of it without being asked
            await asyncio.sleep(ON_ITS_WAY_S)
            if feed.root is not None or self._jobs.get(feed.known.name) is not feed:
                return
        while True:
            try:
                found = await self._client.get(self._resource, feed.known.name, namespace=self._namespace)
                feed.root_gone = found.metadata.uid != feed.known.uid
                break
            except NotFound:
                feed.root_gone = True
                break
            except KubernetesError as error:  # the watches have more patience, and tell when theirs is over
                if error.lasting:
                    raise
            await asyncio.sleep(ASK_AGAIN_S)
        if feed.root_gone and feed.known.name in self._jobs:
            self._note(feed.known.name)

    def _about(self, warning: WarningEvent) -> JobFeed | None:
        """The job whose root, pod or workload it regards: their names begin with the root's."""
        about = warning.involved_object
        if about.kind == self._resource.kind and about.name in self._jobs:
            feed = self._jobs[about.name]
            return feed if about.uid in ("", feed.known.uid) else None
        name = about.name.partition("-")[2] if about.kind == KUEUE_WORKLOAD else about.name
        while name:
            if name in self._jobs:
                return self._jobs[name]
            name = name.rpartition("-")[0]
        return None
