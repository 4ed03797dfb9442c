"""Sees what becomes of jobs on a cluster: when each comes to its stages, why one does not start, how each ends.

1. Everything comes from watches; nothing is asked again and again. What a watch cannot tell (whose deletion it was,
   whether a root is gone) is asked once, when it matters.
2. `add` again is no error and gives no event twice. A job that ended long ago gives its events from what is found.
3. A job ends when the containers of its trial have ended on all hosts. Its pods may stay on, for their files.
4. Times of a job never go backwards.
5. When a watch fails for good, `events`, `started`, `ended` and `gone` raise a TargetError that says what to do.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from seatrial.job import Event, Exit, Outcome
from seatrial.kubernetes import JOBS, Kubernetes, KubernetesError, Resource
from seatrial.target.kubernetes.ender import Ender
from seatrial.target.kubernetes.errors import target_error
from seatrial.target.kubernetes.watch.ending import Around, job_exit
from seatrial.target.kubernetes.watch.feeds import Feeds
from seatrial.target.kubernetes.watch.inquiries import Inquiries
from seatrial.target.kubernetes.watch.job_state import JobState
from seatrial.target.kubernetes.watch.objects import PodSummary, TrackedJob, pod_summary
from seatrial.target.kubernetes.watch.stage_times import Clock
from seatrial.target.kubernetes.watch.waiting import NEVER, Patience, Waiting

__all__ = ["Patience", "PodSummary", "TrackedJob", "Watcher"]

PATIENCE = Patience()
OTHERS_S = 60.0  # that hosts which have started get to end, when another never will start
AFTER_FAILURE_S = 5.0  # from the first host's failure to the end of the others, which would wait for it for ever
PENDING_S = 60.0  # for a host that has no place yet, when another has failed
POLL_S = 0.5
LINGER_S = 30.0  # that the watches of a run stay open without a job: the next may come at once


class Watcher:
    """It ends what must not go on: a job that will never start, before its exit is given, and the hosts that would wait
    for ever for one that failed."""

    def __init__(
        self,
        client: Kubernetes,
        namespace: str,
        resource: Resource = JOBS,
        *,
        patience: Patience = PATIENCE,
        ender: Ender | None = None,
    ) -> None:
        self._namespace, self._resource, self._patience = namespace, resource, patience
        self._ender = ender or Ender(client, namespace, resource)
        self._clock = Clock()
        self._feeds = Feeds(client, namespace, resource, self._clock)
        self._inquiries = Inquiries(client, namespace, resource)
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._jobs: dict[str, JobState] = {}  # by handle
        self._named: dict[str, JobState] = {}  # by the root's name
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    # ---- asked from outside

    async def events(self) -> AsyncIterator[Event]:
        while True:
            if self._queue.empty():
                self._raise_failure()
                if self._closed:
                    return
            event = await self._queue.get()
            if event is not None:
                yield event

    def report(self, event: Event) -> None:
        """What somebody else saw of a job, in its place among the others and never after its exit."""
        job = self._jobs.get(event.handle)
        if job is not None and not job.exited.is_set():
            self._queue.put_nowait(event)

    def add(self, handle: str, known: TrackedJob) -> None:
        """From now on. Again is no error and gives no event twice."""
        if handle in self._jobs or self._closed:
            return
        if self._reading is None:
            self._reading = self._task(self._read_changes())
        job = JobState(handle, self._feeds.follow(known))
        self._jobs[handle] = self._named[known.name] = job
        self._queue.put_nowait(Event(handle, job.next_time(known.created)))
        if self._failure is not None:
            job.release()
        self._consider(job)

    def mark_cancelled(self, handle: str) -> None:
        """Whatever ends after this without a word of its own was cancelled."""
        if handle in self._jobs:
            self._jobs[handle].cancelled = True

    def forget(self, handle: str) -> None:
        """Of a job that is removed: no more events."""
        job = self._jobs.pop(handle, None)
        if job is None:
            return
        job.release()
        self._named.pop(job.known.name, None)
        self._feeds.forget(job.known.name)
        asyncio.get_running_loop().call_later(LINGER_S, self._feeds.leave, job.known.run)

    def pods(self, handle: str) -> list[PodSummary]:
        """In the order of hosts."""
        job = self._jobs.get(handle)
        hosts = job.feed.hosts() if job is not None else []
        return [pod_summary(times.pod, times.gone) for times in hosts]

    def pod(self, uid: str) -> PodSummary | None:
        times = self._feeds.pod(uid)
        return None if times is None else pod_summary(times.pod, times.gone)

    def trial_ended(self, uid: str) -> asyncio.Event:
        """Is set when the trial in that pod has ended; of a pod that is not known, it has."""
        times = self._feeds.pod(uid)
        if times is not None:
            return times.ended
        ended = asyncio.Event()
        ended.set()
        return ended

    async def started(self, handle: str) -> None:
        """Until it has started on all hosts, or will not any more."""
        await self._until(handle, lambda job: job.started)

    async def ended(self, handle: str) -> None:
        """Until its exit event was given, or it was forgotten."""
        await self._until(handle, lambda job: job.exited)

    async def gone(self, handle: str) -> None:
        """Until neither its root nor a pod of it is there, or it was forgotten."""
        await self._until(handle, lambda job: job.gone)

    def fail(self, error: BaseException) -> None:
        """A watch, or what is done with what it tells, has failed for good: whoever waits learns it."""
        self._failure = self._failure or error
        for job in self._jobs.values():
            job.release()
        self._queue.put_nowait(None)

    def counts(self) -> dict[str, int]:
        """How much is kept, for those who look after growth."""
        return self._feeds.counts()

    async def close(self) -> None:
        self._closed = True
        for job in self._jobs.values():
            job.release()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._feeds.close()
        self._queue.put_nowait(None)

    async def _until(self, handle: str, which: Callable[[JobState], asyncio.Event]) -> None:
        job = self._jobs.get(handle)
        if job is not None:
            await which(job).wait()
        self._raise_failure()

    # ---- what the watches tell

    def _raise_failure(self) -> None:
        if isinstance(self._failure, KubernetesError):
            doing = f"the jobs in namespace {self._namespace} cannot be watched any more"
            raise target_error(self._failure, doing, lost=True)
        if self._failure is not None:
            raise self._failure

    async def _read_changes(self) -> None:
        while True:
            for name in await self._feeds.changed():
                if name in self._named:
                    self._consider(self._named[name])

    def _consider(self, job: JobState) -> None:
        """A job of which something has changed, or whose time is up."""
        if job.feed.all_gone:
            job.gone.set()
        if job.exited.is_set() or job.released:
            return
        for reached in job.new_stages():
            self._queue.put_nowait(Event(job.handle, reached, host=job.host()))
        if job.deciding is not None:
            return
        hosts = job.host_ends(self._clock, self._patience.lost_s)
        around = self._around(job)
        if job.over(hosts, self._feeds.synced(job.known.run)):
            if job.clear(hosts, around):
                self._exit(job, job_exit(hosts, around))
            else:
                job.deciding = self._task(self._decide(job))
            return
        still_running = job.left_alone(hosts, around)
        if still_running:
            self._task(self._end_others(job, still_running))
        self._consider_waiting(job)
        job.wake(lambda: self._consider(job))

    def _consider_waiting(self, job: JobState) -> None:
        reason = job.why_waiting(self._inquiries.most(), self._patience)
        if reason is None:
            return
        text = job.new_progress(reason)
        if text:
            self._queue.put_nowait(Event(job.handle, host=job.host(), progress=text))
        if self._inquiries.wants_nodes(reason.why):
            self._task(self._learn_nodes())
        if job.kueue_is_silent(self._patience.refused_s):
            self._task(self._ask_kueue(job))
        if job.patience_is_over(reason):
            job.deciding = self._task(self._give_up(job, reason))

    async def _learn_nodes(self) -> None:
        """Once for all that wait: the reasons of the others can be judged better now, too."""
        await self._inquiries.learn_nodes()
        for job in list(self._jobs.values()):
            if not job.started.is_set():
                self._consider(job)

    async def _ask_kueue(self, job: JobState) -> None:
        said = await self._inquiries.workload(job.known)
        if said is not None:
            job.feed.warn(said)
            self._consider(job)

    # ---- ends

    def _around(self, job: JobState, namespace_going: bool = False) -> Around:
        feed = job.feed
        deleted = feed.root is not None and feed.root.metadata.deletion_timestamp is not None
        return Around(
            root=feed.root,
            root_name=job.known.name,
            root_kind=self._resource.kind,
            root_gone=feed.root_gone or deleted,
            namespace=self._namespace,
            namespace_going=namespace_going,
            cancelled=job.cancelled,
            alone=job.known.hosts == 1,
        )

    async def _decide(self, job: JobState) -> None:
        """How it ended depends on more than its pods, which other watches may not have told yet."""
        root, root_gone = await self._inquiries.root(job.known)
        if root_gone:
            job.feed.root_gone = True
        elif root is not None:
            job.feed.root = root
        missing = len(job.feed.hosts()) < job.known.hosts and await self._inquiries.has_other_pods(job.feed)
        namespace_going = await self._inquiries.namespace_going()
        hosts = job.host_ends(self._clock, self._patience.lost_s)
        job.deciding = None
        if missing or not job.over(hosts, True):
            job.wake(lambda: self._consider(job))
            return
        self._exit(job, job_exit(hosts, self._around(job, namespace_going)))

    async def _give_up(self, job: JobState, reason: Waiting) -> None:
        """It will never start: first it is made sure that it does not after all, then that is told."""
        if reason.kind == NEVER:  # unless a node has come since
            await self._inquiries.learn_nodes()
            again = job.why_waiting(self._inquiries.most(), self._patience)
            if again is None or again.kind != NEVER:
                job.deciding = None
                self._consider(job)
                return
        message = reason.why
        try:
            await self._ender.delete(job.known.name)
        except KubernetesError as error:
            message += f"\nit could not be held back: {error}"
        with contextlib.suppress(TimeoutError):  # of several hosts, some may have started
            async with asyncio.timeout(OTHERS_S):
                await asyncio.gather(*(times.ended.wait() for times in job.running()))
        outcome = Outcome.CANCELLED if job.cancelled else reason.class_
        self._exit(job, Exit(outcome, message=message))

    async def _end_others(self, job: JobState, numbers: set[int]) -> None:
        """Those that run are asked. One that has no place yet cannot be: if it gets none, the whole job is deleted."""
        await asyncio.sleep(AFTER_FAILURE_S)
        until_s, placed = time.monotonic() + PENDING_S, False
        while time.monotonic() < until_s and not job.exited.is_set():
            pods = [pod for pod in self.pods(job.handle) if pod.number in numbers]
            heard = await self._ender.ask(pods)
            placed = len(pods) == len(numbers) and all(pod.trial_running or pod.trial_ended for pod in pods)
            if placed and heard:
                return
            await asyncio.sleep(POLL_S)
        if not placed and not job.exited.is_set():
            with contextlib.suppress(KubernetesError):
                await self._ender.delete(job.known.name)

    def _exit(self, job: JobState, ended: Exit) -> None:
        if job.exited.is_set() or job.released:
            return
        self._queue.put_nowait(Event(job.handle, job.finished(self._clock), ended, job.host()))
        job.started.set()
        job.exited.set()
        job.sleep()

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
