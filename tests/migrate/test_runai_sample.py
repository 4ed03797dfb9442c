"""What a sample makes of the objects of a namespace of Run:ai."""

from typing import Any

import msgspec
import pytest

from seatrial.migrate.runai.files import SampledWorkload
from seatrial.migrate.runai.sample import EventObject, NamespaceSnapshot, evictor_of, names_within, sampled

AT = "2026-05-04T10:00:{:02d}Z"


def meta(name: str, second: int = 0, **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": "runai-team", "uid": f"uid-{name}", "creationTimestamp": AT.format(second),
            "labels": {key.replace("_", "/"): value for key, value in labels.items()}}  # fmt: skip


def pod(name: str, second: int, decision: tuple[str, str, int] | None, **labels: str) -> dict[str, Any]:
    conditions = []
    if decision:
        status, reason, at = decision
        conditions = [{"type": "PodScheduled", "status": status, "reason": reason, "lastTransitionTime": AT.format(at)}]
    return {"metadata": meta(name, second, **labels), "status": {"conditions": conditions}}


def event(reason: str, involved: str, second: int, message: str = "", name: str = "e", **more: Any) -> dict[str, Any]:
    annotations = more.pop("annotations", {})
    return {"metadata": {"name": name, "annotations": annotations}, "reason": reason, "message": message,
            "firstTimestamp": AT.format(second), "involvedObject": {"name": involved, "uid": f"uid-{involved}"},
            **more}  # fmt: skip


def sample(**objects: list[Any]) -> dict[str, SampledWorkload]:
    empty: dict[str, Any] = {name: [] for name in ("workloads", "jobs", "pods", "groups", "events")}
    seen = msgspec.convert({**empty, **objects, "at": AT.format(59)}, NamespaceSnapshot)
    return {one.job_name: one for one in sampled(seen)}


def workload(name: str, second: int = 1) -> dict[str, Any]:
    return {"metadata": meta(f"{name}-2026", second), "spec": {"name": {"value": name}}}


def test_a_workload_that_got_nothing_yet_is_there() -> None:
    assert sample(workloads=[workload("j-1")])["j-1"] == SampledWorkload(
        "j-1", "runai-team", "team", AT.format(1), sampled_timestamp=AT.format(59)
    )


def test_what_the_control_plane_knows_is_joined_by_name_and_nothing_is_put_in_its_place() -> None:
    empty: dict[str, Any] = {name: [] for name in ("jobs", "pods", "groups", "events")}
    seen = {**empty, "workloads": [workload("j-1"), workload("j-2")], "at": AT.format(59), "backend": {"j-2": "then"}}
    found = [one.backend_job_created_timestamp for one in sampled(msgspec.convert(seen, NamespaceSnapshot))]
    assert found == [None, "then"]


def test_the_times_of_all_its_objects_are_joined_and_foreign_pods_are_nobodys() -> None:
    found = sample(
        workloads=[workload("j-1")],
        jobs=[{"metadata": meta("j-1", 2)}, {"metadata": meta("other", 9)}],
        pods=[
            pod("a", 3, ("True", "", 8), release="j-1"),
            pod("b", 5, ("True", "", 7), release="j-1"),
            {"metadata": {"name": "foreign", "creationTimestamp": AT.format(1)}},
        ],
        groups=[{"metadata": meta("pg-1", 6, release="j-1")}],
    )["j-1"]
    times = (
        found.job_created_timestamp, found.first_pod_created_timestamp, found.last_pod_created_timestamp,
        found.pod_group_created_timestamp, found.pod_scheduling_decision_timestamp,
    )  # fmt: skip
    assert times == tuple(AT.format(second) for second in (2, 3, 5, 6, 8))
    assert found.pod_scheduling_decision == "scheduled"


@pytest.mark.parametrize("label", ["release", "job-name", "training.kubeflow.org_job-name"])
def test_pods_belong_to_their_workload_by_any_of_three_labels(label: str) -> None:
    pods = [pod("a", 3, None, **{label: "j-1"})]
    assert sample(workloads=[workload("j-1")], pods=pods)["j-1"].first_pod_created_timestamp == AT.format(3)


