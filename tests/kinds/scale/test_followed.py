"""Stages of objects of any kind, by rules that are data: what a watch gives, in JSON, becomes stamps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.kinds.scale.driver.stages import read_stamps
from seatrial.kinds.scale.driver.stamps import StampFeed, Stamps, form_of, value_at
from seatrial.kinds.scale.driver.watch import followed_on, pods_labelled
from seatrial.kinds.scale.followed import (
    Followed,
    ReachedWhen,
    follow_root,
    followed_pods,
    kinds_between,
    segments,
)
from seatrial.kinds.scale.model import FollowedKind, Workload
from seatrial.kinds.scale.work import Stamp
from seatrial.kinds.scale.workload import manifests_of
from seatrial.kubernetes import (
    ADDED,
    DELETED,
    EVENTS,
    JOBS,
    MODIFIED,
    PODS,
    SYNCED,
    VOLUME_CLAIMS,
    Resource,
    Right,
    UnknownKind,
    WatchEvent,
)
from seatrial.kubernetes.queries import decoder

PREFIX = "scale-1234abcd"
OWN = {"seatrial/run": "r", "seatrial/cell": "69b56f04", "seatrial/attempt": "1"}
KINDS = {(one.api_version.partition("/")[0], one.kind): one for one in kinds_between()}


class Watcher:
    """One watch after the other, as one process would see them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stamps.jsonl"
        self.stamps = Stamps(self.path, PREFIX, ",".join(f"{key}={value}" for key, value in OWN.items()))
        self.now_s = 100.0

    def feed(self, followed: Followed, is_root: bool = False, blind_s: float | None = None) -> Callable[..., None]:
        feed, form = (
            StampFeed(self.stamps, followed, is_root, blind_s),
            form_of(followed, annotated=followed.kind == "Pod"),
        )

        def give(found: dict[str, Any] | None, kind: str = ADDED, relisted: bool = False) -> None:
            self.now_s += 1
            made = None if found is None else decoder(form).decode(orjson.dumps(found))
            feed.take(WatchEvent(kind if found else SYNCED, made, self.now_s, relisted))

        return give

    def seen(self) -> list[Stamp]:
        return read_stamps(self.path)

    def stages(self) -> list[tuple[int, str]]:
        return [(one.workload, one.stage) for one in self.seen() if not one.pending]


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(tmp_path)


def ours(number: int) -> dict[str, str]:
    return {**OWN, "seatrial/workload": str(number)}


def thing(uid: str, *owners: str, name: str = "", labels: dict[str, str] | None = None, **rest: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": uid, "name": name or uid, "creationTimestamp": "2026-11-17T06:00:00Z"}
    if owners:
        metadata["ownerReferences"] = [{"uid": owner, "kind": "X", "name": "x"} for owner in owners]
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, **rest}


def pod(phase: str = "Pending", node: str = "", **conditions: Any) -> dict[str, Any]:
    listed = [{"type": name, **state} for name, state in conditions.items()]
    spec = {"containers": [{"name": "x"}], **({"nodeName": node} if node else {})}
    return thing("p", labels=ours(7), spec=spec, status={"phase": phase, "conditions": listed})


FALSE, TRUE = {"status": "False"}, {"status": "True", "lastTransitionTime": "2026-11-17T06:00:01Z"}


@pytest.mark.parametrize(
    ("given", "stages"),
    [
        (pod(), ["pod_created"]),
        (pod(PodScheduled={**FALSE, "reason": "SchedulingGated"}), ["pod_created"]),
        (pod(PodScheduled={**FALSE, "reason": "Unschedulable"}), ["pod_created", "unschedulable"]),
        (pod(node="n", PodScheduled=TRUE), ["pod_created", "scheduled"]),
        (pod("Running", "n", Ready=FALSE), ["pod_created", "scheduled", "started"]),
        (pod("Running", "n", Ready=TRUE), ["pod_created", "scheduled", "started", "ready"]),
        (pod("Succeeded", "n", Ready=FALSE), ["pod_created", "scheduled", "started", "finished"]),
        (pod("Failed", "n", DisruptionTarget={**TRUE, "reason": "PreemptionByScheduler"}),
         ["pod_created", "scheduled", "evicted", "started", "finished"]),
        ({"metadata": {"uid": "p", "labels": ours(7)}}, ["pod_created"]),
        ({**pod(), "status": None, "spec": None}, ["pod_created"]),
    ],
)  # fmt: skip
def test_the_stages_that_a_pod_shows(watcher: Watcher, given: dict[str, Any], stages: list[str]) -> None:
    give = watcher.feed(followed_pods(labelled=True))
    give(given)
    give(given, MODIFIED)
    assert watcher.stages() == [(7, stage) for stage in stages], "each once"
    failed = [one.failed for one in watcher.seen() if one.stage == "finished"]
    assert failed == ["evicted" in stages] * ("finished" in stages)


