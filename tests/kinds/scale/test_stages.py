"""What is made of stamps: every workload counts, also one that was never made, never got there, or was not seen."""

import math
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from seatrial.job import Unreadable
from seatrial.kinds.scale.driver.durations import lag_bounds, stage_metrics, timeline_of
from seatrial.kinds.scale.driver.stages import StageTracker, reached_stages, read_stamps, summary_of
from seatrial.kinds.scale.followed import (
    ADMITTED,
    CREATED,
    DECIDED,
    EVICTED,
    FINISHED,
    FIRST_POD_CREATED,
    POD_CREATED,
    SCHEDULED,
    STARTED,
    UNSCHEDULABLE,
)
from seatrial.kinds.scale.work import StageMetrics, Stamp, Submission


def sent(number: int, at_s: float = 100.0) -> Submission:
    return Submission(number, at_s, at_s + 0.01, at_s + 0.02, 1)


def test_durations_begin_when_a_workload_was_meant_to_be_sent() -> None:
    submissions = {0: Submission(0, 100.0, 103.0, 104.0, 1)}
    reached = reached_stages(submissions, [Stamp(0, "a", SCHEDULED, 110.0)], pods={})
    assert stage_metrics(SCHEDULED, timeline_of(submissions, reached, 120.0)).quantiles[0].value == 10.0
    assert stage_metrics(CREATED, timeline_of(submissions, reached, 120.0)).quantiles[0].value == 4.0


def test_what_has_not_come_to_a_stage_is_counted_and_moves_its_quantiles() -> None:
    submissions = {number: sent(number) for number in range(10)}
    stamps = [Stamp(number, f"p{number}", SCHEDULED, 101.0) for number in range(6)]
    metrics = stage_metrics(SCHEDULED, timeline_of(submissions, reached_stages(submissions, stamps, {}), 160.0))
    assert (metrics.count, metrics.reached, metrics.unfinished) == (10, 6, 4)
    p50, p90, *_ = metrics.quantiles
    assert p50.value == 1.0
    assert (p90.value, p90.lower) == (None, 60.0)


def test_of_several_pods_the_last_counts_and_of_no_room_the_first() -> None:
    submissions = {0: sent(0)}
    stamps = [
        Stamp(0, "a", UNSCHEDULABLE, 101.0),
        Stamp(0, "a", SCHEDULED, 105.0),
        Stamp(0, "b", SCHEDULED, 102.0),
        Stamp(0, "b", STARTED, 103.0),
    ]
    times = reached_stages(submissions, stamps, pods={0: 2}).times
    assert times[UNSCHEDULABLE] == {0: (101.0, 101.0)}
    assert times[SCHEDULED] == {0: (105.0, 105.0)}
    assert times[STARTED] == {}


def test_what_was_reached_while_the_watch_was_blind_counts_from_the_later_end() -> None:
    submissions = {0: sent(0), 1: sent(1)}
    stamps = [Stamp(0, "a", SCHEDULED, 130.0, since_s=110.0), Stamp(1, "b", SCHEDULED, 101.0)]
    metrics = stage_metrics(SCHEDULED, timeline_of(submissions, reached_stages(submissions, stamps, {}), 140.0))
    assert metrics.censored == 1
    assert (metrics.quantiles[-1].value, metrics.quantiles[-1].earliest) == (30.0, 10.0)


def test_times_between_two_stages_are_of_each_workload_and_what_was_not_seen_is_a_range() -> None:
    submissions = {number: sent(number, 100.0 + number) for number in range(5)}  # each created 0.02 s later
    stamps = [Stamp(0, "a", SCHEDULED, 101.02), Stamp(1, "b", SCHEDULED, 104.02)]
    stamps += [Stamp(0, "a", STARTED, 103.02), Stamp(1, "b", STARTED, 109.02, since_s=105.02)]
    stamps.append(Stamp(2, "c", SCHEDULED, 103.02))  # and never started
    stamps.append(Stamp(3, "d", STARTED, 104.0))  # and never seen scheduled
    reached = reached_stages(submissions, stamps, {})
    made = stage_metrics("created..scheduled", timeline_of(submissions, reached, 160.0))
    assert (made.count, made.reached, made.unfinished, made.censored) == (5, 3, 2, 0)
    assert made.quantiles[0].value == pytest.approx(3.0), "1, 1 and 3 s, and two that wait"
    begun = stage_metrics("scheduled..started", timeline_of(submissions, reached, 160.0))
    assert (begun.reached, begun.unfinished, begun.censored, begun.curve) == (2, 3, 1, [])
    both = {number: submissions[number] for number in (0, 1)}
    (p50, *_, p99) = stage_metrics("scheduled..started", timeline_of(both, reached, 160.0)).quantiles
    assert (p50.value, p99.value, p99.earliest) == pytest.approx((2.0, 5.0, 2.0))


