"""What would limit a trial before the cluster does, found in what a server says of itself."""

from typing import Any

import pytest

from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.driver.plan import SubmissionPlan
from seatrial.kinds.scale.driver.preflight import (
    Asked,
    asked_for,
    asked_of,
    client_limits,
    fairness_limits,
    node_limits,
    quota_limits,
    webhook_limits,
)
from seatrial.kinds.scale.work import Churn, ExtraWorkloads, ScaleWork, WorkloadClass
from seatrial.kubernetes import JOBS, PODS

ASKED = Asked({JOBS: 100}, 200, 200.0, {"cpu": 20.0, "memory": 2.0**30})


def job(gpus: int = 1) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"spec": {"template": {"spec": {"containers": [container, {"name": "plain"}]}}}}


def test_what_workloads_ask_for_is_counted_over_all_pods_and_classes() -> None:
    assert asked_for(job(2)["spec"]["template"]["spec"], 3) == (
        6.0,
        {"cpu": pytest.approx(0.3), "memory": 3 * 64 * 2**20},
    )
    classes = (WorkloadClass("a", (job(1),), 2), WorkloadClass("b", ({"spec": {"containers": [{"name": "x"}]}},)))
    plan = SubmissionPlan(ScaleWork("r", "c", 1, "p", classes, 50, Arrivals("rate", 1.0)))
    asked = asked_of(list(plan.all.values()), {"a": [JOBS], "b": [PODS]})
    assert asked.workloads[JOBS] + asked.workloads[PODS] == 50
    assert asked.pods == 2 * asked.workloads[JOBS] + asked.workloads[PODS]
    assert asked.gpus == 2 * asked.workloads[JOBS]


@pytest.mark.parametrize(
    ("hard", "used", "told"),
    [
        ({"count/jobs.batch": "100"}, {}, None),
        (
            {"count/jobs.batch": "100"},
            {"count/jobs.batch": "1"},
            "has 99 count/jobs.batch left; 100 requested",
        ),
        ({"pods": "199"}, {}, "has 199 pods left; 200 requested"),
        ({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "8"}, "has 0 requests.nvidia.com/gpu left"),
        ({"requests.cpu": "19500m"}, {}, "has 19.5 requests.cpu left; 20 requested"),
        ({"memory": "1Gi"}, {}, None),
        ({"count/secrets": "0"}, {}, None),
    ],
)
def test_a_quota_that_leaves_less_than_is_asked_for_is_told(
    hard: dict[str, str], used: dict[str, str], told: str | None
) -> None:
    found = quota_limits("quota q", {"hard": hard, "used": used}, ASKED)
    assert [one for one in found if told in one] == found if told else not found
    assert quota_limits("quota q", {}, ASKED) == []


def node(ready: str = "True", unschedulable: bool = False, **allocatable: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable}
    return {"spec": {"unschedulable": unschedulable}, "status": status}


def test_nodes_that_have_too_few_places_or_gpus_are_told() -> None:
    nodes = [node(pods="110", **{"nvidia.com/gpu": "8"}) for _ in range(2)]
    assert node_limits(nodes, 220, 16) == []
    assert node_limits(nodes, 221, 17) == [
        "2 nodes have room for 220 pods; 221 requested", "2 nodes have 16 GPUs; 17 requested",
    ]  # fmt: skip
    away = [node("False", pods="110"), node(unschedulable=True, pods="110"), {"spec": None, "status": None}]
    assert "none of 3 nodes is ready" in node_limits(away, 0, 0)[0]


def test_nodes_are_those_that_the_workloads_select() -> None:
    nodes = [{**node(pods="110", **{"nvidia.com/gpu": "8"}), "metadata": {"labels": {"pool": pool}}} for pool in "aab"]
    assert node_limits(nodes, 1, 16, (("pool", "a"),)) == []
    assert node_limits(nodes, 1, 17, (("pool", "a"),)) == ["2 nodes with pool=a have 16 GPUs; 17 requested"]
    assert node_limits(nodes, 1, 0, (("pool", "c"),))[0] == "none of 0 nodes with pool=c is ready and schedulable"


