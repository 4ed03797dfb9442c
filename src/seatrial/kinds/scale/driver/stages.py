"""Computes metrics from stamps: the duration to each stage, and counts of unknown durations.

Durations start at the scheduled send and use one clock, so a late load generator or server makes them longer, never
shorter. A workload that has not reached a stage when the watch ends counts as right-censored. One that reached it in a
gap of the watch counts with the later end of the gap, and is counted as censored."""

import contextlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

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
_SPARSE_S = 1.0  # between two measurements of the lag
_NEVER = (math.inf, math.inf)
_latest = itemgetter(1)  # the later end of a range

_T = TypeVar("_T")
_Floats = NDArray[np.float64]


class StageTracker:
    """Tracks which workloads have reached a stage, reading only new lines of the stamps file."""

    def __init__(self, path: Path, stage: str, pods: Mapping[int, int]) -> None:
        self._path, self._stage, self._pods = path, stage, pods
        self._read_bytes = 0
        self._of: dict[int, tuple[set[str], set[str]]] = {}  # objects that reached it, and all that are expected to
        self._there: set[int] = set()

    def look(self) -> set[int]:
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
            self._read_bytes += len(whole) + 1 if whole else 0
            for stamp in decoded(whole.split(b"\n"), Stamp):
                pods = self._pods.get(stamp.workload, 1)
                is_pod = stamp.stage == followed.POD_CREATED and not pods and self._stage in followed.OF_PODS
                if stamp.stage != self._stage and not is_pod:
                    continue
                of, expected = self._of.setdefault(stamp.workload, (set(), set()))
                expected.add(stamp.pod)
                if stamp.stage == self._stage and not stamp.pending:
                    of.add(stamp.pod)
                is_there = len(of) >= _needed(self._stage, expected, pods)
                (self._there.add if is_there else self._there.discard)(stamp.workload)
        return self._there


def read_stamps(path: Path) -> list[Stamp]:
    """Reads all stamps. Raises Unreadable for an unknown stage."""
    stamps = read_records(path, Stamp)
    if unknown := {stamp.stage for stamp in stamps} - {*STAGES}:
        raise Unreadable(f"{path}: unknown stage {min(unknown)[:40]!r}; the file is damaged or from a newer Seatrial")
    return stamps


def read_records(path: Path, form: type[_T]) -> list[_T]:
    """The records of this form in the file; an incomplete last line, left by a writer that was killed, is left out."""
    return list(decoded(whole_lines(path), form))


def whole_lines(path: Path) -> list[bytes]:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().split(b"\n")[:-1]
    return []


def decoded(lines: Iterable[bytes], form: type[_T]) -> Iterator[_T]:
    """Decodes the lines; unreadable ones, and those of another form, are left out."""
    for line in lines:
        with contextlib.suppress(Unreadable):
            yield decode(line, form)


class Reached(msgspec.Struct, frozen=True):
    """When each workload reached each stage: (earliest, latest) by number."""

    times: dict[str, dict[int, tuple[float, float]]]
    failed: set[int]  # workloads with a failed pod
    evicted_by: dict[str, int] = {}  # cause -> number of pods


def reached_stages(submissions: Mapping[int, Submission], stamps: Iterable[Stamp], pods: Mapping[int, int]) -> Reached:
    """When each workload reached each stage: by its last pod, or its first where one is enough."""
    seen: dict[str, dict[int, dict[str, tuple[float, float]]]] = {stage: {} for stage in STAGES}  # by workload and pod
    pending: dict[tuple[int, str], set[str]] = {}  # objects that exist and have not reached the stage
    failed = set()
    evictors: dict[str, str] = {}
    for stamp in stamps:
        if stamp.pending:
            pending.setdefault((stamp.workload, stamp.stage), set()).add(stamp.pod)
            continue
        times = (stamp.at_s if stamp.since_s is None else stamp.since_s, stamp.at_s)
        for stage in (stamp.stage, DECIDED) if stamp.stage in (SCHEDULED, UNSCHEDULABLE) else (stamp.stage,):
            of = seen[stage].setdefault(stamp.workload, {})
            if stamp.pod not in of or times[1] < of[stamp.pod][1]:
                of[stamp.pod] = times
        if stamp.failed:
            failed.add(stamp.workload)
        if stamp.stage == EVICTED and (stamp.kind == EVENT or stamp.pod not in evictors):  # an event has more detail
            evictors[stamp.pod] = stamp.by or "unknown"
    reached: dict[str, dict[int, tuple[float, float]]] = {stage: {} for stage in STAGES}
    for stage, workloads in seen.items():
        for workload, of in workloads.items():
            expected: Set[str] = of.keys()
            count = pods.get(workload, 1)
            if not count and stage in followed.OF_PODS:
                expected |= seen[followed.POD_CREATED].get(workload, {}).keys()
            elif (workload, stage) in pending:
                expected |= pending[workload, stage]
            if len(of) >= (needed := _needed(stage, expected, count)):
                reached[stage][workload] = sorted(of.values(), key=_latest)[needed - 1]
            if stage == followed.POD_CREATED:
                reached[followed.FIRST_POD_CREATED][workload] = min(of.values(), key=_latest)
    for number, one in submissions.items():
        if one.acknowledged_s is not None:
            reached[CREATED][number] = (one.acknowledged_s, one.acknowledged_s)
    return Reached(reached, failed, dict(Counter(evictors.values())))