def test_two_lives_of_a_watch_may_both_have_seen_a_stage_and_the_first_counts() -> None:
    stamps = [Stamp(0, "a", SCHEDULED, 101.0), Stamp(0, "a", SCHEDULED, 150.0, since_s=101.0)]
    assert reached_stages({0: sent(0)}, stamps, {}).times[SCHEDULED] == {0: (101.0, 101.0)}


def test_never_made_and_failed_are_both_failures() -> None:
    submissions = {0: sent(0), 1: Submission(1, 100.0, 100.0, None, 3, (429, 429, 403), "quota"), 2: sent(2)}
    stamps = [Stamp(2, "c", FINISHED, 105.0, failed=True), Stamp(9, "d", FINISHED, 105.0, failed=True)]
    reached = reached_stages(submissions, stamps, {})
    whole = summary_of(3, submissions, reached, FINISHED, ())
    assert (whole.submitted, whole.failed, whole.problems) == (2, 2, ["quota"]), "workload 9 is of another phase"
    assert whole.unfinished == 1, "a failure counts once"
    stage = stage_metrics(STARTED, timeline_of(submissions, reached, 160.0))
    assert (stage.failed, stage.unfinished) == (whole.failed, whole.unfinished)


def test_a_file_of_stamps_that_grows_is_read_once_and_a_torn_line_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "stamps"
    arrived = StageTracker(path, STARTED, pods={7: 2})
    assert arrived.look() == set()
    lines = [msgspec.json.encode(Stamp(7, pod, STARTED, 1.0)) for pod in ("a", "b")]
    path.write_bytes(b'{"canary":"1","at_s":1.0}\n' + lines[0] + b"\n" + lines[1][:9])
    assert arrived.look() == set()
    assert [stamp.pod for stamp in read_stamps(path)] == ["a"]
    with open(path, "ab") as file:
        file.write(lines[1][9:] + b"\n\xff{broken\n")
    assert arrived.look() == {7}
    assert [stamp.pod for stamp in read_stamps(path)] == ["a", "b"]


def test_of_a_stage_that_one_object_is_enough_for_the_first_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "stamps"
    path.write_bytes(msgspec.json.encode(Stamp(7, "queued", ADMITTED, 1.0)) + b"\n")
    assert StageTracker(path, ADMITTED, pods={7: 8}).look() == {7}
    assert StageTracker(path, ADMITTED, pods={7: 0}).look() == {7}


def test_a_stage_that_this_version_does_not_know_is_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stamps.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(Stamp(7, "a", stage, 1.0)) + b"\n" for stage in (STARTED, "thawed")))
    with pytest.raises(Unreadable, match=r"stamps\.jsonl: unknown stage 'thawed'"):
        read_stamps(path)


def test_the_scheduler_decides_when_a_pod_has_a_place_or_is_told_that_there_is_none() -> None:
    submissions = {0: sent(0), 1: sent(1), 2: sent(2)}
    stamps = [
        Stamp(0, "a", POD_CREATED, 100.5), Stamp(0, "b", POD_CREATED, 100.7),
        Stamp(0, "a", UNSCHEDULABLE, 101.0), Stamp(0, "a", SCHEDULED, 109.0), Stamp(0, "b", SCHEDULED, 102.0),
        Stamp(1, "c", SCHEDULED, 103.0),
    ]  # fmt: skip
    times = reached_stages(submissions, stamps, {0: 2, 1: 2}).times
    assert times[DECIDED] == {0: (102.0, 102.0)}, "of 1 a second pod is not decided, of 2 none"
    assert times[FIRST_POD_CREATED] == {0: (100.5, 100.5)}
    assert times[POD_CREATED] == {0: (100.7, 100.7)}


