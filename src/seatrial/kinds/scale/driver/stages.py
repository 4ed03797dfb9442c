"""From stamps to metrics: how long workloads took to each stage, with what is not known counted beside it.

Durations are from when a workload was meant to be sent, by the one clock of this machine: a generator or a server that
falls behind makes them longer, never shorter. A workload that has not reached a stage when the driver stops looking
counts as longer than that; one that reached it while the watch was blind counts from the later end, and is told."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np

from seatrial.job import Unreadable, decode
from seatrial.kinds.scale import followed
from seatrial.kinds.scale.followed import CREATED, DECIDED, EVICTED, SCHEDULED, STAGES, UNSCHEDULABLE
from seatrial.kinds.scale.work import Deletion, StageMetrics, StageQuantile, Stamp, Submission, WholeScale
from seatrial.stats.censored import quantiles

EVENT = "Event"
_SHARES = (0.5, 0.9, 0.95, 0.99)
STAMP_START = b'{"workload"'
MOST_PROBLEMS = 5
_POINTS = 200  # of a distribution, for a report
_latest = itemgetter(1)  # of the two ends of a time

_T = TypeVar("_T")


class Arrived:
    """Which workloads have come to a stage, from a file of stamps that grows: only what is new in it is read."""

    def __init__(self, path: Path, stage: str, pods: Mapping[int, int]) -> None:
        self._path, self._stage, self._pods = path, stage, pods
        self._read_bytes = 0
        self._of: dict[int, set[str]] = {}
        self._there: set[int] = set()

    def look(self) -> set[int]:
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
            self._read_bytes += len(whole) + 1 if whole else 0
            for stamp in decoded(_of_stamps(whole.split(b"\n")), Stamp):
                if stamp.stage == self._stage:
                    pods = self._of.setdefault(stamp.workload, set())
                    pods.add(stamp.pod)
                    if len(pods) >= _needed(self._stage, len(pods), self._pods.get(stamp.workload, 1)):
                        self._there.add(stamp.workload)
        return self._there


def read_stamps(path: Path) -> list[Stamp]:
    """All of a file of stamps; a line that is not whole is left out. Raises Unreadable for stages that this version
    does not know: what they say of a workload is not to be guessed."""
    stamps = list(decoded(_of_stamps(whole_lines(path)), Stamp))
    if unknown := {stamp.stage for stamp in stamps} - {*STAGES}:
        what = f"{sorted(unknown)[0][:40]!r} is no stage that this version knows"
        raise Unreadable(f"{path}: {what}: it is damaged, or of a newer Seatrial, which reads it")
    return stamps


def _of_stamps(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (line for line in lines if line.startswith(STAMP_START))  # the canary's lines are of another form


def whole_lines(path: Path) -> list[bytes]:
    """Without a last line that has no end: it was not whole when its writer was killed."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().split(b"\n")[:-1]
    return []


def decoded(lines: Iterable[bytes], form: type[_T]) -> Iterator[_T]:
    """What can be read of them."""
    for line in lines:
        with contextlib.suppress(Unreadable):
            yield decode(line, form)


class Reached(msgspec.Struct, frozen=True):
    """When each workload reached each stage: (earliest, latest) by number."""

    times: dict[str, dict[int, tuple[float, float]]]
    failed: set[int]  # a pod of theirs failed
    evicted_by: dict[str, int] = {}  # who, and how many pods


def reached_stages(submissions: Mapping[int, Submission], stamps: Iterable[Stamp], pods: Mapping[int, int]) -> Reached:
    """Of a workload with several pods the last pod counts; of what one is enough for, the first."""
    by_pod: dict[tuple[int, str], dict[str, tuple[float, float]]] = {}
    failed = set()
    evictors: dict[str, str] = {}
    for stamp in stamps:
        seen = (stamp.at_s if stamp.since_s is None else stamp.since_s, stamp.at_s)
        of = by_pod.setdefault((stamp.workload, stamp.stage), {})
        if stamp.pod not in of or seen[1] < of[stamp.pod][1]:
            of[stamp.pod] = seen
        if stamp.failed:
            failed.add(stamp.workload)
        if stamp.stage == EVICTED and (stamp.kind == EVENT or stamp.pod not in evictors):  # an event says more
            evictors[stamp.pod] = stamp.by or "nobody said"
    times: dict[str, dict[int, tuple[float, float]]] = {stage: {} for stage in STAGES}
    for (workload, stage), of in list(by_pod.items()):
        if stage in (SCHEDULED, UNSCHEDULABLE):  # of each pod the scheduler's first word: whether it has a place
            first = by_pod.setdefault((workload, DECIDED), {})
            for pod, seen in of.items():
                first[pod] = min(first.get(pod, seen), seen, key=_latest)
    for (workload, stage), of in by_pod.items():
        needed = _needed(stage, len(of), pods.get(workload, 1))
        if len(of) == 1 == needed:
            times[stage][workload] = next(iter(of.values()))
        elif len(of) >= needed:
            times[stage][workload] = sorted(of.values(), key=_latest)[needed - 1]
        if stage == followed.POD_CREATED:
            times[followed.FIRST_POD_CREATED][workload] = min(of.values(), key=_latest)
    for number, one in submissions.items():
        if one.acknowledged_s is not None:
            times[CREATED][number] = (one.acknowledged_s, one.acknowledged_s)
    return Reached(times, failed, dict(Counter(evictors.values())))


