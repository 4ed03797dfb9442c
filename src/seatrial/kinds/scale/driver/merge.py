"""Merges the stamps of several load generators that loaded one cluster at the same time.

1. Every duration is measured with one load generator's own clock, so clocks need not agree: times are taken relative to
   the end of each load generator.
2. Stamps are merged, never quantiles: quantiles are Kaplan-Meier over all workloads, as if one load generator had
   created them all.
3. Offered and sent rates add up."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from seatrial.job.metric import FixedBound
from seatrial.kinds.scale import work as records
from seatrial.kinds.scale.driver import durations, stages
from seatrial.kinds.scale.driver.health import read_lines
from seatrial.kinds.scale.driver.plan import SubmissionPlan
from seatrial.kinds.scale.followed import DELTAS, STAGES, next_stages

_TOTALS = ("count", "submitted", "failed", "unfinished", "refused", "deleted", "not_deleted", "waited_s")


class Shard(msgspec.Struct, frozen=True):
    """The records of one load generator, by its own clock."""

    work: records.ScaleWork
    submissions: dict[int, records.Submission]  # of measured workloads
    stamps: list[records.Stamp]
    gone: dict[int, float]  # when churn deleted a workload
    end_s: float  # the latest of all these times


class Merged(msgspec.Struct, frozen=True):
    whole: records.ScaleSummary
    stages: list[records.StageMetrics]


def read_shard(files: Path, work: records.ScaleWork) -> Shard:
    """Reads the folder that a load generator wrote. Raises Unreadable."""
    plan, written = SubmissionPlan(work), stages.read_records(files / records.SUBMITTED, records.Submission)
    plan.adopt(written)
    measured = {one.number for one in (*plan.measured, *plan.later)}
    submissions = {one.number: one for one in written if one.number in measured}
    stamps = stages.read_stamps(files / records.STAMPS)
    times = [one.acknowledged_s or one.sent_s or one.intended_s for one in submissions.values()]
    # Lines that are not stamps count, too: the lag was measured until the end.
    times += [one.at_s for one in read_lines(files / records.STAMPS)]
    end_s = max([*times, *(one.at_s for one in stamps)], default=0.0)
    deletions = stages.read_records(files / records.DELETED_FILE, records.Deletion)
    return Shard(work, submissions, stamps, {one.number: one.intended_s for one in deletions if not one.problem}, end_s)


def merge_shards(shards: Iterable[Shard], bounds: tuple[FixedBound, ...] = ()) -> Merged:
    """Merges one shard after the other, so that only one is in memory. Of the times between two stages, it computes
    those between neighbours and those with bounds. Raises ValueError for different `until` stages."""
    timelines, wholes = list[durations.Timeline](), list[records.ScaleSummary]()
    late, untils = list[float](), set[str]()
    for shard in shards:
        plan, own = SubmissionPlan(shard.work), shard.submissions
        plan.adopt(own.values())
        reached = stages.reached_stages(own, shard.stamps, plan.pods())
        timelines.append(durations.timeline_of(own, reached, shard.end_s, shard.gone, zero_s=shard.end_s))
        planned, until = len(plan.measured) + len(plan.later), shard.work.until
        deleted = [records.Deletion(number, at_s) for number, at_s in shard.gone.items()]
        whole = stages.summary_of(planned, own, reached, until, deleted)  # each shard checked its own lags
        lost = planned - len(own)
        wholes.append(replace(whole, failed=whole.failed + lost, unfinished=whole.unfinished - lost))
        late += [one.late_s for one in own.values()]
        untils.add(until)
    if len(untils) != 1:
        raise ValueError(f"load generators use different `until` stages: {', '.join(sorted(untils)) or 'none'}")
    timeline = durations.joined(timelines)
    known = [stage for stage in STAGES if stage in timeline.reached]
    between = {*next_stages(known), *(bound.metric for bound in bounds)}
    known += [delta for delta in DELTAS if delta in between and {*delta.split("..")} <= {*known}]
    totals = {name: sum(getattr(one, name) for one in wholes) for name in _TOTALS}
    rates = {name: sum(getattr(one, name) or 0.0 for one in wholes) or None for name in ("rate", "offered_rate")}
    problems = sorted({problem for one in wholes for problem in one.problems})[: stages.MOST_PROBLEMS]
    whole = replace(wholes[0], problems=problems, mix={}, late_p99_s=stages.share_of(late, 0.99), **totals, **rates)
    return Merged(whole, [durations.stage_metrics(stage, timeline) for stage in known])