def test_who_evicted_pods_is_counted_and_an_event_says_more_than_a_condition() -> None:
    stamps = [
        Stamp(0, "a", EVICTED, 101.0, by="PreemptionByScheduler"),
        Stamp(0, "a", EVICTED, 101.1, by="big-gang", kind="Event"),
        Stamp(1, "b", EVICTED, 102.0, by="PreemptionByScheduler"),
    ]
    reached = reached_stages({0: sent(0), 1: sent(1)}, stamps, {})
    assert reached.evicted_by == {"big-gang": 1, "PreemptionByScheduler": 1}
    assert reached.times[EVICTED] == {0: (101.0, 101.0), 1: (102.0, 102.0)}


def trial_with_lag(seed: int, rate: float, lag_s: float) -> tuple[StageMetrics, list[float]]:
    """A simulated trial: what the watch measured with its canary, and the true quantiles. Events arrive in the order
    in which they were committed, each some lag after it, which changes over time."""
    chance = random.Random(seed)
    count, span_s = 300, 300 / rate
    levels = [lag_s * math.exp(chance.gauss(0, 1)) for _ in range(int(span_s) + 60)]
    made = {number: Submission(number, number / rate, number / rate, number / rate, 1) for number in range(count)}
    true = {number: number / rate + lag_s + chance.expovariate(1 / (0.02 + 2 * lag_s)) for number in made}
    commits: list[tuple[float, int, float]] = [(at_s, number, 0.0) for number, at_s in true.items()]
    sent_s = 0.0
    while sent_s < span_s + 20 * lag_s + 1:
        commits.append((committed_s := sent_s + chance.expovariate(1 / (0.002 + lag_s)), -1, sent_s))
        sent_s = committed_s + chance.expovariate(1 / (0.002 + lag_s)) + 0.2
    arrived_s, stamps, lags = 0.0, list[Stamp](), list[tuple[float, float]]()
    for at_s, number, sent_s in sorted(commits):
        late_s = levels[min(int(at_s), len(levels) - 1)] * chance.uniform(0.5, 1.5)
        arrived_s = max(arrived_s, at_s + late_s)
        if number < 0:
            lags.append((arrived_s, arrived_s - sent_s))
        else:
            stamps.append(Stamp(number, str(number), SCHEDULED, arrived_s))
    metrics = stage_metrics(SCHEDULED, timeline_of(made, reached_stages(made, stamps, {}), 1e6), lags=lags)
    exact = [Stamp(number, str(number), SCHEDULED, at_s) for number, at_s in true.items()]
    known = stage_metrics(SCHEDULED, timeline_of(made, reached_stages(made, exact, {}), 1e6))
    return metrics, [one.value or 0.0 for one in known.quantiles]


@pytest.mark.parametrize(("rate", "lag_s"), [(10, 0.001), (20, 0.005), (40, 0.05), (80, 0.3), (150, 1.0)])
def test_the_stated_error_of_each_quantile_covers_the_true_one(rate: float, lag_s: float) -> None:
    """In at least 95 % of trials. On clusters: bench/error.py."""
    covered: dict[str, list[bool]] = {}
    stated, off = [], []
    for seed in range(60):
        metrics, true = trial_with_lag(seed, rate, lag_s)
        for found, true_s in zip(metrics.quantiles, true, strict=True):
            assert found.value is not None
            assert found.error_s is not None
            covered.setdefault(found.name, []).append(abs(found.value - true_s) <= found.error_s)
            stated.append(found.error_s)
            off.append(abs(found.value - true_s))
    assert {name: sum(one) / len(one) >= 0.95 for name, one in covered.items()} == dict.fromkeys(covered, True)
    assert sum(stated) < 8 * sum(off), "and is not much too large"


def test_the_lag_at_a_time_is_the_longest_of_the_four_measurements_around_it_if_they_are_near() -> None:
    lags = [(1.0, 0.1), (2.0, 0.5), (3.0, 0.2), (4.0, 0.3), (5.0, 0.0), (9.0, 2.0)]
    assert lag_bounds(lags, [0.0, 1.5, 2.5, 4.5]).tolist() == [0.5, 0.5, 0.5, 2.0]
    assert lag_bounds(lags, [8.0, 8.5, 20.0]).tolist() == [3.0, 3.5, 13.0], "since the last change was sent"
    created = stage_metrics(CREATED, timeline_of({0: sent(0)}, reached_stages({0: sent(0)}, [], {}), 160.0), lags=lags)
    assert {one.error_s for one in created.quantiles} == {None}, "the watch does not measure it"


def test_numpy_is_not_loaded_while_workloads_are_sent_and_watched() -> None:
    program = "import sys, seatrial.kinds.scale.driver.watch; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