def test_churn_is_no_more_than_it_replaces_and_background_needs_no_node() -> None:
    on_a = job(1)
    on_a["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    work = ScaleWork(
        "r", "c", 1, "p", (WorkloadClass("a", (on_a,), 2),), 50, Arrivals("rate", 1.0), churn=Churn(30.0, 1.0),
        background=ExtraWorkloads(7, WorkloadClass("b", (job(64),))), fill=ExtraWorkloads(5),
    )  # fmt: skip
    asked = asked_of(list(SubmissionPlan(work).all.values()), {"a": [JOBS], "b": [JOBS]})
    assert (asked.workloads[JOBS], asked.pods) == (62, 117)
    assert asked.on_nodes == {(): (110, 110.0), (("pool", "a"),): (110, 110.0)}


def test_a_quota_counts_plain_pods_once() -> None:
    asked = Asked({PODS: 100}, 100, 0.0, {})
    assert quota_limits("quota q", {"hard": {"count/pods": "100", "pods": "100"}}, asked) == []


def test_webhooks_that_are_asked_for_each_workload_are_told_with_their_time() -> None:
    def hook(name: str, groups: list[str], resources: list[str], operation: str = "CREATE", **more: Any) -> Any:
        rule = {"apiGroups": groups, "resources": resources, "operations": [operation]}
        return {"name": name, "rules": [rule, rule], **more}

    hooks = [
        hook("pods", [""], ["pods"], timeoutSeconds=2),
        hook("all", ["*"], ["*/*"], failurePolicy="Ignore"),
        hook("other", ["apps"], ["deployments"]),
        hook("ends", ["batch"], ["jobs"], "DELETE"),
    ]
    assert webhook_limits(hooks, {JOBS, PODS}) == [
        "webhook pods is called for each workload; without an answer within 2 s, the request is rejected",
        "webhook all is called for each workload; without an answer within 10 s, the webhook is ignored",
    ]
    assert webhook_limits([], {JOBS}) == []
    many = [hook(f"{number}.kb.io", ["batch"], ["jobs"]) for number in range(4)]
    assert webhook_limits(many, {JOBS}) == [
        "4 webhooks (0.kb.io, 1.kb.io, 2.kb.io, …) are called for each workload; without an answer within 10 s, "
        "the request is rejected"
    ]


def test_the_seats_of_a_priority_level_and_the_clients_own_limits_are_told() -> None:
    levels: dict[str, Any] = {"workload-low": {"limited": {"nominalConcurrencyShares": 100}}, "exempt": {}}
    levels["system"] = {"limited": {"nominalConcurrencyShares": 30}}
    (told,) = fairness_limits(levels, "workload-low", 256)
    assert "100 of 130 concurrency shares" in told
    assert fairness_limits(levels, "exempt", 256) == fairness_limits({}, "workload-low", 256) == []
    assert client_limits(0.01, 100.0, 256) == client_limits(0.01, None, 1) == []
    assert "at most 25,600/s" not in "".join(client_limits(0.01, 2_000.0, 256))
    assert "one process makes about" in client_limits(0.01, 2_000.0, 256)[0]
    assert "allow at most 256/s; 300/s offered" in client_limits(1.0, 300.0, 256)[0]


@pytest.mark.parametrize(
    ("arrivals", "peak"),
    [
        (Arrivals("rate", 5.0), 5.0),
        (Arrivals("ramp", 1.0, 9.0), 9.0),
        (Arrivals("steps", rates=(3.0, 2.0)), 3.0),
        (Arrivals("burst", burst=10), None),
    ],
)
def test_the_highest_rate_that_is_offered(arrivals: Arrivals, peak: float | None) -> None:
    assert arrivals.peak == peak
