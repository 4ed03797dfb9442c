"""Four drivers side by side on a real API server, a namespace each, merged afterwards."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import ScaleWorld
from seatrial.kinds.scale.followed import SCHEDULED
from targets.kubernetes.on_cluster import namespace_of

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(1200)
DRIVERS, EACH = 4, 25


def test_four_drivers_are_one_whole_in_counts_and_quantiles(scale: ScaleWorld) -> None:
    with ExitStack() as stack:
        namespaces = [stack.enter_context(namespace_of(scale.cluster)) for _ in range(DRIVERS)]
        mix = {"single": {"kind": "job", "gpus": 1}, "gang": {"kind": "job", "pods": 2, "gpus": 1}}
        shared = {"workloads": mix, "count": EACH, "arrivals": {"rate": 5}, "bounds": {"scheduled.p99": "10m"}}
        scale.trials(**{f"part{place}": {**shared, "namespaces": [name]} for place, name in enumerate(namespaces)})
        scale.seatrial("run", "suite.yaml", "--parallel", str(DRIVERS))
        told = json.loads(scale.seatrial("scale", "merge", "last", "--json").stdout)
    assert told["drivers"] == DRIVERS
    whole, stages = told["whole"], {one["stage"]: one for one in told["stages"]}
    assert (whole["count"], whole["submitted"], whole["failed"], whole["unfinished"]) == (100, 100, 0, 0)
    durations = scheduled_durations(scale)
    assert len(durations) == stages[SCHEDULED]["reached"] == stages[SCHEDULED]["count"] == 100
    assert gangs_of(scale) > 0
    for quantile in stages[SCHEDULED]["quantiles"]:
        expected = np.quantile(durations, quantile["share"], method="inverted_cdf")
        assert quantile["value"] == pytest.approx(expected, abs=1e-6)
    scale.assert_nothing_left()


def scheduled_durations(scale: ScaleWorld) -> list[float]:
    """Of each workload that of its last pod. Read from what the drivers wrote, without Seatrial."""
    found = []
    for submitted, stamps in shards(scale):
        last: dict[int, float] = {}
        for one in stamps:
            if one.get("stage") == SCHEDULED:
                last[one["workload"]] = max(last.get(one["workload"], 0.0), one["at_s"])
        found += [last[one["number"]] - one["intended_s"] for one in submitted]
    return found


def gangs_of(scale: ScaleWorld) -> int:
    """How many there are; every one has all of its pods with the driver that made it, and no pod is seen by two."""
    gangs, pods = 0, []
    for submitted, stamps in shards(scale):
        scheduled = [one for one in stamps if one.get("stage") == SCHEDULED]
        wanted = {one["number"]: 2 if one["of"] == "gang" else 1 for one in submitted}
        assert Counter(one["workload"] for one in scheduled) == wanted
        gangs += sum(count == 2 for count in wanted.values())
        pods += [one["pod"] for one in scheduled]
    assert len(pods) == len(set(pods))
    return gangs


def shards(scale: ScaleWorld) -> Iterator[tuple[list[Any], list[Any]]]:
    for files in scale.run().path.glob("cells/*/1/driver/files"):
        submitted, stamps = [
            [json.loads(line) for line in (files / name).read_text().splitlines()]
            for name in ("submitted.jsonl", "stamps.jsonl")
        ]
        yield submitted, stamps
