"""Followed jobs and pods: their last observed state, and the time of each stage.

1. A stage observed live has the time by our clock when the watch reported it. Its uncertainty is the time since the
   server's timestamp, or without one since the previous observation of the pod, which ignores how late a node reports.
2. A stage found later (the job was adopted, the watch had a gap) has the server's timestamp. Timestamps are truncated
   to seconds, so half a second is added, with an uncertainty of half a second plus any offset of the server's clock.
"""

import asyncio
import math
import time
from operator import attrgetter

import msgspec

from seatrial.job import Stage, StageTime
from seatrial.targets.kubernetes.names import KEEPER, TRIAL
from seatrial.targets.kubernetes.watch import waiting
from seatrial.targets.kubernetes.watch.objects import (
    KUEUE_WORKLOAD,
    PodObject,
    RootObject,
    TrackedJob,
    WarningEvent,
    epoch_s,
)
from seatrial.targets.kubernetes.watch.waiting import Patience, Waiting

API_SERVER, KUBELET, WATCH, SUBMITTER = "api-server", "kubelet", "watch", "submitter"
OUR_CLOCK = frozenset({WATCH, SUBMITTER})
HALF_S = 0.5
UNKNOWN_S = 1.0  # uncertainty without an earlier observation or a timestamp
_ORDER = (Stage.QUEUED, Stage.SCHEDULED, Stage.STARTED, Stage.READY, Stage.FINISHED)
KUEUE_AGAIN_S = 60.0
HELD_S = 3.0  # limit for the watch to report our release
HELD = "waiting: suspended by a queue controller or a user; if Kueue manages this namespace, set `queue` of the target"
_WARNINGS = 32  # kept per job


_OFFSET_S = time.time() - time.monotonic()
_by_time = attrgetter("wall_s")


def wall_s(at_s: float) -> float:
    """Wall time of a monotonic time, with a fixed offset, so that differences are those of the monotonic clock."""
    return at_s + _OFFSET_S


def now_s() -> float:
    return wall_s(time.monotonic())


class TrackedPod:
    """The last observed state of a pod, and its stage times. Changes while the pod is watched."""

    def __init__(self, pod: PodObject) -> None:
        self.pod = pod
        self.name, self.uid, self.number = pod.metadata.name, pod.metadata.uid, pod.number
        self.times: dict[Stage, StageTime] = {}
        self.arrived_s: float | None = None
        self.live = False
        self.gone = False
        self.silent = False  # its deletion was requested, but its node does not answer
        self.deleted_s = pod.deleted_s  # when it was first asked to stop, by the server's clock
        self.ended = asyncio.Event()  # set when its trial has ended
        self._before_s: float | None = None  # previous arrival; updates of one block arrive at the same time

    @property
    def over(self) -> bool:
        """None of its containers runs or will run."""
        return self.gone or self.pod.phase_ended

    @property
    def trial_running(self) -> bool:
        return self._runs(TRIAL)

    @property
    def keeper_running(self) -> bool:
        return self._runs(KEEPER)

    @property
    def trial_ended(self) -> bool:
        return self.over or self.pod.trial.terminated is not None

    @property
    def stopped(self) -> bool:
        """Its trial no longer runs, as far as is known."""
        return self.silent or self.trial_ended

    @property
    def finished_s(self) -> float:
        """When its trial ended; now if that is unknown."""
        finished = self.times.get(Stage.FINISHED)
        return finished.wall_s if finished else now_s()

    @property
    def real(self) -> bool:
        """A node created its containers and still has their logs."""
        return not self.gone and any(one.container_id for one in self.pod.status.container_statuses)

    def _runs(self, container: str) -> bool:
        return not self.over and any(name == container and state.running for name, state in self.pod.states())

    def update(self, pod: PodObject, arrived_s: float, live: bool, gone: bool = False) -> None:
        """`arrived_s` is wall time."""
        self.pod, self.live, self.gone = pod, live, gone
        if self.deleted_s is None:
            self.deleted_s = pod.deleted_s
        if self.arrived_s is not None and self.arrived_s < arrived_s:
            self._before_s = self.arrived_s
        reached = _reached(pod, gone)
        for stage, (stamp_s, source) in reached.items():
            if stage not in self.times:
                if stamp_s is not None and not live:
                    self.times[stage] = StageTime(stage, min(stamp_s + HALF_S, arrived_s), source, HALF_S)
                    continue
                since_s = stamp_s if stamp_s is not None and stamp_s <= arrived_s else self._before_s
                off_s = arrived_s - since_s if since_s is not None else UNKNOWN_S
                found = StageTime(stage, arrived_s, WATCH, off_s)
                self.times[stage] = found if live else _before(found, reached)
        self.arrived_s = arrived_s
        if Stage.FINISHED in self.times:
            self.ended.set()


