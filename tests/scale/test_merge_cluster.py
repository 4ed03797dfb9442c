"""Four drivers side by side on a real API server, a namespace each, merged afterwards."""

import json
from contextlib import ExitStack

import numpy as np
import pytest

from cluster.fixtures import cluster
from scale.scale_world import ScaleWorld
from seatrial.job.followed import SCHEDULED
from target.kubernetes.on_cluster import namespace_of

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(1200)
DRIVERS, EACH = 4, 25


def test_four_drivers_are_one_whole_in_counts_and_quantiles(scale: ScaleWorld) -> None:
    with ExitStack() as stack:
        namespaces = [stack.enter_context(namespace_of(scale.cluster)) for _ in range(DRIVERS)]
        shared = {"count": EACH, "arrivals": {"rate": 5}, "bounds": {"scheduled.p99": "10m"}}
        scale.trials(**{f"part{place}": {**shared, "namespaces": [name]} for place, name in enumerate(namespaces)})
        scale.seatrial("run", "suite.yaml", "--parallel", str(DRIVERS))
        told = json.loads(scale.seatrial("scale", "merge", "last", "--json").stdout)
    assert told["drivers"] == DRIVERS
    whole, stages = told["whole"], {one["stage"]: one for one in told["stages"]}
    assert (whole["count"], whole["submitted"], whole["failed"], whole["unfinished"]) == (100, 100, 0, 0)
    durations = scheduled_durations(scale)
    assert len(durations) == stages[SCHEDULED]["reached"] == stages[SCHEDULED]["count"] == 100
    for quantile in stages[SCHEDULED]["quantiles"]:
        expected = np.quantile(durations, quantile["share"], method="inverted_cdf")
        assert quantile["value"] == pytest.approx(expected, abs=1e-6)
    scale.assert_nothing_left()


def scheduled_durations(scale: ScaleWorld) -> list[float]:
    """Read from what the drivers wrote, without Seatrial."""
    found = []
    for files in scale.run().path.glob("cells/*/1/driver/files"):
        lines = [json.loads(line) for line in (files / "submitted.jsonl").read_text().splitlines()]
        intended = {one["number"]: one["intended_s"] for one in lines}
        stamps = [json.loads(line) for line in (files / "stamps.jsonl").read_text().splitlines()]
        found += [one["at_s"] - intended[one["workload"]] for one in stamps if one.get("stage") == SCHEDULED]
    return found