def _needed(stage: str, seen: int, pods: int) -> int:
    """How many objects must have reached a stage, so that their workload has."""
    if stage in followed.OF_PODS or stage == DECIDED:
        return pods
    return seen if stage == followed.CLAIM_BOUND else 1


def stage_metrics(
    stage: str,
    submissions: Mapping[int, Submission],
    reached: Reached,
    end_s: float,
    lag_s: float,
    gone: Mapping[int, float] = MappingProxyType({}),
    of: str = "",
    source: str = "watch",
) -> StageMetrics:
    """`end_s` is when the driver stopped looking, `gone` when it deleted some before; `lag_s` how late the watch was at
    worst, nearly always."""
    times = reached.times[stage]
    durations, ended, blind, failed = [], [], 0, 0
    for number, one in submissions.items():
        seen = times.get(number)
        latest = seen[1] if seen else gone.get(number, end_s)
        durations.append(max(latest - one.intended_s, 0.0))
        ended.append(seen is not None)
        blind += seen is not None and seen[0] < seen[1]
        failed += seen is None and (one.acknowledged_s is None or number in reached.failed)
    done = sum(ended)
    return StageMetrics(
        stage=stage,
        count=len(durations),
        reached=done,
        unfinished=len(durations) - done - failed,
        failed=failed,
        censored=blind,
        quantiles=[StageQuantile(*msgspec.structs.astuple(one)) for one in quantiles(durations, ended, _SHARES)],
        curve=_curve(durations, ended),
        source="acknowledged" if stage == CREATED else source,
        resolution_s=0.0 if stage == CREATED else lag_s,
        of=of,
    )


def whole_of(
    count: int,
    submissions: Mapping[int, Submission],
    reached: Reached,
    until: str,
    deletions: Iterable[Deletion],
    **known: Any,
) -> WholeScale:
    """What is known of `count` workloads that were to come to the stage `until`, some of which churn deleted. `known`:
    what these do not say, the rates and how it was measured."""
    every, deletions = submissions.values(), list(deletions)
    never_made = {number for number, one in submissions.items() if one.acknowledged_s is None}
    gone = {one.number for one in deletions if not one.problem}
    return WholeScale(
        count=count,
        submitted=len(submissions) - len(never_made),
        failed=len(never_made | (reached.failed & submissions.keys())),  # those of other phases are in no metric
        unfinished=count - len({*reached.times[until], *gone} & submissions.keys()),
        refused=sum(len(one.refusals) for one in every),
        problems=sorted({*(one.problem for one in every), *(one.problem for one in deletions)} - {""})[:MOST_PROBLEMS],
        late_p99_s=share_of(lateness(every), 0.99),
        deleted=len(gone),
        not_deleted=len(deletions) - len(gone),
        waited_s=sum(one.waited_s for one in every),
        **known,
    )


def rate_of(times: Iterable[float]) -> float | None:
    """A second, from the first to the last; None where that is no time."""
    found = sorted(times)
    return (len(found) - 1) / (found[-1] - found[0]) if len(found) > 1 and found[-1] > found[0] else None


def lateness(submissions: Iterable[Submission]) -> list[float]:
    """How long after its time each was sent."""
    return sorted(max(one.sent_s - one.intended_s, 0.0) for one in submissions if one.sent_s is not None)


def share_of(values: Sequence[float], share: float) -> float:
    """A plain quantile of what is all there; nothing has none, which is 0."""
    return float(np.quantile(values, share, method="higher")) if values else 0.0


def _curve(durations: list[float], ended: list[bool]) -> list[tuple[float, float]]:
    times = sorted(time for time, done in zip(durations, ended, strict=True) if done)
    step = max(1, len(times) // _POINTS)
    chosen = [*range(0, len(times), step), len(times) - 1] if times else []
    return [(round(times[at], 6), (at + 1) / len(durations)) for at in sorted(set(chosen))]
