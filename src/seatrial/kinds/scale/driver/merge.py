"""Merges the stamps of several load generators that loaded one cluster at the same time.

1. Every duration is measured with one load generator's own clock, so clocks need not agree: times are taken relative to
   the end of each load generator.
2. Stamps are merged, never quantiles: quantiles are Kaplan-Meier over all workloads, as if one load generator had
   created them all.
3. Offered and sent rates add up."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from seatrial.job.metric import FixedBound
from seatrial.kinds.scale.driver import stages
from seatrial.kinds.scale.driver.health import read_lines
from seatrial.kinds.scale.driver.plan import SubmissionPlan
from seatrial.kinds.scale.followed import DELTAS, next_stages
from seatrial.kinds.scale.work import (
    DELETED_FILE,
    STAMPS,
    SUBMITTED,
    Deletion,
    ScaleSummary,
    ScaleWork,
    StageMetrics,
    Stamp,
    Submission,
)


class Shard(msgspec.Struct, frozen=True):
    """The records of one load generator, by its own clock."""

    work: ScaleWork
    submissions: dict[int, Submission]  # of measured workloads
    stamps: list[Stamp]
    gone: dict[int, float]  # when churn deleted a workload
    end_s: float  # the latest of all these times


class Merged(msgspec.Struct, frozen=True):
    whole: ScaleSummary
    stages: list[StageMetrics]


def read_shard(files: Path, work: ScaleWork) -> Shard:
    """Reads the folder that a load generator wrote. Raises Unreadable."""
    plan = SubmissionPlan(work)
    measured = {one.number for one in (*plan.measured, *plan.churned)}
    written = stages.decoded(stages.whole_lines(files / SUBMITTED), Submission)
    submissions = {one.number: one for one in written if one.number in measured}
    deletions = list(stages.decoded(stages.whole_lines(files / DELETED_FILE), Deletion))
    stamps = stages.read_stamps(files / STAMPS)
    times = [one.acknowledged_s or one.sent_s or one.intended_s for one in submissions.values()]
    # Lines that are not stamps count, too: the lag was measured until the end.
    times += [one.at_s for one in read_lines(files / STAMPS)]
    end_s = max([*times, *(one.at_s for one in stamps)], default=0.0)
    gone = {one.number: one.intended_s for one in deletions if not one.problem}
    return Shard(work, submissions, stamps, gone, end_s)


def merge_shards(shards: Iterable[Shard], bounds: tuple[FixedBound, ...] = ()) -> Merged:
    """Merges one shard after the other, so that only one is in memory. Of the times between two stages, it computes
    those between neighbours and those with bounds. Raises ValueError for different `until` stages."""
    submissions: dict[int, Submission] = {}
    gone: dict[int, float] = {}
    reached = stages.Reached({}, set())
    rates, offered, numbers, planned, untils = [], [], 0, 0, set()
    for shard in shards:
        plan, own, end_s = SubmissionPlan(shard.work), shard.submissions, shard.end_s
        numbered = {number: numbers + place for place, number in enumerate(plan.all)}
        numbers += len(numbered)
        submissions |= {numbered[number]: _moved(one, end_s) for number, one in own.items()}
        gone |= {numbered[number]: at_s - end_s for number, at_s in shard.gone.items()}
        _add(reached, stages.reached_stages(own, shard.stamps, plan.pods()), numbered, end_s)
        rates.append(stages.rate_of(one.sent_s for one in own.values() if one.sent_s is not None))
        offered.append(stages.rate_of(one.intended_s for one in own.values()))
        planned += len(plan.measured) + len(plan.churned)
        untils.add(shard.work.until)
    if len(untils) != 1:
        raise ValueError(f"load generators use different `until` stages: {', '.join(sorted(untils)) or 'none'}")
    known = [stage for stage, times in reached.times.items() if times]
    between = {*next_stages(known), *(bound.metric for bound in bounds)}
    known += [delta for delta in DELTAS if delta in between and {*delta.split("..")} <= {*known}]
    metrics = [stages.stage_metrics(stage, submissions, reached, 0.0, 0.0, gone) for stage in known]
    deleted = [Deletion(number, at_s) for number, at_s in gone.items()]
    # The lags are not in these files: each load generator checked its own.
    judged = {"lag_p50_s": 0.0, "lag_p99_s": 0.0, "lags": 0, "again": False, "stopped": False}
    rated = {"rate": sum(filter(None, rates)) or None, "offered_rate": sum(filter(None, offered)) or None}
    whole = stages.summary_of(planned, submissions, reached, untils.pop(), deleted, (), **judged, **rated)
    lost = planned - len(submissions)
    return Merged(replace(whole, failed=whole.failed + lost, unfinished=whole.unfinished - lost), metrics)


def _add(whole: stages.Reached, one: stages.Reached, numbered: Mapping[int, int], end_s: float) -> None:
    """Adds what one load generator's workloads reached. Changes `whole`."""
    for stage, times in one.times.items():
        of = whole.times.setdefault(stage, {})
        for number, (earliest_s, latest_s) in times.items():
            if number in numbered:
                of[numbered[number]] = (earliest_s - end_s, latest_s - end_s)
    whole.failed.update(numbered[number] for number in one.failed if number in numbered)


def _moved(one: Submission, end_s: float) -> Submission:
    times = {"sent_s": one.sent_s, "acknowledged_s": one.acknowledged_s}
    known = {name: at_s - end_s for name, at_s in times.items() if at_s is not None}
    return replace(one, intended_s=one.intended_s - end_s, **known)