def test_a_stamp_has_what_its_writer_says_and_who_caused_it(watcher: Watcher) -> None:
    watcher.feed(followed_pods(labelled=True))(
        pod("Failed", "n", PodScheduled=TRUE, DisruptionTarget={**TRUE, "reason": "Eviction"})
    )
    seen = {one.stage: one for one in watcher.seen()}
    assert (seen["pod_created"].server, seen["scheduled"].server) == ("2026-11-17T06:00:00Z", "2026-11-17T06:00:01Z")
    assert seen["evicted"].by == "Eviction"


def test_objects_belong_to_a_workload_through_their_owners_whichever_watch_is_first(watcher: Watcher) -> None:
    """A pod whose job is not known yet, and a job whose workload is not, wait for them."""
    workloads = watcher.feed(follow_root("run.ai/v2alpha1", "TrainingWorkload"), is_root=True)
    jobs, groups = watcher.feed(KINDS["run.ai", "RunaiJob"]), watcher.feed(KINDS["scheduling.run.ai", "PodGroup"])
    pods = watcher.feed(followed_pods(labelled=False))
    pods(thing("pod", "job", spec={"nodeName": "n"}))
    groups(thing("group", "job"))
    jobs(thing("job", "workload"))
    assert watcher.seen() == []
    workloads(thing("workload", name=f"{PREFIX}-3", labels=ours(3)))
    assert sorted(watcher.stages()) == [(3, "group_created"), (3, "job_created"), (3, "pod_created"), (3, "scheduled")]
    assert {one.stage: one.at_s for one in watcher.seen()} == {
        "pod_created": 101, "scheduled": 101, "group_created": 102, "job_created": 103,
    }, "stamped when they arrived, not when their owner did"  # fmt: skip


@pytest.mark.parametrize("label", ["release", "job-name", "training.kubeflow.org/job-name", "workloadName"])
def test_objects_belong_to_a_workload_by_a_label_with_its_name(watcher: Watcher, label: str) -> None:
    watcher.feed(followed_pods(labelled=False))(thing("p", "unknown", labels={label: f"{PREFIX}-12"}))
    assert watcher.stages() == [(12, "pod_created")]


def test_foreign_objects_are_no_ones(watcher: Watcher) -> None:
    give = watcher.feed(followed_pods(labelled=False))
    for labels in (
        None,
        {"release": "else-12"},
        {"job-name": f"{PREFIX}-x"},
        {**OWN, "seatrial/workload": "x"},
        {"seatrial/workload": "7"},
    ):
        give(thing("p", "foreign", labels=labels))
        give(thing("q", labels=labels), DELETED)
    assert watcher.seen() == []


def test_what_another_attempt_made_in_the_same_namespace_is_none_of_ours(watcher: Watcher) -> None:
    """Whatever its number, its owners and its names: another cell of the run may be at work."""
    watcher.feed(follow_root("batch/v1", "Job"), is_root=True)(thing("w", name=f"{PREFIX}-7", labels=ours(7)))
    other = {**ours(7), "seatrial/cell": "00000000"}
    watcher.feed(followed_pods(labelled=False))(thing("p", "w", labels={**other, "job-name": f"{PREFIX}-7"}))
    watcher.feed(followed_pods(labelled=True))(thing("c", labels={**other, "seatrial/workload": "canary"}))
    assert watcher.path.read_bytes() == b""


def test_a_job_that_is_the_workload_itself_is_no_job_of_it(watcher: Watcher) -> None:
    jobs = watcher.feed(KINDS["batch", "Job"], is_root=True)
    jobs(thing("w", name=f"{PREFIX}-0", labels=ours(0)))
    assert watcher.seen() == []
    jobs(thing("inner", "w", name=f"{PREFIX}-0-workers-0"))
    assert watcher.stages() == [(0, "job_created")]


def test_an_event_says_who_evicted_by_annotation_by_object_or_by_its_message(watcher: Watcher) -> None:
    watcher.feed(followed_pods(labelled=True))(pod(node="n"))
    events = watcher.feed(KINDS["v1", "Event"])
    for number, (more, annotations) in enumerate([
        ({"message": "was preempted by higher priority workload ns/big", "related": {"name": "x"}},
         {"evictor-pod-group-name": "big", "evictor-action-type": "preempt"}),
        ({"message": "Preempted by pod 1-2-3 on node n", "related": {"kind": "Pod", "name": "urgent"}}, {}),
        ({"message": "was preempted by workload ns/other.", "related": None}, {}),
    ]):  # fmt: skip
        event = thing(f"e{number}", reason="Preempted", involvedObject={"uid": "p"}, **more)
        event["metadata"]["annotations"] = annotations
        events(event)
    events(thing("e9", reason="Scheduled", involvedObject={"uid": "p"}))
    events(thing("e10", reason="Evict", involvedObject={"uid": "foreign"}))
    evicted = [one for one in watcher.seen() if one.stage == "evicted"]
    assert [one.by for one in evicted] == ["big", "urgent", "was preempted by workload ns/other."]
    assert {(one.workload, one.pod, one.kind) for one in evicted} == {(7, "p", "Event")}