def _needed(stage: str, expected: Collection[str], pods: int) -> int:
    """How many objects must reach a stage before their workload has. `expected` exist so far; `pods` is 0 if their
    number is not known."""
    if stage in followed.OF_PODS:
        return pods or max(len(expected), 1)
    return len(expected) if stage in followed.OF_ALL else 1


class Timeline(msgspec.Struct, frozen=True):
    """When workloads reached their stages: one place of each array per workload."""

    planned_s: _Floats  # when each was to be sent
    end_s: _Floats  # when the watch ended, or churn deleted it
    failed: NDArray[np.bool_]
    reached: dict[str, _Floats]  # by stage: a row of earliest and one of latest times, infinite if not reached

    def at(self, stage: str) -> _Floats:
        return self.reached.get(stage, np.full((2, len(self.planned_s)), math.inf))


# Damaged records may have any times; `quantiles` refuses durations that are not finite.
_any_time = np.errstate(over="ignore", invalid="ignore")


@_any_time
def timeline_of(
    submissions: Mapping[int, Submission],
    reached: Reached,
    end_s: float,
    gone: Mapping[int, float] = MappingProxyType({}),
    zero_s: float = 0.0,
) -> Timeline:
    """`end_s` is when the watch ended, `gone` when churn deleted a workload. Times are since `zero_s`."""
    return Timeline(
        np.array([one.intended_s for one in submissions.values()]) - zero_s,
        np.array([gone.get(number, end_s) for number in submissions]) - zero_s,
        np.array([one.acknowledged_s is None or one.number in reached.failed for one in submissions.values()], bool),
        {
            stage: np.array([times.get(number, _NEVER) for number in submissions]).reshape(-1, 2).T - zero_s
            for stage, times in reached.times.items()
            if times
        },
    )


def joined(timelines: Sequence[Timeline]) -> Timeline:
    """All workloads of these timelines, with times since the same zero."""
    stages = {stage for one in timelines for stage in one.reached}
    return Timeline(
        np.concatenate([one.planned_s for one in timelines]),
        np.concatenate([one.end_s for one in timelines]),
        np.concatenate([one.failed for one in timelines]),
        {stage: np.hstack([one.at(stage) for one in timelines]) for stage in stages},
    )


@_any_time
def stage_metrics(
    stage: str,
    timeline: Timeline,
    lag_s: float = 0.0,
    of: str = "",
    source: str = "watch",
    lags: Sequence[tuple[float, float]] = (),
) -> StageMetrics:
    """`lag_s` is the p99 lag of the watch, `lags` its lag at several times. Of two stages, a workload that never
    reached the first is unfinished."""
    since, _, then = stage.rpartition("..")
    begun_s, begun_at_latest_s = timeline.at(since) if since else (timeline.planned_s,) * 2
    seen_s, seen_at_latest_s = timeline.at(then)
    ended = (begun_s < math.inf) & (seen_s < math.inf)
    until_s = np.where(ended, seen_at_latest_s, timeline.end_s)
    durations = np.maximum(until_s - begun_s, 0.0)
    vague = ended & ((seen_s < seen_at_latest_s) | (begun_s < begun_at_latest_s))
    early: list[float | None] = [None] * len(_SHARES)
    if vague.any():
        shortest = np.where(vague, seen_s, math.inf) - np.where(vague, begun_at_latest_s, 0.0)
        early = [one.value for one in quantiles(np.where(vague, np.maximum(shortest, 0.0), durations), ended, _SHARES)]
    whole, errors = quantiles(durations, ended, _SHARES), list[float | None]([None] * len(_SHARES))
    if lags and source == "watch" and stage != CREATED:
        late = lag_bounds(lags, until_s)
        if since not in ("", CREATED):
            from_s = np.where(begun_at_latest_s < math.inf, begun_at_latest_s, until_s)
            late = np.maximum(late, lag_bounds(lags, from_s))
        exact = quantiles(np.maximum(durations - np.where(ended, late, 0.0), 0.0), ended, _SHARES)
        errors = [
            None if one.value is None else one.value - (at.value or 0.0) for one, at in zip(whole, exact, strict=True)
        ]
    done, failed = int(ended.sum()), int((timeline.failed & ~ended).sum())
    return StageMetrics(
        stage=stage,
        count=len(durations),
        reached=done,
        unfinished=len(durations) - done - failed,
        failed=failed,
        censored=int(vague.sum()),
        quantiles=[
            StageQuantile(one.share, one.value, one.lower, one.upper, *known)
            for one, *known in zip(whole, early, errors, strict=True)
        ],
        curve=[] if since else _curve(durations, ended),
        source="acknowledged" if stage == CREATED else source,
        resolution_s=0.0 if stage == CREATED else lag_s,
        of=of,
    )


