"""Computes metrics from stamps: the duration to each stage, and counts of unknown durations.

Durations start at the scheduled send and use one clock, so a late load generator or server makes them longer, never
shorter. A workload that has not reached a stage when the watch ends counts as right-censored. One that reached it in a
gap of the watch counts with the later end of the gap, and is counted as censored."""

import contextlib
import math
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
from seatrial.kinds.scale.work import Deletion, ScaleSummary, StageMetrics, StageQuantile, Stamp, Submission
from seatrial.stats.censored import quantiles

EVENT = "Event"
_SHARES = (0.5, 0.9, 0.95, 0.99)
STAMP_START = b'{"workload"'
MOST_PROBLEMS = 5
_POINTS = 200  # per curve, for reports
_NEVER = (math.inf, math.inf)
_latest = itemgetter(1)  # the later end of a range

_T = TypeVar("_T")


class StageTracker:
    """Tracks which workloads have reached a stage, reading only new lines of the stamps file."""

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
    """Reads all stamps; an incomplete line is left out. Raises Unreadable for an unknown stage."""
    stamps = list(decoded(_of_stamps(whole_lines(path)), Stamp))
    if unknown := {stamp.stage for stamp in stamps} - {*STAGES}:
        raise Unreadable(f"{path}: unknown stage {min(unknown)[:40]!r}; the file is damaged or from a newer Seatrial")
    return stamps


def _of_stamps(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (line for line in lines if line.startswith(STAMP_START))  # the canary's lines have another format


def whole_lines(path: Path) -> list[bytes]:
    """All lines except an incomplete last one, left by a writer that was killed."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().split(b"\n")[:-1]
    return []


def decoded(lines: Iterable[bytes], form: type[_T]) -> Iterator[_T]:
    """Decodes the lines; unreadable ones are left out."""
    for line in lines:
        try:
            made = decode(line, form)
        except Unreadable:
            continue
        yield made


class Reached(msgspec.Struct, frozen=True):
    """When each workload reached each stage: (earliest, latest) by number."""

    times: dict[str, dict[int, tuple[float, float]]]
    failed: set[int]  # workloads with a failed pod
    evicted_by: dict[str, int] = {}  # cause -> number of pods


def reached_stages(submissions: Mapping[int, Submission], stamps: Iterable[Stamp], pods: Mapping[int, int]) -> Reached:
    """When each workload reached each stage: by its last pod, or its first where one is enough."""
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
        if stamp.stage == EVICTED and (stamp.kind == EVENT or stamp.pod not in evictors):  # an event has more detail
            evictors[stamp.pod] = stamp.by or "unknown"
    times: dict[str, dict[int, tuple[float, float]]] = {stage: {} for stage in STAGES}
    for (workload, stage), of in list(by_pod.items()):
        if stage in (SCHEDULED, UNSCHEDULABLE):  # the scheduler's first decision on each pod
            first = by_pod.setdefault((workload, DECIDED), {})
            for pod, seen in of.items():
                if pod not in first or seen[1] < first[pod][1]:
                    first[pod] = seen
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
    """How many objects must reach a stage before their workload has."""
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
    """`end_s` is when the watch ended, `gone` when churn deleted a workload, `lag_s` the p99 lag of the watch. Of two
    stages, a workload that never reached the first is unfinished."""
    since, _, then = stage.rpartition("..")
    times, begun = reached.times[then], reached.times.get(since)
    durations, ended, ranges, failed = list[float](), list[bool](), dict[int, float](), 0
    for number, one in submissions.items():
        first, last = (one.intended_s, one.intended_s) if begun is None else begun.get(number, _NEVER)
        seen = times.get(number) if first < math.inf else None
        latest = seen[1] if seen else gone.get(number, end_s)
        if seen is None:
            failed += one.acknowledged_s is None or number in reached.failed
        elif seen[0] < seen[1] or first < last:
            ranges[len(durations)] = max(seen[0] - last, 0.0)
        durations.append(max(latest - first, 0.0))
        ended.append(seen is not None)
    done = sum(ended)
    early: list[float | None] = [None] * len(_SHARES)
    if ranges:
        earliest = [ranges.get(place, duration) for place, duration in enumerate(durations)]
        early = [one.value for one in quantiles(earliest, ended, _SHARES)]
    found = zip(quantiles(durations, ended, _SHARES), early, strict=True)
    return StageMetrics(
        stage=stage,
        count=len(durations),
        reached=done,
        unfinished=len(durations) - done - failed,
        failed=failed,
        censored=len(ranges),
        quantiles=[StageQuantile(one.share, one.value, one.lower, one.upper, early_s) for one, early_s in found],
        curve=[] if since else _curve(durations, ended),
        source="acknowledged" if stage == CREATED else source,
        resolution_s=0.0 if stage == CREATED else lag_s,
        of=of,
    )


def summary_of(
    count: int,
    submissions: Mapping[int, Submission],
    reached: Reached,
    until: str,
    deletions: Iterable[Deletion],
    outages: Sequence[tuple[float, float]],
    **known: Any,
) -> ScaleSummary:
    """Totals of `count` workloads with the goal `until`. `known` are the remaining fields: rates, and how it was
    measured."""
    every, deletions = submissions.values(), list(deletions)
    never_made = {number for number, one in submissions.items() if one.acknowledged_s is None}
    gone = {one.number for one in deletions if not one.problem}
    failed = never_made | (reached.failed & submissions.keys())  # other phases are not measured
    return ScaleSummary(
        count=count,
        submitted=len(submissions) - len(never_made),
        failed=len(failed),
        unfinished=count - len(failed | ({*reached.times[until], *gone} & submissions.keys())),
        refused=sum(len(one.refusals) for one in every),
        problems=sorted({*(one.problem for one in every), *(one.problem for one in deletions)} - {""})[:MOST_PROBLEMS],
        late_p99_s=share_of(lateness(every, outages), 0.99),
        unreachable_s=sum(until_s - from_s for from_s, until_s in outages),
        deleted=len(gone),
        not_deleted=len(deletions) - len(gone),
        waited_s=sum(one.waited_s for one in every),
        **known,
    )


def rate_of(times: Iterable[float]) -> float | None:
    """Events per second from the first to the last; None if that is no time span."""
    found = sorted(times)
    return (len(found) - 1) / (found[-1] - found[0]) if len(found) > 1 and found[-1] > found[0] else None


def lateness(submissions: Iterable[Submission], outages: Sequence[tuple[float, float]] = ()) -> list[float]:
    """Delay of each send after its scheduled time, without times in which the server gave no answer, sorted."""
    late = []
    for one in submissions:
        if one.sent_s is not None:
            lost = (min(one.sent_s, until_s) - max(one.intended_s, from_s) for from_s, until_s in outages)
            late.append(max(one.sent_s - one.intended_s - sum(max(one_s, 0.0) for one_s in lost), 0.0))
    return sorted(late)


def share_of(values: Sequence[float], share: float) -> float:
    """The quantile of complete data; 0 without values."""
    return float(np.quantile(values, share, method="higher")) if values else 0.0


def _curve(durations: list[float], ended: list[bool]) -> list[tuple[float, float]]:
    times = sorted(time for time, done in zip(durations, ended, strict=True) if done)
    step = max(1, len(times) // _POINTS)
    chosen = [*range(0, len(times), step), len(times) - 1] if times else []
    return [(round(times[at], 6), (at + 1) / len(durations)) for at in sorted(set(chosen))]