def test_a_claim_is_bound_and_a_queue_admits(watcher: Watcher) -> None:
    watcher.feed(follow_root("batch/v1", "Job"), is_root=True)(thing("w", name=f"{PREFIX}-4", labels=ours(4)))
    claims, queued = (
        watcher.feed(KINDS["v1", "PersistentVolumeClaim"]),
        watcher.feed(KINDS["kueue.x-k8s.io", "Workload"]),
    )
    claims(thing("c", "w", status={"phase": "Pending"}))
    queued(thing("k", "w", status={"conditions": [{"type": "QuotaReserved", "status": "True"}]}))
    assert watcher.stages() == [(4, "group_created"), (4, "quota_reserved")]
    claims(thing("c", "w", status={"phase": "Bound"}), MODIFIED)
    queued(thing("k", "w", status={"conditions": [{"type": "Admitted", "status": "True"}]}), MODIFIED)
    assert watcher.stages()[2:] == [(4, "claim_bound"), (4, "admitted")]


def test_a_workload_of_kueue_that_is_the_workload_itself_has_its_own_stages(watcher: Watcher) -> None:
    give = watcher.feed(follow_root("kueue.x-k8s.io/v1beta2", "Workload"), is_root=True)
    conditions: list[dict[str, str]] = []
    for number, last in ((1, "Succeeded"), (2, "Failed")):
        conditions.clear()
        for type_, reason in (("", ""), ("QuotaReserved", ""), ("Admitted", ""), ("Evicted", "Preempted"),
                              ("Finished", last)):  # fmt: skip
            conditions.append({"type": type_, "status": "True", "reason": reason})
            name = f"{PREFIX}-{number}"
            give(thing(f"w{number}", name=name, labels=ours(number), status={"conditions": conditions}), MODIFIED)
    stages = ["quota_reserved", "admitted", "evicted", "finished"]
    assert watcher.stages() == [(number, stage) for number in (1, 2) for stage in stages]
    assert [one.workload for one in watcher.seen() if one.failed] == [2]
    assert {one.by for one in watcher.seen() if one.stage == "evicted"} == {"Preempted"}


def test_what_a_user_says_of_the_kind_of_the_workloads_is_read_of_them(watcher: Watcher) -> None:
    said = {"apiVersion": "run.ai/v2alpha1", "kind": "TrainingWorkload",
            "stages": [{"stage": "admitted", "path": "status.phase", "values": ["Running"]}]}  # fmt: skip
    give = watcher.feed(FollowedKind.model_validate(said).work(), is_root=True)
    give(thing("w", name=f"{PREFIX}-3", labels=ours(3), status={"phase": "Pending"}))
    assert watcher.stages() == []
    give(thing("w", name=f"{PREFIX}-3", labels=ours(3), status={"phase": "Running"}), MODIFIED)
    assert watcher.stages() == [(3, "admitted")]


def test_what_happened_in_a_gap_is_known_to_be_between_its_ends_also_what_went_in_it(watcher: Watcher) -> None:
    give = watcher.feed(followed_pods(labelled=True))
    gone = thing("gone", labels=ours(8))
    give(pod())  # at 101
    give(gone)  # at 102, the last that is seen before the gap
    give(None)
    last_s = watcher.now_s
    give(pod(node="n"), relisted=True)
    give(None, relisted=True)
    give(pod("Running", "n"), MODIFIED)
    seen = {(one.workload, one.stage): (one.since_s, one.at_s) for one in watcher.seen()}
    assert seen[7, "scheduled"] == (last_s, last_s + 1)
    assert seen[8, "deleted"] == (last_s, last_s + 2)
    assert seen[7, "started"] == (None, last_s + 3), "after the gap it sees again"
    assert b'"gap_s"' in watcher.path.read_bytes()


def test_what_an_earlier_watch_did_not_see_happened_since_its_end(watcher: Watcher) -> None:
    give = watcher.feed(followed_pods(labelled=True), blind_s=50.0)
    give(pod(node="n"))
    give(None)
    give(pod("Running", "n"), MODIFIED)
    assert [(one.stage, one.since_s) for one in watcher.seen()] == [
        ("pod_created", 50.0), ("scheduled", 50.0), ("started", None),
    ]  # fmt: skip


