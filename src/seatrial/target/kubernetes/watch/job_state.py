"""One job that is followed: what was told of it, and what follows from what is known of its objects now."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from seatrial.job import Stage, StageTime
from seatrial.target.kubernetes.watch import waiting
from seatrial.target.kubernetes.watch.ending import Around, HostEnd, depends_on_surroundings, failed, over
from seatrial.target.kubernetes.watch.feeds import JobFeed
from seatrial.target.kubernetes.watch.objects import TrackedJob, epoch_s
from seatrial.target.kubernetes.watch.stage_times import SUBMITTER, WATCH, Clock, PodTimes, latest
from seatrial.target.kubernetes.watch.waiting import Patience, Waiting

ASK_AGAIN_S = 60.0
OUR_CLOCK = frozenset({WATCH, SUBMITTER})


class JobState:
    def __init__(self, handle: str, feed: JobFeed) -> None:
        self.handle, self.feed = handle, feed
        self.cancelled = False
        self.started, self.exited, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.deciding: asyncio.Task[None] | None = None
        self.released = False
        self._given: dict[Stage, StageTime] = {}
        self._last: StageTime | None = None
        self._progress = ""
        self._waiting: tuple[str, float] | None = None  # the kind of a final reason, and since when
        self._others_ended = False
        self._ask_kueue_s: float | None = None
        self._silent_at_s: dict[str, float] = {}  # by pod: when its node counts as silent
        self._wake_s: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def known(self) -> TrackedJob:
        return self.feed.known

    def host(self) -> str:
        """The names of its nodes in the order of hosts, each once."""
        return ", ".join(dict.fromkeys(one.pod.spec.node_name for one in self.feed.hosts() if one.pod.spec.node_name))

    def release(self) -> None:
        """Nothing more will be told of it: nobody shall wait."""
        self.released = True
        self.sleep()
        if self.deciding is not None:
            self.deciding.cancel()
        for event in (self.started, self.exited, self.gone):
            event.set()

    # ---- stages

    def next_time(self, found: StageTime) -> StageTime:
        """Not before the one that was told last. By the same clock, it is off by no more than since then."""
        last = self._last
        if last is not None and found.wall_s < last.wall_s:
            off_s = max(found.uncertainty_s, last.wall_s - found.wall_s)
            found = msgspec.structs.replace(found, wall_s=last.wall_s, uncertainty_s=off_s)
        elif last is not None and {last.source, found.source} <= OUR_CLOCK:
            off_s = min(found.uncertainty_s, found.wall_s - last.wall_s + last.uncertainty_s)
            found = msgspec.structs.replace(found, uncertainty_s=off_s)
        self._last = self._given[found.stage] = found
        return found

    def new_stages(self) -> list[StageTime]:
        hosts = self.feed.hosts()
        new: list[StageTime] = []
        for stage in (Stage.QUEUED, Stage.SCHEDULED, Stage.STARTED, Stage.READY):
            if stage in self._given:
                continue
            found = self._reached(stage, hosts)
            if found is None:
                break
            new.append(self.next_time(found))
        if Stage.STARTED in self._given:
            self.started.set()
        return new

    def _reached(self, stage: Stage, hosts: list[PodTimes]) -> StageTime | None:
        times = [one.times[stage] for one in hosts if stage in one.times]
        if stage is Stage.QUEUED:
            if times:
                return min(times, key=lambda one: one.wall_s)
            root, created = self.feed.root, self.known.created
            held = self.known.queue and root is not None and root.suspended
            return msgspec.structs.replace(created, stage=stage) if held else None
        if stage is Stage.READY:  # as `endpoint` is: the first host's
            return next((one.times[stage] for one in hosts if one.pod.number == 0 and stage in one.times), None)
        return latest(times) if len(times) >= self.known.hosts else None

    def finished(self, clock: Clock) -> StageTime:
        """When the last of its hosts had; now, when nothing says it, off by as long as nothing was seen."""
        hosts = self.feed.hosts()
        times = [one.times[Stage.FINISHED] for one in hosts if Stage.FINISHED in one.times]
        if times and len(times) == len(hosts):
            return self.next_time(latest(times))
        now_s = clock.now_s()
        seen_s = max([one.arrived_s for one in hosts if one.arrived_s is not None], default=now_s)
        return self.next_time(StageTime(Stage.FINISHED, now_s, WATCH, max(0.0, now_s - seen_s)))

    # ---- ends

    def running(self) -> list[PodTimes]:
        """Hosts on which the trial has started and not ended."""
        hosts = self.feed.hosts()
        return [one for one in hosts if Stage.STARTED in one.times and not one.ended.is_set()]

    def host_ends(self, clock: Clock, lost_s: float) -> list[HostEnd]:
        seen = []
        for one in self.feed.hosts():
            finished = one.times.get(Stage.FINISHED)
            finished_s = finished.wall_s if finished else clock.now_s()
            host = HostEnd(one.pod, finished_s, one.gone, deleted_s=one.deleted_s)
            if one.pod.being_deleted and not over(host):
                at_s = self._silent_at_s.setdefault(one.pod.metadata.uid, _silent_at_s(one, clock, lost_s))
                host = msgspec.structs.replace(host, silent=time.monotonic() >= at_s)
                self._wake_s.append(at_s)
            seen.append(host)
        return seen

    def over(self, hosts: list[HostEnd], synced: bool) -> bool:
        """Whether its trial runs nowhere and never will. Pods that are not listed yet may be anything."""
        if not synced or not all(over(host) for host in hosts):
            return False
        root = self.feed.root
        done = root is not None and (root.failed is not None or root.completed is not None)
        return len(hosts) >= self.known.hosts or self.feed.root_gone or done

    def clear(self, hosts: list[HostEnd], around: Around) -> bool:
        """Whether what was seen says how it ended, and nobody needs to be asked."""
        if around.cancelled:
            return True
        whole = len(hosts) >= self.known.hosts
        return whole and not any(depends_on_surroundings(host) for host in hosts)

    def left_alone(self, hosts: list[HostEnd], around: Around) -> set[int]:
        """The numbers of those that go on although another has failed; told once."""
        if self._others_ended or not any(over(host) and failed(host, around) for host in hosts):
            return set()
        self._others_ended = True
        return {host.pod.number for host in hosts if not over(host)}

    # ---- waiting

    def why_waiting(self, most: dict[str, float] | None, patience: Patience) -> Waiting | None:
        if Stage.STARTED in self._given or self.cancelled or self.feed.root_gone:
            return None
        pods = [one.pod for one in self.feed.hosts() if not one.gone]
        around = waiting.Around(self.feed.root, self.feed.warnings, self.known.hosts, self.known.queue, most)
        reason = waiting.why_waiting(pods, around, patience)
        if reason is None or not reason.final:
            self._waiting = None
        return reason

    def kueue_is_silent(self, after_s: float) -> bool:
        """Whether Kueue has held it back for a while and not said why. True once in a while."""
        root = self.feed.root
        if not self.known.queue or root is None or not root.suspended:
            return False
        if any(one.involved_object.kind == waiting.KUEUE_WORKLOAD for one in self.feed.warnings):
            return False
        now_s = time.monotonic()
        due_s = self._ask_kueue_s = self._ask_kueue_s or now_s + after_s
        if now_s >= due_s:
            self._ask_kueue_s = now_s + ASK_AGAIN_S
        self._wake_s.append(self._ask_kueue_s)
        return now_s >= due_s

    def new_progress(self, reason: Waiting) -> str:
        if reason.why == self._progress:
            return ""
        self._progress = reason.why
        return reason.why

    def patience_is_over(self, reason: Waiting) -> bool:
        if not reason.final:
            return False
        now_s = time.monotonic()
        if self._waiting is None or self._waiting[0] != reason.kind:
            self._waiting = (reason.kind, now_s)
        until_s = self._waiting[1] + reason.after_s
        self._wake_s.append(until_s)
        return now_s >= until_s

    # ---- looking again when a time is up

    def wake(self, look: Callable[[], None]) -> None:
        """At the first of the times that the last look found to matter."""
        self._cancel_timer()
        now_s = time.monotonic()
        later = [at_s for at_s in self._wake_s if at_s > now_s]
        self._wake_s.clear()
        if later and not self.released:
            self._timer = asyncio.get_running_loop().call_later(min(later) - now_s + 0.001, look)

    def sleep(self) -> None:
        self._cancel_timer()
        self._wake_s.clear()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _silent_at_s(times: PodTimes, clock: Clock, lost_s: float) -> float:
    """When a node that should end a deleted pod counts as silent: its grace, and some more, after it was deleted."""
    grace_s = float(times.pod.metadata.deletion_grace_period_seconds or 0)
    longest_s = grace_s + lost_s
    deleted_s = epoch_s(times.pod.metadata.deletion_timestamp)  # what the API calls so is when its grace is over
    if times.live or deleted_s is None:
        return time.monotonic() + longest_s
    return time.monotonic() + min(max(deleted_s + lost_s - clock.now_s(), 0.0), longest_s)
