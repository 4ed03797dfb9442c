"""The stamps of several drivers that loaded one cluster side by side, as those of one.

1. Every duration is of one driver's own clock, from when it meant to send to when it saw. So their clocks need not
   agree: each driver's times are taken relative to when it stopped looking.
2. What is merged are stamps, never quantiles: those of the whole are Kaplan and Meier's over all workloads, as if one
   driver had made them all.
3. Offered and sent rates of drivers that ran at the same time add up."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from seatrial.kinds.scale.driver import stages
from seatrial.kinds.scale.driver.health import read_lines
from seatrial.kinds.scale.driver.plan import SubmissionPlan
from seatrial.kinds.scale.work import (
    DELETED_FILE,
    STAMPS,
    SUBMITTED,
    Deletion,
    ScaleWork,
    StageMetrics,
    Stamp,
    Submission,
    WholeScale,
)


class Shard(msgspec.Struct, frozen=True):
    """What one driver wrote, by its own clock."""

    work: ScaleWork
    submissions: dict[int, Submission]  # that were to be measured
    stamps: list[Stamp]
    gone: dict[int, float]  # when churn deleted a workload
    end_s: float  # the last time of all of these


class Merged(msgspec.Struct, frozen=True):
    whole: WholeScale
    stages: list[StageMetrics]


def read_shard(files: Path, work: ScaleWork) -> Shard:
    """`files` is the folder that a driver wrote its files into. Raises Unreadable."""
    plan = SubmissionPlan(work)
    measured = {one.number for one in (*plan.measured, *plan.churned)}
    written = stages.decoded(stages.whole_lines(files / SUBMITTED), Submission)
    submissions = {one.number: one for one in written if one.number in measured}
    deletions = list(stages.decoded(stages.whole_lines(files / DELETED_FILE), Deletion))
    stamps = stages.read_stamps(files / STAMPS)
    times = [one.acknowledged_s or one.sent_s or one.intended_s for one in submissions.values()]
    # Also of what is no stage: how late the watch is was measured until it ended.
    times += [one.at_s for one in read_lines(files / STAMPS)]
    end_s = max([*times, *(one.at_s for one in stamps)], default=0.0)
    gone = {one.number: one.intended_s for one in deletions if not one.problem}
    return Shard(work, submissions, stamps, gone, end_s)


def merge_shards(shards: Iterable[Shard]) -> Merged:
    """One after the other, so that the stamps of one alone are in memory. Raises ValueError for drivers that were to
    bring their workloads to different stages."""
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
        raise ValueError(f"they were to come to different stages: {', '.join(sorted(untils)) or 'there are none'}")
    known = [stage for stage, times in reached.times.items() if times]
    metrics = [stages.stage_metrics(stage, submissions, reached, 0.0, 0.0, gone) for stage in known]
    deleted = [Deletion(number, at_s) for number, at_s in gone.items()]
    # How late the watches were is not in these files: each driver judged its own.
    judged = {"lag_p50_s": 0.0, "lag_p99_s": 0.0, "lags": 0, "again": False, "stopped": False}
    rated = {"rate": sum(filter(None, rates)) or None, "offered_rate": sum(filter(None, offered)) or None}
    whole = stages.whole_of(planned, submissions, reached, untils.pop(), deleted, **judged, **rated)
    return Merged(replace(whole, failed=whole.failed + planned - len(submissions)), metrics)


def _add(whole: stages.Reached, one: stages.Reached, numbered: Mapping[int, int], end_s: float) -> None:
    """What was reached by one driver's workloads, to that of all. Changes `whole`."""
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