def lag_bounds(lags: Sequence[tuple[float, float]], at_s: ArrayLike) -> _Floats:
    """How late the watch was at most at these times: the longest of the two measurements before and the two after. If
    these are far apart, the order of events tells: what was seen after a change was made after it was sent. Calibrated
    against the audit log: bench/error.py."""
    seen_s, late_s = np.array(sorted(lags)).T
    padded, times = np.pad(late_s, 2), np.asarray(at_s, dtype=np.float64)
    around = np.max([padded[place : place + len(late_s) + 1] for place in range(4)], axis=0)
    after = np.searchsorted(seen_s, times)
    before = np.maximum(after - 1, 0)
    apart_s = np.append(seen_s, math.inf)[after] - seen_s[before]
    since_sent = times - (seen_s - late_s)[before]
    far = np.where(apart_s > _SPARSE_S, since_sent, 0.0)
    return np.asarray(np.maximum(around[after], far), dtype=np.float64)


def summary_of(
    count: int,
    submissions: Mapping[int, Submission],
    reached: Reached,
    until: str,
    deletions: Iterable[Deletion],
    lags: Sequence[float] = (),
    **known: Any,
) -> ScaleSummary:
    """Totals of `count` workloads with the goal `until`. `lags` are those of the watch, `known` remaining fields."""
    every, deletions = submissions.values(), list(deletions)
    never_made = {number for number, one in submissions.items() if one.acknowledged_s is None}
    gone = {one.number for one in deletions if not one.problem}
    failed = never_made | (reached.failed & submissions.keys())  # other phases are not measured
    sent = [(one.sent_s, one.of) for one in every if one.sent_s is not None]
    return ScaleSummary(
        count=count,
        submitted=len(submissions) - len(never_made),
        failed=len(failed),
        unfinished=count - len(failed | ({*reached.times[until], *gone} & submissions.keys())),
        refused=sum(len(one.refusals) for one in every),
        problems=sorted({*(one.problem for one in every), *(one.problem for one in deletions)} - {""})[:MOST_PROBLEMS],
        rate=rate_of(sent_s for sent_s, _ in sent),
        offered_rate=rate_of(one.intended_s for one in every),
        late_p99_s=share_of([one.late_s for one in every], 0.99),
        lag_p50_s=share_of(lags, 0.5),
        lag_p99_s=share_of(lags, 0.99),
        lags=len(lags),
        deleted=len(gone),
        not_deleted=len(deletions) - len(gone),
        waited_s=sum(one.waited_s for one in every),
        mix=dict(sorted(Counter(of for _, of in sent).items())),
        **known,
    )


def rate_of(times: Iterable[float]) -> float | None:
    """Events per second from the first to the last; None if that is no time span."""
    found = sorted(times)
    return (len(found) - 1) / (found[-1] - found[0]) if len(found) > 1 and found[-1] > found[0] else None


def share_of(values: Sequence[float], share: float) -> float:
    """The quantile of complete data; 0 without values."""
    return float(np.quantile(values, share, method="higher")) if values else 0.0


def _curve(durations: _Floats, ended: NDArray[np.bool_]) -> list[tuple[float, float]]:
    times = np.sort(durations[ended])
    step = max(1, len(times) // _POINTS)
    chosen = sorted({*range(0, len(times), step), len(times) - 1}) if len(times) else []
    return [(round(float(times[at]), 6), (at + 1) / len(durations)) for at in chosen]