def test_a_kind_of_the_users_own_is_followed_by_what_they_wrote(watcher: Watcher) -> None:
    rules = (ReachedWhen("admitted", "status.state", ("Go",), stamp="status.since"), ReachedWhen("job_created"))
    give = watcher.feed(Followed("example.com/v1", "Ticket", rules, labels=("example.com/for",)))
    ticket = thing("t", labels={"example.com/for": f"{PREFIX}-5"}, status={"state": "Wait"})
    give(ticket)
    give({**ticket, "status": {"state": "Go", "since": "2026-01-01T00:00:00Z", "more": [1, {}]}}, MODIFIED)
    assert watcher.stages() == [(5, "job_created"), (5, "admitted")]
    assert watcher.seen()[1].server == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("path", ["a..b", "status.conditions[x", "[x]", "a]b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="invalid path"):
        segments(path)


def test_a_path_that_leads_nowhere_is_nothing() -> None:
    form = form_of(followed_pods(labelled=True), annotated=True)
    found = decoder(form).decode(b'{"metadata": {"annotations": {"a/b.c": "1"}}, "status": {"conditions": null}}')
    assert value_at(found, "status.conditions[Ready].status") == ""
    assert value_at(found, "metadata.annotations[a/b.c]") == "1"
    assert value_at(found, "metadata.annotations[no]") == ""


class KnownKinds:
    """Stands for a cluster with these kinds, of which some may not be watched."""

    def __init__(self, *kinds: Resource, refused: tuple[str, ...] = ()) -> None:
        self.discovery, self._kinds, self._refused = self, kinds, refused

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        for one in (*self._kinds, PODS, JOBS, EVENTS, VOLUME_CLAIMS):
            if (one.api_version, one.kind) == (api_version, kind):
                return one
        raise UnknownKind(kind)

    async def can(self, right: Right) -> bool:
        return right.resource not in self._refused


QUEUED = Resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
GROUPS = Resource("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


async def chosen(client: Any, *roots: Resource, named: tuple[Followed, ...] = ()) -> dict[str, Any]:
    found = await followed_on(client, {*roots}, True, named, ["x"])
    return {one.resource.title: one for one in found.watched} | {"left out": found.left_out}


async def test_of_what_is_between_a_workload_and_its_pods_all_that_a_cluster_has_is_followed() -> None:
    found = await chosen(KnownKinds(GROUPS, JOBSETS), JOBSETS)
    assert {*found} == {
        "pods", "jobsets.jobset.x-k8s.io", "jobs.batch", "podgroups.scheduling.run.ai", "persistentvolumeclaims",
        "events", "left out",
    }  # fmt: skip
    assert found["jobsets.jobset.x-k8s.io"].root
    assert not found["jobs.batch"].root
    refused = await chosen(KnownKinds(GROUPS, refused=("podgroups",)), JOBS)
    assert refused["left out"] == ("list podgroups.scheduling.run.ai in namespace x",)
    assert refused["jobs.batch"].root


async def test_pods_that_are_workloads_themselves_have_the_stages_of_pods() -> None:
    found = await chosen(KnownKinds(), PODS)
    assert not found["pods"].root
    assert "jobs.batch" not in found, "no pod has a job between"
    mixed = await chosen(KnownKinds(JOBSETS), PODS, JOBS, JOBSETS)
    assert mixed["jobs.batch"].root
    alone = await chosen(KnownKinds(QUEUED), QUEUED)
    assert {one.stage for one in alone["workloads.kueue.x-k8s.io"].followed.own} >= {"admitted", "finished"}
    assert mixed["jobs.batch"].followed.rules, "it is a workload here, and between a JobSet and its pods there"


async def test_a_kind_that_the_user_names_must_be_there() -> None:
    with pytest.raises(UnknownKind):
        await chosen(KnownKinds(), JOBS, named=(Followed("example.com/v1", "Ticket", (ReachedWhen("admitted"),)),))


@pytest.mark.parametrize("given", [{"kind": "pod"}, {"kind": "job"}, {"kind": "jobset"}, {"kind": "pytorchjob"},
                                   {"kind": "kueue", "queue": "q"}])  # fmt: skip
def test_pods_of_workloads_that_are_built_in_are_selected_by_their_labels(given: dict[str, str]) -> None:
    """Also where their template has no metadata of its own."""
    assert pods_labelled(manifests_of(Workload.model_validate(given), ""))


def test_pods_that_an_operator_describes_itself_cannot_be_selected() -> None:
    training = {"apiVersion": "run.ai/v2alpha1", "kind": "TrainingWorkload", "spec": {"gpu": {"value": "1"}}}
    assert not pods_labelled([training])
    assert not pods_labelled([*manifests_of(Workload(kind="job"), ""), training])