def test_a_gang_is_decided_when_its_last_pod_is_and_what_fits_nowhere_is_told_apart() -> None:
    placed, none = ("True", "", 5), ("False", "Unschedulable", 9)
    waiting = sample(workloads=[workload("g")], pods=[pod("a", 1, placed, release="g"), pod("b", 1, None, release="g")])
    assert waiting["g"].pod_scheduling_decision_timestamp is None
    full = sample(workloads=[workload("g")], pods=[pod("a", 1, placed, release="g"), pod("b", 1, none, release="g")])
    assert (full["g"].pod_scheduling_decision_timestamp, full["g"].pod_scheduling_decision) == (
        AT.format(9),
        "unschedulable",
    )


def test_a_decision_has_the_microseconds_of_the_schedulers_own_event() -> None:
    pods = [pod("a", 1, ("True", "", 8), release="j-1")]
    exact = AT.format(8).replace("Z", ".123456Z")
    events = [
        event("FailedScheduling", "a", 3, eventTime=AT.format(3).replace("Z", ".5Z")),
        event("Scheduled", "a", 8, eventTime=exact),
    ]
    assert (
        sample(workloads=[workload("j-1")], pods=pods, events=events)["j-1"].pod_scheduling_decision_timestamp == exact
    )


def test_the_name_of_an_event_has_nanoseconds_when_it_agrees_with_its_time() -> None:
    at_ns = 1_777_888_800_250_000_000
    first = "2026-05-04T10:00:00Z"
    told = msgspec.convert(event("Evict", "pg", 0, name=f"pg-1.{at_ns:x}") | {"firstTimestamp": first}, EventObject)
    assert told.at == "2026-05-04T10:00:00.250000+00:00"
    later = msgspec.convert(event("Evict", "pg", 0, name=f"pg-1.{at_ns + 10**12:x}"), EventObject)
    assert later.at == AT.format(0)


@pytest.mark.parametrize(
    ("message", "annotations", "evictor"),
    [
        ("x was preempted by higher priority job runai-team/pg-high-0", {}, "pg-high-0"),
        ("x was reclaimed by job runai-team/pg-high-0.", {}, "pg-high-0"),
        ("x was preempted by higher priority workload runai-team/pg-high-0", {}, "pg-high-0"),
        ("x was preempted by workload runai-team/pg-high-0. It is gone", {}, "pg-high-0"),
        ("in other words", {"evictor-pod-group-name": "pg-high-0"}, "pg-high-0"),
        ("x was preempted by job a/pg-low-0", {"evictor-pod-group-name": "pg-high-0"}, "pg-high-0"),
        ("gone", {}, ""),
    ],
)
def test_who_evicted_is_read_from_annotations_and_from_older_words(
    message: str, annotations: dict[str, str], evictor: str
) -> None:
    told = event("Evict", "pg-low-0", 7, message, annotations=annotations)
    assert evictor_of(msgspec.convert(told, EventObject)) == evictor
    groups = [{"metadata": meta("pg-high-0", 2, release="high")}, {"metadata": meta("pg-low-0", 2, release="low")}]
    found = sample(workloads=[workload("high"), workload("low")], groups=groups, events=[told])
    assert found["high"].first_eviction_timestamp == (AT.format(7) if evictor else None)
    assert found["low"].first_eviction_timestamp is None


def test_of_several_events_of_a_volume_the_first_counts() -> None:
    reasons = ("ExternalProvisioning", "ProvisioningSucceeded")
    events = [
        event(reason, "pvc-new-0-j-1a2b3c", second + place)
        for second in (5, 3, 8)
        for place, reason in enumerate(reasons)
    ]
    groups = [{"metadata": meta("pg", 2, release="j-1a2b3c")}]
    found = sample(workloads=[workload("j-1a2b3c")], groups=groups, events=events)["j-1a2b3c"]
    assert (found.first_pvc_bind_request_timestamp, found.first_pvc_bind_timestamp) == (AT.format(3), AT.format(4))


def test_a_workload_is_found_in_the_names_of_what_is_made_for_it() -> None:
    assert "j-1a2b3c" in list(names_within("pvc-new-0-j-1a2b3c"))
    assert "j-1a2b3" not in list(names_within("pvc-new-0-j-1a2b3c"))
