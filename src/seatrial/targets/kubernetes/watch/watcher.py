"""Follows jobs on a cluster: their stages, why they do not start, how they end.

1. All state comes from watches; nothing is polled. What a watch cannot report (who deleted a pod, whether a root is
   gone) is queried once, when it matters. Data flows one way: feeds keep the state, one loop considers jobs that
   changed or are due, events leave through a queue.
2. `add` twice is not an error and repeats no event. A job that ended long ago yields events from its last state.
3. A job ends when the containers of its trial have ended on all hosts. Its pods may stay, for their files.
4. The times of a job never go backwards.
5. When a watch fails for good, `events`, `started`, `ended` and `gone` raise a TargetError that says what to do.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

from seatrial.job import Event, Exit, Outcome, Stage
from seatrial.kubernetes import JOBS, Kubernetes, KubernetesError, Resource
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.watch.ending import (
    EndContext,
    depends_on_context,
    host_exit,
    is_failure,
    job_exit,
)
from seatrial.targets.kubernetes.watch.feeds import Feeds
from seatrial.targets.kubernetes.watch.jobs import JobState, TrackedPod
from seatrial.targets.kubernetes.watch.objects import TrackedJob
from seatrial.targets.kubernetes.watch.waiting import NEVER, Patience, Waiting

PATIENCE = Patience()
OTHERS_S = 60.0  # for started hosts to stop, if another one can never start
_AFTER_FAILURE_S = 5.0  # from the first host's failure until the others are stopped, which would wait for it forever
PENDING_S = 60.0  # for a host that is not scheduled yet, if another has failed
_POLL_S = 0.5
SYNC_S = 0.05
_LINGER_S = 30.0  # how long the watches of a run stay open without a job
ASK_S = 20.0  # for one attempt to ask a pod to stop
REQUEST_AGAIN_S = 0.5
_ASK = ["/bin/sh", "-c", f"mkdir -p {names.OUT} && : > {names.OUT}/cancel"]


class Ender:
    """Stops jobs: asks them, through a file that their keepers write, or deletes them."""

    def __init__(self, client: Kubernetes, resource: Resource = JOBS) -> None:
        self._client, self._resource = client, resource

    async def delete(self, name: str) -> bool:
        """Deletes the root, and with it the whole job, each pod after its grace. False if it did not exist."""
        return await self._client.delete(self._resource, name)

    async def ask(self, pods: Sequence[TrackedPod]) -> bool:
        """Asks all running pods to stop; whether all were reached. A pod that has not started must be deleted."""
        running = [pod for pod in pods if pod.trial_running]
        if not running and any(pod.trial_ended for pod in pods):
            return True
        reached = await asyncio.gather(*(self._ask(pod.name) for pod in running))
        return bool(running) and all(reached)

    async def _ask(self, pod: str) -> bool:
        keeper = self._client.pod(pod, names.KEEPER)
        for attempt in range(3):
            with contextlib.suppress(KubernetesError, TimeoutError):
                async with asyncio.timeout(ASK_S):
                    return (await keeper.run(_ASK)).exit_code == 0
            await asyncio.sleep(REQUEST_AGAIN_S * attempt)
        return False


class JobWatcher:
    """Sends the events of jobs. Unless it only observes jobs of another process, it also stops jobs that can never
    start, before their exit event, and hosts that would wait forever for a failed one."""

    def __init__(
        self,
        client: Kubernetes,
        resource: Resource = JOBS,
        *,
        patience: Patience = PATIENCE,
        ender: Ender | None = None,
        observe: bool = False,
    ) -> None:
        self._namespace, self._resource, self._patience = client.access.namespace, resource, patience
        self._ender, self._observe = ender or Ender(client, resource), observe
        self._feeds = Feeds(client, resource, self.fail)
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._jobs: dict[str, JobState] = {}  # by handle
        self._loop: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    # ---- public

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
        """Adds an event from elsewhere, in order and never after the job's exit."""
        job = self._jobs.get(event.handle)
        if job is not None and not job.exited.is_set():
            self._queue.put_nowait(event)

    def add(self, handle: str, known: TrackedJob) -> None:
        """Watches a job from now on. A second call does nothing."""
        if handle in self._jobs or self._closed:
            return
        job = self._jobs[handle] = JobState(handle, known)
        self._queue.put_nowait(Event(handle, job.next_time(known.created)))
        self._feeds.follow(job)
        if self._loop is None:
            self._loop = self._feeds.start(self._consider_changed())
        if self._failure is not None:
            job.release()

    def mark_cancelled(self, handle: str) -> None:
        """If the job ends after this without its own message, it counts as cancelled."""
        if handle in self._jobs:
            self._jobs[handle].cancelled = True

    def forget(self, handle: str) -> None:
        """Stops events of a removed job."""
        job = self._jobs.pop(handle, None)
        if job is None:
            return
        job.release()
        self._feeds.forget(job.known.name)
        asyncio.get_running_loop().call_later(_LINGER_S, self._feeds.leave, job.known.run)

    def pods(self, handle: str) -> list[TrackedPod]:
        """Its pods in the order of hosts."""
        job = self._jobs.get(handle)
        return job.hosts() if job is not None else []

    async def synced(self, handle: str) -> None:
        """Waits until all of its current pods are known."""
        job = self._jobs.get(handle)
        while job is not None and not job.released and job.known.run not in self._feeds.synced:  # noqa: ASYNC110 - once
            await asyncio.sleep(SYNC_S)
        self._raise_failure()

    async def started(self, handle: str) -> None:
        """Waits until it has started on all hosts, or never will."""
        await self._until(handle, lambda job: job.started)

    async def ended(self, handle: str) -> None:
        """Waits until its exit event was sent, or it was forgotten."""
        await self._until(handle, lambda job: job.exited)

    async def gone(self, handle: str) -> None:
        """Waits until its root and all pods are gone, or it was forgotten."""
        job = self._jobs.get(handle)
        if job is not None and job.root is None:  # it may have been deleted before its watch began
            with contextlib.suppress(KubernetesError):
                await self._feeds.read_root(job)
        await self._until(handle, lambda job: job.gone)

    def fail(self, error: BaseException) -> None:
        """Jobs cannot be followed any more: raises this error in all waiters."""
        self._failure = self._failure or error
        for job in self._jobs.values():
            job.release()
        self._queue.put_nowait(None)

    async def close(self) -> None:
        self._closed = True
        for job in self._jobs.values():
            job.release()
        await self._feeds.close()
        self._queue.put_nowait(None)

    async def _until(self, handle: str, which: Callable[[JobState], asyncio.Event]) -> None:
        job = self._jobs.get(handle)
        if job is not None:
            await which(job).wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            doing = f"cannot watch the jobs in namespace {self._namespace} any more"
            with target_errors(doing, lost=(KubernetesError,)):
                raise self._failure

    # ---- the loop

    async def _consider_changed(self) -> None:
        while True:
            for job in await self._feeds.changed():
                self._consider(job)

    def _consider(self, job: JobState) -> None:
        """Considers a job that changed or is due."""
        if job.root_gone and all(pod.gone for pod in job.pods.values()):
            job.gone.set()
        if job.exited.is_set() or job.released:
            return
        for reached in job.new_stages():
            self._queue.put_nowait(Event(job.handle, reached, hosts=job.node_names()))
        if job.deciding:
            return
        hosts, context = job.check_nodes(self._patience.lost_s), self._context(job)
        if job.over(hosts, job.known.run in self._feeds.synced):
            whole = len(hosts) >= job.known.hosts and not any(map(depends_on_context, hosts))
            if whole or job.cancelled:
                self._exit(job, job_exit(hosts, context))
            else:
                job.deciding = True
                self._feeds.start(self._decide(job))
            return
        numbers = {host.number for host in hosts if not host.stopped}
        failed = any(host.stopped and is_failure(host_exit(host, context)) for host in hosts)
        if numbers and failed and not job.others_ended and not self._observe:
            job.others_ended = True
            self._feeds.start(self._end_others(job, numbers))
        self._consider_waiting(job)
        self._feeds.mark_later(job)

    def _consider_waiting(self, job: JobState) -> None:
        reason = job.why_waiting(self._feeds.most, self._patience, self._feeds.gpu_labels)
        if reason is None:
            return
        if job.progress != reason.why:
            job.progress = reason.why
            self._queue.put_nowait(Event(job.handle, hosts=job.node_names(), progress=reason.why))
        if self._feeds.should_ask_nodes(reason.why):
            self._feeds.start(self._feeds.ask_nodes())
        if job.kueue_is_silent(self._patience.refused_s):
            self._feeds.start(self._feeds.ask_kueue(job))
        if job.patience_is_over(reason) and not self._observe:
            job.deciding = True
            self._feeds.start(self._give_up(job, reason))

    # ---- ends

    def _context(self, job: JobState, namespace_going: bool = False) -> EndContext:
        deleted = job.root is not None and job.root.metadata.deletion_timestamp is not None
        return EndContext(
            root=job.root,
            root_name=job.known.name,
            root_kind=self._resource.kind,
            root_gone=job.root_gone or deleted,
            namespace=self._namespace,
            namespace_going=namespace_going,
            cancelled=job.cancelled,
            alone=job.known.hosts == 1,
        )

    async def _decide(self, job: JobState) -> None:
        """Decides on an exit that depends on more than the pods, which other watches may not have reported yet."""
        with contextlib.suppress(KubernetesError):
            await self._feeds.read_root(job)
        missing = len(job.hosts()) < job.known.hosts and await self._feeds.has_other_pods(job)
        namespace_going = await self._feeds.namespace_going()
        hosts = job.check_nodes(self._patience.lost_s)
        job.deciding = False
        if missing or not job.over(hosts, True):
            self._feeds.mark_later(job)
            return
        self._exit(job, job_exit(hosts, self._context(job, namespace_going)))

    async def _give_up(self, job: JobState, reason: Waiting) -> None:
        """Deletes a job that can never start, then reports its exit."""
        if reason.kind == NEVER:  # unless a node was added meanwhile
            await self._feeds.ask_nodes()
            again = job.why_waiting(self._feeds.most, self._patience, self._feeds.gpu_labels)
            if again is None or again.kind != NEVER:
                job.deciding = False
                self._feeds.mark_changed(job.known.name)
                return
        message = reason.why
        try:
            await self._ender.delete(job.known.name)
        except KubernetesError as error:
            message += f"\nthe job could not be deleted: {error}"
        running = [pod.ended.wait() for pod in job.hosts() if Stage.STARTED in pod.times]
        with contextlib.suppress(TimeoutError):  # of several hosts, some may have started
            async with asyncio.timeout(OTHERS_S):
                await asyncio.gather(*running)
        outcome = Outcome.CANCELLED if job.cancelled else reason.outcome
        self._exit(job, Exit(outcome, message=message))

    async def _end_others(self, job: JobState, numbers: set[int]) -> None:
        """Asks running hosts to stop. If one is still not scheduled after PENDING_S, deletes the whole job."""
        await asyncio.sleep(_AFTER_FAILURE_S)
        until_s, placed = time.monotonic() + PENDING_S, False
        while time.monotonic() < until_s and not job.exited.is_set():
            pods = [pod for pod in job.hosts() if pod.number in numbers]
            reached = await self._ender.ask(pods)
            placed = len(pods) == len(numbers) and all(pod.trial_running or pod.trial_ended for pod in pods)
            if placed and reached:
                return
            await asyncio.sleep(_POLL_S)
        if not placed and not job.exited.is_set():
            with contextlib.suppress(KubernetesError):
                await self._ender.delete(job.known.name)

    def _exit(self, job: JobState, ended: Exit) -> None:
        if job.exited.is_set() or job.released:
            return
        self._queue.put_nowait(Event(job.handle, job.finished(), ended, job.node_names()))
        job.started.set()
        job.exited.set()
