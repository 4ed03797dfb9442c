"""Several drivers side by side are one whole: in counts, and in every quantile."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from seatrial.job import Finding, Verdict
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.driver.durations import stage_metrics, timeline_of
from seatrial.kinds.scale.driver.merge import Shard, merge_shards, read_shard
from seatrial.kinds.scale.driver.stages import reached_stages
from seatrial.kinds.scale.followed import DECIDED, FINISHED, FIRST_POD_CREATED, POD_CREATED, SCHEDULED, STARTED
from seatrial.kinds.scale.model import parse_scale_bound
from seatrial.kinds.scale.work import STAMPS, SUBMITTED, ScaleWork, Stamp, Submission, WorkloadClass
from world import World

PODS, COUNT, SHARDS = 2, 400, 4
WORK = ScaleWork(
    "run", "cell", 1, "p", (WorkloadClass("job", (), pods=PODS),), COUNT, Arrivals("rate", rate=10.0), until=STARTED
)


def one_whole(seed: int) -> tuple[dict[int, Submission], list[Stamp]]:
    """Some never made, some stuck, some seen late, by one clock that ends at 0."""
    chance = random.Random(seed)
    submissions, stamps = {}, []
    for number in range(COUNT):
        at_s = -100.0 + number / 10
        made = chance.random() > 0.02
        submissions[number] = Submission(number, at_s, at_s + 0.001, at_s + 0.01 if made else None, 1)
        reached_s = at_s
        for stage in (POD_CREATED, SCHEDULED, STARTED) if made else ():
            reached_s += chance.expovariate(0.5)
            for pod in range(PODS):
                since_s = reached_s - 0.5 if chance.random() < 0.05 else None
                if reached_s < 0 and chance.random() > 0.03:
                    stamps.append(Stamp(number, f"{number}-{pod}", stage, reached_s, since_s))
    return submissions, stamps


def shard_of(which: int, submissions: dict[int, Submission], stamps: list[Stamp]) -> Shard:
    """Every fourth workload, numbered anew, by a clock of its own."""
    clock_s = 1e6 * which + 0.25
    mine = {number: number // SHARDS for number in submissions if number % SHARDS == which}
    moved = {
        mine[one.number]: replace(
            one,
            number=mine[one.number],
            intended_s=one.intended_s + clock_s,
            sent_s=None if one.sent_s is None else one.sent_s + clock_s,
            acknowledged_s=None if one.acknowledged_s is None else one.acknowledged_s + clock_s,
        )
        for one in submissions.values()
        if one.number in mine
    }
    seen = [
        replace(
            one,
            workload=mine[one.workload],
            at_s=one.at_s + clock_s,
            since_s=None if one.since_s is None else one.since_s + clock_s,
        )
        for one in stamps
        if one.workload in mine
    ]
    return Shard(replace(WORK, count=COUNT // SHARDS), moved, seen, {}, clock_s)


@pytest.mark.parametrize("seed", range(5))
def test_four_drivers_with_clocks_of_their_own_give_the_metrics_of_one(seed: int) -> None:
    submissions, stamps = one_whole(seed)
    reached = reached_stages(submissions, stamps, dict.fromkeys(range(COUNT), PODS))
    bounds = tuple(parse_scale_bound(f"{delta}.p99", "1s") for delta in ("created..scheduled", "pod_created..started"))
    merged = merge_shards((shard_of(which, submissions, stamps) for which in range(SHARDS)), bounds)
    of_pods = {FIRST_POD_CREATED, POD_CREATED, DECIDED, SCHEDULED, STARTED}
    assert {one.stage for one in merged.stages if ".." not in one.stage} == {"created", *of_pods}
    assert {"created..scheduled", "pod_created..started"} <= {one.stage for one in merged.stages}
    for metrics in merged.stages:
        whole = stage_metrics(metrics.stage, timeline_of(submissions, reached, 0.0))
        counts = (metrics.count, metrics.reached, metrics.unfinished, metrics.censored)
        assert counts == (whole.count, whole.reached, whole.unfinished, whole.censored)
        for mine, its in zip(metrics.quantiles, whole.quantiles, strict=True):
            for have, want in ((mine.value, its.value), (mine.lower, its.lower), (mine.upper, its.upper)):
                assert have == (want if want is None else pytest.approx(want, abs=1e-6))
    assert merged.whole.count == COUNT
    assert merged.whole.failed == sum(one.acknowledged_s is None for one in submissions.values())
    assert merged.whole.offered_rate == pytest.approx(10.0, rel=1e-3)


def test_what_a_driver_never_came_to_send_is_failed(tmp_path: Path) -> None:
    lines = [Submission(number, 1.0, 1.0, 1.1, 1) for number in range(3)]
    (tmp_path / SUBMITTED).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines) + b'{"numb')
    (tmp_path / STAMPS).write_bytes(msgspec.json.encode(Stamp(0, "a", STARTED, 9.0)) + b"\n")
    with open(tmp_path / STAMPS, "ab") as file:
        file.write(b'{"canary":"1-7","at_s":61.0}\n{"canary":"1-8","at')
    alone = replace(WORK, count=5, classes=(WorkloadClass("job", (), pods=1),))
    merged = merge_shards([read_shard(tmp_path, alone)])
    (started,) = [one for one in merged.stages if one.stage == STARTED]
    assert (started.quantiles[-1].value, started.quantiles[-1].lower) == (None, 60.0)  # to the watch's last word
    assert (merged.whole.count, merged.whole.submitted, merged.whole.failed, merged.whole.unfinished) == (5, 3, 2, 2)


def test_times_too_far_apart_are_refused() -> None:
    submissions = {0: Submission(0, -1e308, 1.0, 1e308, 1)}
    with pytest.raises(ValueError, match="finite"):
        merge_shards([Shard(replace(WORK, count=1), submissions, [], {}, 1e308)])


def test_drivers_with_different_ends_are_no_whole() -> None:
    with pytest.raises(ValueError, match="different `until` stages: ready, started"):
        merge_shards([Shard(WORK, {}, [], {}, 0.0), Shard(replace(WORK, until="ready"), {}, [], {}, 0.0)])


SUITE = """
name: scale
trials:
  part:
    kind: scale
    target: here
    matrix: {shard: [1, 2, 3, 4]}
    workloads:
      single: {kind: job, command: [sleep, "0.05"], weight: 4}
      gang: {kind: job, pods: 3, command: [sleep, "0.05"]}
    local: {places: 4}
    count: 10
    arrivals: {rate: 20/s}
    until: finished
    bounds: {finished.p99: 10m}
