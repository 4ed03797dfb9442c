"""The search for the limit on a real API server, whose scheduler binds a known number of pods per second."""

import json
import os
from collections import Counter

import pytest

from cluster.fixtures import cluster
from kinds.scale.scale_world import ScaleWorld
from kinds.scale.slow_scheduler import slow_pod, slow_scheduler
from kinds.scale.test_measuring_cluster import ROLE, account
from seatrial.job import Verdict
from seatrial.kinds.scale.driver import _LONGER

__all__ = ["cluster"]
EVERY = bool(os.environ.get("SEATRIAL_TEST_ALL"))
pytestmark = pytest.mark.timeout(1200)
RATE, COUNT = 10.0, 140


@pytest.mark.cluster
@pytest.mark.skipif(not EVERY, reason="a search of a dozen rates: minutes, with SEATRIAL_TEST_ALL=1")
def test_the_limit_of_a_throttled_scheduler_is_found_within_10_percent(scale: ScaleWorld) -> None:
    """No bound is ever broken: workloads pile up. Those of one rate are deleted before the next."""
    (scale.folder / "pod.yaml").write_text(json.dumps(slow_pod()))
    with slow_scheduler(scale.cluster, RATE):
        scale.trial(
            workload={"template": "pod.yaml", "pods": 1},
            count=COUNT,
            arrivals={"rate": 7},
            until="scheduled",
            find="limit",
            background={"count": 2},
        )
        scale.seatrial("run", "suite.yaml", check=None)
    found = scale.findings()["limit"]
    assert found.verdict is Verdict.PASSED, f"{found.message}\n{found.evidence}"
    assert scale.results().cells[0].metrics["limit"]["value"] == pytest.approx(RATE, rel=0.1)
    phases = Counter(one["phase"] for one in scale.submissions())
    assert phases.pop("background") == 2
    assert [*phases] == [f"round-{number}" for number in range(len(found.data["stages"]))]
    assert {*phases.values()} <= {COUNT, _LONGER * COUNT}
    scale.assert_nothing_left()


def test_the_preflight_of_a_search_checks_permissions_and_capacity(scale: ScaleWorld) -> None:
    scale.trial(find="limit", workload={"kind": "job", "gpus": 8}, count=130, arrivals={"rate": 500}, most="500/s",
                settle="1s")  # fmt: skip
    scale.seatrial("run", "suite.yaml", check=1)
    assert scale.findings()["preflight nodes"].message == "20 nodes have 160 GPUs; 1040 requested"
    scale.cluster.kubectl("-n", scale.namespace, "apply", "-f", "-", input=ROLE)
    account(scale, lambda token: {"token": token}, "--role=some")
    scale.seatrial("run", "suite.yaml", check=3)
    assert "missing permissions" in scale.findings()["driver"].message
    assert "deletecollection jobs.batch" in scale.findings()["driver"].message
    assert scale.submissions() == []
