"""When a pod came to each stage of its life, by whose clock, and how far off that may be.

1. Seen live, a time is our clock's when the watch told it; it is off by at most the time since the second that was
   stamped on it. Without a stamp it is the time since the pod was last seen otherwise, which does not count how late a
   node tells.
2. Found late (the job was taken up, the watch had a gap), it is the server's stamp. Those are cut to whole seconds, so
   their middle is taken and may be off by half a second, and by whatever the server's clock is off.
"""

import asyncio
import time

from seatrial.job import Stage, StageTime
from seatrial.target.kubernetes.watch.objects import PodObject, epoch_s

API_SERVER, KUBELET, WATCH, SUBMITTER = "api-server", "kubelet", "watch", "submitter"
HALF_S = 0.5
UNKNOWN_S = 1.0  # nothing was seen before and nothing is stamped
ORDER = (Stage.QUEUED, Stage.SCHEDULED, Stage.STARTED, Stage.READY, Stage.FINISHED)


class Clock:
    """Wall time of monotonic times, by one pair: differences stay those of one clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def wall_s(self, at_s: float) -> float:
        return at_s + self._offset_s

    def now_s(self) -> float:
        return self.wall_s(time.monotonic())


class PodTimes:
    """A pod in its last state, and its times."""

    __slots__ = ("arrived_s", "before_s", "deleted_s", "ended", "gone", "live", "pod", "times")

    def __init__(self, pod: PodObject) -> None:
        self.pod = pod
        self.times: dict[Stage, StageTime] = {}
        self.arrived_s: float | None = None
        self.before_s: float | None = None  # the arrival before: what comes in one block has no order in time
        self.live = False
        self.gone = False
        self.deleted_s: float | None = None  # when it was first asked to end, by the server's clock
        self.ended = asyncio.Event()  # its trial

    def take(self, pod: PodObject, arrived_s: float, live: bool, gone: bool = False) -> None:
        """`arrived_s` is wall time."""
        self.pod, self.live, self.gone = pod, live, gone
        if self.deleted_s is None:
            self.deleted_s = pod.deleted_s
        if self.arrived_s is not None and self.arrived_s < arrived_s:
            self.before_s = self.arrived_s
        reached = _reached(pod, gone)
        for stage, (stamp_s, source) in reached.items():
            if stage not in self.times:
                found = self._time(stage, stamp_s, source, arrived_s, live)
                self.times[stage] = found if live or stamp_s is not None else _before(found, reached)
        self.arrived_s = arrived_s
        if Stage.FINISHED in self.times:
            self.ended.set()

    def _time(self, stage: Stage, stamp_s: float | None, source: str, arrived_s: float, live: bool) -> StageTime:
        if live or stamp_s is None:
            stamped = stamp_s is not None and stamp_s <= arrived_s
            since_s = stamp_s if stamped else self.before_s
            return StageTime(stage, arrived_s, WATCH, arrived_s - since_s if since_s is not None else UNKNOWN_S)
        return StageTime(stage, min(stamp_s + HALF_S, arrived_s), source, HALF_S)


def _reached(pod: PodObject, gone: bool) -> dict[Stage, tuple[float | None, str]]:
    """The stages that it has come to, with the server's stamp and whose that is."""
    found: dict[Stage, tuple[float | None, str]] = {}
    found[Stage.QUEUED] = (epoch_s(pod.metadata.creation_timestamp), API_SERVER)
    if pod.spec.node_name:
        scheduled = pod.condition("PodScheduled")
        found[Stage.SCHEDULED] = (epoch_s(scheduled.last_transition_time) if scheduled else None, API_SERVER)
    state = pod.trial
    if pod.started:
        began = state.running or state.terminated
        found[Stage.STARTED] = (epoch_s(began.started_at) if began else None, KUBELET)
    if pod.ready:
        whole = pod.condition("Ready")  # of all its containers: there is no stamp for one of them
        found[Stage.READY] = (epoch_s(whole.last_transition_time) if whole else None, KUBELET)
    if state.terminated is not None:
        found[Stage.FINISHED] = (epoch_s(state.terminated.finished_at), KUBELET)
    elif gone or pod.phase_ended:
        disruption = pod.condition("DisruptionTarget")
        found[Stage.FINISHED] = (epoch_s(disruption.last_transition_time) if disruption else None, API_SERVER)
    return found


def _before(found: StageTime, reached: dict[Stage, tuple[float | None, str]]) -> StageTime:
    """One without a stamp, found late, came at the latest when the next stage did, if that has one."""
    later = ORDER[ORDER.index(found.stage) + 1 :]
    stamps = [reached[stage][0] for stage in later if stage in reached]
    until_s = next((one + HALF_S for one in stamps if one is not None), None)
    if until_s is None or until_s >= found.wall_s:
        return found
    created_s = reached[Stage.QUEUED][0]
    off_s = max(HALF_S, until_s - created_s) if created_s is not None else found.uncertainty_s
    return StageTime(found.stage, until_s, API_SERVER, off_s)


def latest(times: list[StageTime]) -> StageTime:
    """Of several hosts: the stage is reached when the last of them has."""
    return max(times, key=lambda one: one.wall_s)