"""


def assert_gangs_are_whole(world: World) -> None:
    """All pods of a gang are of the driver that made it, and none is any other's."""
    pods: list[tuple[str, str]] = []
    for files in world.run().path.glob("cells/*/1/driver/files"):
        of = {one["number"]: one["of"] for one in read(files / "submitted.jsonl")}
        finished = [one for one in read(files / "stamps.jsonl") if one["stage"] == FINISHED]
        counted = Counter(one["workload"] for one in finished)
        assert counted == {number: 3 if name == "gang" else 1 for number, name in of.items()}
        assert "gang" in of.values()
        pods += [(files.parts[-4], one["pod"]) for one in finished]
    assert len(pods) == len(set(pods))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_four_drivers_of_a_run_are_merged_and_judged(world: World) -> None:
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", "--parallel", "4", check=None)
    told = json.loads(world.seatrial("scale", "merge", "last", "--json", "--bound", "finished.p99=10m").stdout)
    stages = {one["stage"]: one for one in told["stages"]}
    assert told["drivers"] == 4
    assert (told["whole"]["count"], told["whole"]["submitted"], told["whole"]["unfinished"]) == (40, 40, 0)
    assert (stages["finished"]["count"], stages["finished"]["reached"]) == (40, 40)
    assert told["broken"] == []
    assert_gangs_are_whole(world)
    late = world.seatrial("scale", "merge", "last", "--bound", "finished.p50=1ms", check=1).stdout
    assert "4 load generators: 40 of 40 workloads created" in late
    assert "broken: finished.p50" in late
    one = json.loads(world.seatrial("scale", "merge", "last", "--json", "--select", "shard=2").stdout)
    assert (one["drivers"], one["whole"]["count"]) == (1, 10)
    assert (
        "unknown metric 'soon.p99'"
        in world.seatrial("scale", "merge", "last", "--bound", "soon.p99=1s", check=2).stderr
    )
    results = world.results()
    bad = Finding("driver", "measurement", Verdict.INVALID, "measurement", "the watch saw changes late")
    spoilt = replace(results.cells[0], findings=[bad])
    world.run().write_results(replace(results, cells=[spoilt, *results.cells[1:]]))
    told_late = world.seatrial("scale", "merge", "last", check=1).stdout
    assert "unreliable: part[shard=1]: the watch saw changes late" in told_late
    files = world.run().path / "cells" / results.cells[3].hash / "1" / "driver" / "files"
    few = (files / "submitted.jsonl").read_text().splitlines(keepends=True)[:-2]
    (files / "submitted.jsonl").write_text("".join(few))
    told_few = world.seatrial("scale", "merge", "last", "--select", "shard=4", check=1).stdout
    assert "broken: failed is 2, bound 0" in told_few
    with open(files / "stamps.jsonl", "a") as stamps:
        stamps.write('{"workload":1,"pod":"a","stage":"thawed","at_s":1.0}\n')
    assert "unknown stage 'thawed'" in world.seatrial("scale", "merge", "last", check=2).stderr