Reached = dict[Stage, tuple[float | None, str]]  # stages with their timestamp and clock


def _reached(pod: PodObject, gone: bool) -> Reached:
    found: Reached = {Stage.QUEUED: (epoch_s(pod.metadata.creation_timestamp), API_SERVER)}
    if pod.spec.node_name:
        found[Stage.SCHEDULED] = (pod.transition_s("PodScheduled"), API_SERVER)
    state = pod.trial
    if pod.started:
        began = state.running or state.terminated
        found[Stage.STARTED] = (epoch_s(began.started_at) if began else None, KUBELET)
    if pod.ready:
        found[Stage.READY] = (pod.transition_s("Ready"), KUBELET)  # of the whole pod: containers have no timestamp
    if state.terminated is not None:
        found[Stage.FINISHED] = (epoch_s(state.terminated.finished_at), KUBELET)
    elif gone or pod.phase_ended:
        found[Stage.FINISHED] = (pod.transition_s("DisruptionTarget"), API_SERVER)
    return found


def _before(found: StageTime, reached: Reached) -> StageTime:
    """Limits the time of a stage found later without a timestamp to that of the next stage with one."""
    later = _ORDER[_ORDER.index(found.stage) + 1 :]
    stamps = [reached[stage][0] for stage in later if stage in reached]
    until_s = next((one + HALF_S for one in stamps if one is not None), None)
    if until_s is None or until_s >= found.wall_s:
        return found
    created_s = reached[Stage.QUEUED][0]
    off_s = max(HALF_S, until_s - created_s) if created_s is not None else found.uncertainty_s
    return StageTime(found.stage, until_s, API_SERVER, off_s)


