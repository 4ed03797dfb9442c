"""Workloads of several objects: their manifests, the order of their creation, and the stages of objects beside pods."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinds.scale.test_followed import KINDS, Watcher, ours, thing
from seatrial.kinds.scale.driver.stages import StageTracker, reached_stages
from seatrial.kinds.scale.driver.watch import ConditionWatch, has_condition, kinds_unused, pods_labelled
from seatrial.kinds.scale.followed import follow_root, followed_pods
from seatrial.kinds.scale.model import Workload
from seatrial.kinds.scale.work import NAME, ObjectWait, Submission
from seatrial.kinds.scale.workload import manifests_of
from seatrial.kubernetes import ADDED, MODIFIED, VOLUME_CLAIMS, KubernetesError, Tree, WatchEvent
from seatrial.kubernetes.objects import Meta
from seatrial.suite import SuiteError

TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: JOB_NAME_PLACEHOLDER-settings}
---
apiVersion: v1
kind: PersistentVolumeClaim
---
apiVersion: v1
kind: Pod
spec:
  volumes: [{name: d, persistentVolumeClaim: {claimName: JOB_NAME_PLACEHOLDER}}]
  containers: [{name: main, image: x, envFrom: [{configMapRef: {name: JOB_NAME_PLACEHOLDER-settings}}]}]
"""
GANGS = {
    "kai": ("scheduling.run.ai/v2alpha2", "kai-scheduler", {"minMember": 3, "queue": "q", "priorityClassName": "high"}),
    "volcano": (
        "scheduling.volcano.sh/v1beta1", "volcano", {"minMember": 3, "queue": "q", "priorityClassName": "high"}
    ),
    "coscheduling": ("scheduling.x-k8s.io/v1alpha1", "scheduler-plugins-scheduler", {"minMember": 3}),
}  # fmt: skip
OF_PODS = {
    "kai": {"annotations": {"pod-group-name": NAME, "kai.scheduler/skip-podgrouper": "true"}},
    "volcano": {"annotations": {"scheduling.k8s.io/group-name": NAME}},
    "coscheduling": {"labels": {"scheduling.x-k8s.io/pod-group": NAME}},
}


