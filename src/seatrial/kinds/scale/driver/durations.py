"""Computes metrics from stamps: the duration to each stage, and counts of unknown durations.

Durations start at the scheduled send and use one clock, so a late load generator or server makes them longer, never
shorter. A workload that has not reached a stage when the watch ends counts as right-censored. One that reached it in a
gap of the watch counts with the later end of the gap, and is counted as censored."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from seatrial.kinds.scale.driver.stages import Reached
from seatrial.kinds.scale.followed import CREATED
from seatrial.kinds.scale.work import StageMetrics, StageQuantile, Submission
from seatrial.stats.censored import quantiles

_SHARES = (0.5, 0.9, 0.95, 0.99)
_POINTS = 200  # per curve, for reports
_SPARSE_S = 1.0  # between two measurements of the lag
_NEVER = (math.inf, math.inf)
_Floats = NDArray[np.float64]


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


def _curve(durations: _Floats, ended: NDArray[np.bool_]) -> list[tuple[float, float]]:
    times = np.sort(durations[ended])
    step = max(1, len(times) // _POINTS)
    chosen = sorted({*range(0, len(times), step), len(times) - 1}) if len(times) else []
    return [(round(float(times[at]), 6), (at + 1) / len(durations)) for at in chosen]