class JobState:
    """One job: the state of its objects, the reported stages, and how long it may wait."""

    def __init__(self, handle: str, known: TrackedJob) -> None:
        self.handle, self.known = handle, known
        self.pods: dict[str, TrackedPod] = {}  # by uid, including deleted ones
        self.root: RootObject | None = None  # its last state, even if it was deleted
        self.root_gone = False
        self.cancelled = False
        self.released = False
        self.deciding = False
        self.started, self.exited, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.wake_s = math.inf  # when to consider it again even without a change
        self.timer: asyncio.TimerHandle | None = None  # for then
        self._warnings: dict[tuple[str, str], WarningEvent] = {}  # by object and reason, the latest last
        self._given: dict[Stage, StageTime] = {}
        self._last: StageTime | None = None
        self.progress = ""  # last reported reason for waiting
        self._final_s: dict[str, float] = {}  # since when it has had a final reason, by its kind; at most one
        self.others_ended = False  # the other hosts were asked to stop after one failed
        # Times by topic: since when it is suspended without Kueue ("held"), when to ask Kueue ("kueue"), and by a pod's
        # uid when its node counts as silent.
        self._times_s: dict[str, float] = {}

    def warn(self, warning: WarningEvent) -> None:
        key = (warning.involved_object.name, warning.reason)
        self._warnings.pop(key, None)
        self._warnings[key] = warning
        if len(self._warnings) > _WARNINGS:
            del self._warnings[next(iter(self._warnings))]

    def hosts(self) -> list[TrackedPod]:
        """One pod per host number, in order: the current one, or the last if all are gone."""
        chosen: dict[int, TrackedPod] = {}
        for pod in self.pods.values():
            other = chosen.get(pod.number)
            if other is None or other.gone or not pod.gone:
                chosen[pod.number] = pod
        return [chosen[number] for number in sorted(chosen)]

    def node_names(self) -> tuple[str, ...]:
        """Nodes of its hosts in order, without duplicates."""
        return tuple(dict.fromkeys(one.pod.spec.node_name for one in self.hosts() if one.pod.spec.node_name))

    def release(self) -> None:
        """Ends reporting and wakes all waiters."""
        self.released = True
        for event in (self.started, self.exited, self.gone):
            event.set()

    # ---- stages

    def next_time(self, found: StageTime) -> StageTime:
        """Adjusts a time so that it is not before the last one. By the same clock, its uncertainty is at most the time
        since then."""
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
        hosts, new = self.hosts(), []
        for stage in _ORDER[:-1]:
            if stage not in self._given:
                found = self._stage_time(stage, hosts)
                if found is None:
                    break
                new.append(self.next_time(found))
        if Stage.STARTED in self._given:
            self.started.set()
        return new

    def _stage_time(self, stage: Stage, hosts: list[TrackedPod]) -> StageTime | None:
        times = [one.times[stage] for one in hosts if stage in one.times]
        if stage is Stage.QUEUED:
            if times:
                return min(times, key=_by_time)
            held = self.known.queue and self.root is not None and self.root.spec.suspend
            return msgspec.structs.replace(self.known.created, stage=stage) if held else None
        if stage is Stage.READY:  # as `endpoint` is: the first host's
            return next((one.times[stage] for one in hosts if one.number == 0 and stage in one.times), None)
        return max(times, key=_by_time) if len(times) >= self.known.hosts else None  # when the last host has

    def finished(self) -> StageTime:
        """When its last host finished. If unknown: now, with an uncertainty back to the last observation."""
        hosts = self.hosts()
        times = [one.times[Stage.FINISHED] for one in hosts if Stage.FINISHED in one.times]
        if times and len(times) == len(hosts):
            return self.next_time(max(times, key=_by_time))
        at_s = now_s()
        observed_s = max([one.arrived_s for one in hosts if one.arrived_s is not None], default=at_s)
        return self.next_time(StageTime(Stage.FINISHED, at_s, WATCH, max(0.0, at_s - observed_s)))

    # ---- ends

    def check_nodes(self, lost_s: float) -> list[TrackedPod]:
        """Its hosts, after a check which nodes are silent: a deleted pod still exists `lost_s` after its grace."""
        hosts = self.hosts()
        self.wake_s = math.inf
        for one in hosts:
            one.silent = False
            if one.pod.being_deleted and not one.trial_ended:
                longest_s = within_s = (one.pod.metadata.deletion_grace_period_seconds or 0) + lost_s
                if not one.live and one.pod.deleted_s is not None:
                    within_s = min(max(one.pod.deleted_s + longest_s - now_s(), 0.0), longest_s)
                at_s = self._times_s.setdefault(one.uid, time.monotonic() + within_s)
                one.silent = self._is_due(at_s)
        return hosts

    def over(self, hosts: list[TrackedPod], synced: bool) -> bool:
        """Whether its trial runs on no host and never will. Without a sync, there may be unknown pods."""
        if not synced or not all(host.stopped for host in hosts):
            return False
        done = self.root is not None and (self.root.failed is not None or self.root.completed is not None)
        return len(hosts) >= self.known.hosts or self.root_gone or done

    # ---- waiting

    def why_waiting(self, most: dict[str, float] | None, patience: Patience, gpu_labels: str = "") -> Waiting | None:
        if Stage.STARTED in self._given or self.cancelled or self.root_gone:
            return None
        pods = [one.pod for one in self.hosts() if not one.gone]
        known = self.known
        warnings = tuple(self._warnings.values())
        around = waiting.WaitContext(self.root, warnings, known.hosts, known.queue, known.limited, most, gpu_labels)
        reason = waiting.why_waiting(pods, around, patience) or self._why_held()
        if reason is None or reason.kind not in self._final_s:
            self._final_s.clear()
        return reason

    def _why_held(self) -> Waiting | None:
        """The job is suspended although we released it: by a queue controller or a user."""
        if self.root is None or not self.root.spec.suspend or self.known.queue:
            self._times_s.pop("held", None)
            return None
        since_s = self._times_s.setdefault("held", time.monotonic())
        return Waiting(HELD) if self._is_due(since_s + HELD_S) else None

    def kueue_is_silent(self, after_s: float) -> bool:
        """Whether Kueue has not admitted it for a while without a reason. True at most once per KUEUE_AGAIN_S."""
        held = self.known.queue and self.root is not None and self.root.spec.suspend
        if not held or any(one.involved_object.kind == KUEUE_WORKLOAD for one in self._warnings.values()):
            return False
        due = self._is_due(self._times_s.setdefault("kueue", time.monotonic() + after_s))
        if due:
            self._times_s["kueue"] = time.monotonic() + KUEUE_AGAIN_S
            self._is_due(self._times_s["kueue"])
        return due

    def patience_is_over(self, reason: Waiting) -> bool:
        return reason.final and self._is_due(self._final_s.setdefault(reason.kind, time.monotonic()) + reason.after_s)

    def _is_due(self, at_s: float) -> bool:
        """Whether that time has come; if not, schedules the job for then."""
        due = time.monotonic() >= at_s
        if not due:
            self.wake_s = min(self.wake_s, at_s)
        return due