@pytest.mark.parametrize("gang", GANGS)
@pytest.mark.parametrize("kind", ["pod", "job"])
def test_a_gang_has_the_group_of_its_scheduler_before_its_pods(gang: Any, kind: Any) -> None:
    of = {"priority": "high", "queue": "q"} if gang != "coscheduling" else {}
    group, *rest = manifests_of(Workload(kind=kind, pods=3, gang=gang, **of), "")
    api_version, scheduler, spec = GANGS[gang]
    assert group == {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": NAME}, "spec": spec}
    templates = rest if kind == "pod" else [one["spec"]["template"] for one in rest]
    assert len(rest) == (3 if kind == "pod" else 1)
    for template in templates:
        assert template["metadata"] | OF_PODS[gang] == template["metadata"]
        assert template["spec"]["schedulerName"] == scheduler
    if kind == "pod":
        assert [one["metadata"]["name"] for one in rest] == [f"{NAME}-{place}" for place in range(3)]
    else:
        assert not rest[0]["spec"].get("suspend"), "Kueue has no part in it"


def test_the_scheduler_of_a_gang_can_have_another_name_and_its_pods_a_fraction() -> None:
    given = Workload(kind="job", gang="kai", queue="q", scheduler="mine", gpus=0.5)
    template = manifests_of(given, "")[1]["spec"]["template"]
    assert template["spec"]["schedulerName"] == "mine"
    assert template["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    assert template["metadata"]["annotations"]["pod-group-name"] == NAME


def test_a_claim_is_a_template_that_every_pod_refers_to() -> None:
    given = Workload.model_validate(
        {"kind": "job", "pods": 2, "claim": {"device_class": "gpu.example.com", "count": 4}}
    )
    template, job = manifests_of(given, "")
    assert (template["apiVersion"], template["kind"]) == ("resource.k8s.io/v1", "ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.example.com", "count": 4}
    spec = job["spec"]["template"]["spec"]
    (claim,) = spec["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"] == NAME
    assert spec["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "job", "gang": "kai"}, "`gang: kai` needs `queue`"),
        ({"kind": "job", "wait": {"kind": "Job", "condition": "Complete"}}, "apply only to `template`"),
        ({"kind": "job", "claim": "file.yaml"}, "apply only to `template`"),
        ({"template": "t", "gang": "volcano"}, "put these objects into the template"),
        ({"template": "t", "claim": {"device_class": "c"}}, "put these objects into the template"),
        ({"kind": "kueue", "queue": "q", "gang": "volcano"}, "no `gang`"),
        ({"kind": "pod", "pods": 2}, "`kind: pod` has one pod"),
        ({"kind": "job", "gang": "slurm"}, "kai"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload.model_validate(given)


def test_a_template_has_its_objects_in_their_order_and_they_refer_to_each_other() -> None:
    given = {"template": "t", "queue": "q", "wait": {"kind": "PersistentVolumeClaim", "condition": "Bound"}}
    made = manifests_of(Workload.model_validate(given), TEMPLATE)
    assert [one["kind"] for one in made] == ["ConfigMap", "PersistentVolumeClaim", "Pod"]
    assert [one["metadata"]["name"] for one in made] == [f"{NAME}-settings", NAME, NAME]
    assert made[2]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == NAME
    assert {one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for one in made} == {"q"}


@pytest.mark.parametrize("kind", ["Pod", "Service"])
def test_a_wait_that_nothing_comes_after_is_refused(kind: str) -> None:
    given = {"template": "t", "wait": [{"kind": kind, "condition": "Ready"}]}
    with pytest.raises(SuiteError, match=f"`wait` names {kind}.*: ConfigMap, PersistentVolumeClaim"):
        manifests_of(Workload.model_validate(given), TEMPLATE)


@pytest.mark.parametrize(
    ("status", "has"),
    [
        ({"phase": "Bound"}, True),
        ({"phase": "Pending", "conditions": [{"type": "Bound", "status": "True"}]}, True),
        ({"phase": "Pending", "conditions": [{"type": "Bound", "status": "False"}]}, False),
        ({"conditions": [{"type": "Other", "status": "True"}, "odd", {}]}, False),
        ({"conditions": "odd", "phase": ["Bound"]}, False),
        ("odd", False),
        (None, False),
    ],
)
def test_a_condition_is_a_phase_or_one_of_the_list(status: Any, has: bool) -> None:
    assert has_condition(status, "Bound") is has


class Mine:
    """Objects whose watch tells of two claims: one is bound, the other never is."""

    selector, namespaces = "a=b", ("x",)

    def __init__(self) -> None:
        self.client = self

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent[Tree]]:
        for name, phase in (("c-0", "Pending"), ("c-1", "Pending"), ("c-0", "Bound")):
            yield WatchEvent(ADDED, Tree(Meta(name=name), status={"phase": phase}), 0.0)
        await asyncio.Event().wait()


async def test_an_object_waits_for_the_one_before_it_and_not_forever() -> None:
    conditions, wanted = ConditionWatch(Mine(), 0.5), ObjectWait("PersistentVolumeClaim", "Bound")  # type: ignore[arg-type]
    async with conditions.watching([(wanted, VOLUME_CLAIMS)]):
        await conditions.wait(wanted, "x", "c-0")
        with pytest.raises(KubernetesError, match="PersistentVolumeClaim c-1 is not Bound"):
            await conditions.wait(wanted, "x", "c-1")


def test_only_what_workloads_can_have_is_watched() -> None:
    job = manifests_of(Workload(kind="job"), "")
    assert kinds_unused(job) == {"EndpointSlice", "ResourceClaim"}
    claimed = manifests_of(Workload.model_validate({"kind": "job", "claim": {"device_class": "c"}}), "")
    assert pods_labelled(claimed)
    assert kinds_unused(claimed) == {"EndpointSlice"}
    assert kinds_unused([*job, {"kind": "Service"}]) == {"ResourceClaim"}
    assert not pods_labelled([*job, {"kind": "TrainingWorkload", "spec": {}}]), "its pods come from another template"
    assert kinds_unused([{"kind": "TrainingWorkload", "spec": {}}]) == frozenset()


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(tmp_path)


def endpoints(*ready: bool) -> dict[str, Any]:
    return {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": one}} for one in ready] or None}


def test_a_service_is_ready_with_its_first_ready_endpoint(watcher: Watcher) -> None:
    give = watcher.feed(KINDS["discovery.k8s.io", "EndpointSlice"])
    for found in (endpoints(), endpoints(False), {"endpoints": [{"conditions": {}}]}):
        give(thing("e", labels=ours(3), **found), MODIFIED)
    assert watcher.stages() == []
    give(thing("e", labels=ours(3), **endpoints(False, True)), MODIFIED)
    assert watcher.stages() == [(3, "endpoint_ready")]


def test_a_claim_of_devices_is_allocated_and_belongs_to_the_workload_of_its_pod(watcher: Watcher) -> None:
    watcher.feed(followed_pods(labelled=True))(thing("p", labels=ours(5)))
    give = watcher.feed(KINDS["resource.k8s.io", "ResourceClaim"])
    give(thing("c", "p", status={}))
    give(thing("c", "p", status={"allocation": {"devices": {"results": []}}}), MODIFIED)
    assert (5, "claim_allocated") in watcher.stages()


@pytest.mark.parametrize(
    ("api_version", "kind", "status", "stage"),
    [
        ("v1", "PersistentVolumeClaim", {"phase": "Bound"}, "claim_bound"),
        ("scheduling.run.ai/v2alpha2", "PodGroup", {}, "group_created"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup", {}, "group_created"),
        ("resource.k8s.io/v1", "ResourceClaim", {"allocation": {}}, "claim_allocated"),
    ],
)
def test_an_object_of_the_workload_itself_has_the_stages_of_its_kind_whatever_its_name(
    watcher: Watcher, api_version: str, kind: str, status: Any, stage: str
) -> None:
    watcher.feed(follow_root(api_version, kind), is_root=True)(thing("o", name="any", labels=ours(2), status=status))
    assert watcher.stages() == [(2, stage)]


def test_a_workload_is_bound_when_all_its_claims_are(watcher: Watcher, tmp_path: Path) -> None:
    give = watcher.feed(KINDS["v1", "PersistentVolumeClaim"])
    tracker = StageTracker(watcher.path, "claim_bound", {})
    submitted = {number: Submission(number, 100.0, 100.0, 100.0) for number in (1, 2)}

    def reached() -> set[int]:
        bound = {*reached_stages(submitted, watcher.seen(), {}).times["claim_bound"]}
        assert tracker.look() == bound
        return bound

    for number in (1, 2):
        for name in ("a", "b"):
            give(thing(f"{name}{number}", labels=ours(number), status={"phase": "Pending"}))
    give(thing("a1", labels=ours(1), status={"phase": "Bound"}), MODIFIED)
    assert reached() == set()
    give(thing("b1", labels=ours(1), status={"phase": "Bound"}), MODIFIED)
    assert reached() == {1}
    give(thing("c1", labels=ours(1), status={"phase": "Pending"}))
    assert reached() == set(), "another claim came"
    assert msgspec.json.decode(watcher.path.read_bytes().splitlines()[0])["pending"] is True
