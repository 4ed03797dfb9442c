"""Why a job does not start, from the words of the scheduler, the nodes and the controllers, with values alone."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.job import Outcome, Stage, StageTime
from seatrial.kubernetes import parse_quantity
from seatrial.targets.kubernetes.watch import jobs
from seatrial.targets.kubernetes.watch.jobs import JobState
from seatrial.targets.kubernetes.watch.objects import PodObject, RootObject, TrackedJob, WarningEvent
from seatrial.targets.kubernetes.watch.waiting import Patience, WaitContext, Waiting, why_waiting

PATIENCE = Patience(refused_s=1.0, infra_s=2.0, never_s=3.0, setup_s=4.0)
MOST = {"cpu": 96.0, "memory": float(1 << 40), "nvidia.com/gpu": 8.0}


def pod(waiting: tuple[str, str] | None = None, scheduled: str = "", asks: Any = None, **status: Any) -> PodObject:
    states = [{"name": "trial", "state": {"waiting": {"reason": waiting[0], "message": waiting[1]}}}] if waiting else []
    conditions = []
    if scheduled:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": scheduled}
        conditions = [condition]
    whole = {
        "metadata": {"name": "job-0-abcde", "uid": "u", "labels": {"seatrial/job": "job"}},
        "spec": {
            "nodeName": "" if scheduled else "node-a",
            "containers": [{"name": "trial", "resources": {"requests": asks or {}}}],
        },
        "status": {"containerStatuses": states, "conditions": conditions, **status},
    }
    return msgspec.convert(whole, PodObject)


def warning(reason: str, message: str, kind: str = "Pod", name: str = "job-0-abcde") -> WarningEvent:
    about = {"kind": kind, "name": name}
    return msgspec.convert({"involvedObject": about, "reason": reason, "message": message}, WarningEvent)


def why(*pods: PodObject, **around: Any) -> Waiting | None:
    return why_waiting(pods, WaitContext(**around), PATIENCE)


def final(found: Waiting | None) -> tuple[Outcome, float]:
    assert found is not None
    assert found.final
    assert found.kind
    return found.outcome, found.after_s


REFUSED, INFRA, NEVER = (Outcome.REFUSED, 1.0), (Outcome.INFRA, 2.0), (Outcome.REFUSED, 3.0)
NO_MATCH = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: none."


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("ErrImageNeverPull", 'Container image "x:1" is not present with pull policy of Never', REFUSED),
        ("InvalidImageName", "couldn't parse image name", REFUSED),
        ("ErrImagePull", 'failed to resolve reference "r/x:1": r/x:1: not found', REFUSED),
        ("ImagePullBackOff", 'Back-off pulling image "x:1": ErrImagePull: manifest unknown', REFUSED),
        ("ErrImagePull", "pull access denied, repository does not exist or may require authorization", REFUSED),
        ("ErrImagePull", "unexpected status from HEAD request: 403 Forbidden", REFUSED),
        ("ErrImagePull", 'failed to do request: Head "https://r/v2": dial tcp: lookup r: no such host', INFRA),
        ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", INFRA),
        ("ErrImagePull", "lookup not found: connection refused", INFRA),
        ("ErrImagePull", "429 Too Many Requests", INFRA),
        ("ImagePullBackOff", 'Back-off pulling image "x:1"', INFRA),
        ("RegistryUnavailable", "", INFRA),
    ],
)
def test_an_image_that_is_not_there_is_told_from_a_registry_that_is_not(
    reason: str, message: str, expected: tuple[Outcome, float]
) -> None:
    found = why(pod((reason, message)))
    assert final(found) == expected
    assert found is not None
    assert reason in found.why


def test_between_two_tries_the_last_failure_says_what_is_wrong_with_the_image() -> None:
    failure = warning("Failed", 'Failed to pull image "x:1": x:1: not found')
    found = why(pod(("ImagePullBackOff", 'Back-off pulling image "x:1"')), warnings=(failure,))
    assert final(found) == REFUSED
    assert found is not None
    assert found.why.endswith("x:1: not found")


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("CreateContainerConfigError", 'secret "none" not found', REFUSED),
        ("CreateContainerConfigError", "couldn't find key TOKEN in Secret ns/some", REFUSED),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", REFUSED),
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition", INFRA),
        ("CreateContainerError", "context deadline exceeded", INFRA),
        ("CreateContainerError", "no command specified", REFUSED),
    ],
)
def test_a_container_that_cannot_be_made_is_told(reason: str, message: str, expected: tuple[Outcome, float]) -> None:
    assert final(why(pod((reason, message)))) == expected


def test_a_container_of_the_template_that_ends_again_and_again_is_named() -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=proxy"}}
    found = why(pod(initContainerStatuses=[{"name": "proxy", "state": state}]))
    assert final(found) == (Outcome.REFUSED, 2.0)
    assert found is not None
    assert found.why.startswith("container proxy of `template` keeps restarting: back-off 10s")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('MountVolume.SetUp failed for volume "x" : configmap "none" not found', REFUSED),
        ('MountVolume.SetUp failed for volume "x" : failed to sync configmap cache: timed out', (Outcome.INFRA, 4.0)),
        ("MountVolume.SetUp failed: mount.nfs: Connection timed out", (Outcome.INFRA, 4.0)),
        (
            'MountVolume.SetUp failed for volume "kube-api-access-x" : configmap "kube-root-ca.crt" not found',
            (Outcome.INFRA, 4.0),
        ),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_told(message: str, expected: tuple[Outcome, float]) -> None:
    creating = pod(("ContainerCreating", ""))
    assert final(why(creating, warnings=(warning("FailedMount", message),))) == expected
    assert why(creating, warnings=(warning("FailedMount", message, name="other-0"),)) is None


def test_a_warning_of_before_it_ran_means_nothing_once_it_runs() -> None:
    state = {"name": "trial", "state": {"running": {"startedAt": "2026-11-16T05:00:00Z"}}}
    assert why(pod(containerStatuses=[state]), warnings=(warning("FailedMount", "x not found"),)) is None


def test_a_full_cluster_is_waited_for_in_the_schedulers_words() -> None:
    text = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {team: other}, 2 Insufficient nvidia.com/gpu. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found."
    )
    found = why(pod(scheduled=text, asks={"nvidia.com/gpu": "8"}), most=MOST)
    expected = "waiting: 0/3 nodes are available: 1 node(s) had untolerated taint {team: other}, "
    assert found == Waiting(f"{expected}2 Insufficient nvidia.com/gpu")


@pytest.mark.parametrize(
    ("text", "asks", "text_part"),
    [
        ("3 node(s) didn't match Pod's node affinity/selector", {}, "didn't match"),
        (
            "1 node(s) had untolerated taint {a.b/c: d}, 2 node(s) didn't match Pod's node affinity/selector",
            {},
            "taint",
        ),
        (
            "3 Insufficient nvidia.com/gpu",
            {"nvidia.com/gpu": "9"},
            "9 of nvidia.com/gpu requested, no node has more than 8",
        ),
        ("3 Insufficient google.com/tpu", {"google.com/tpu": "1"}, "1 of google.com/tpu requested, no node has any"),
        ("3 Insufficient memory", {"memory": "2Ti"}, "no node has more than"),
    ],
)
def test_what_no_node_has_is_waited_for_within_the_limit_and_without_one_for_a_while(
    text: str, asks: dict[str, str], text_part: str
) -> None:
    unplaced = pod(scheduled=f"0/3 nodes are available: {text}. preemption: none.", asks=asks)
    found = why(unplaced, most=MOST)
    assert final(found) == NEVER
    assert found is not None
    assert text_part in found.why
    found = why(unplaced, most=MOST, limited=True)
    assert found is not None
    assert not found.final
    assert found.why.startswith("no node in this cluster fits: 0/3")
    assert found.why.endswith("waiting for a new node")


def test_a_gpu_that_no_node_has_is_told_which_gpus_the_nodes_have() -> None:
    labels = "labels of the nodes: nvidia.com/gpu.product=Tesla-T4 (3 nodes); "
    found = why(pod(scheduled=NO_MATCH, asks={"nvidia.com/gpu": "1"}), gpu_labels=labels)
    assert found is not None
    assert (
        "affinity/selector; labels of the nodes: nvidia.com/gpu.product=Tesla-T4 (3 nodes); request less" in found.why
    )
    other = why(pod(scheduled=NO_MATCH, asks={"cpu": "1"}), gpu_labels=labels)
    assert other is not None
    assert "Tesla-T4" not in other.why


@pytest.mark.parametrize("reason", ["TriggeredScaleUp", "Nominated"])
def test_a_node_that_is_being_added_is_waited_for(reason: str) -> None:
    said = warning(reason, "pod triggered scale-up: [{gpus 0->1 (max: 8)}]")
    found = why(pod(scheduled=NO_MATCH), most=MOST, warnings=(said,))
    assert found == Waiting("waiting for a new node: pod triggered scale-up: [{gpus 0->1 (max: 8)}]")


@pytest.mark.parametrize(
    ("reason", "message", "gives_up"),
    [
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 2 node(s) didn't match Pod's node affinity/selector", True),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated "
         "taint {team: other}", True),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up (it wouldn't fit): 1 Insufficient cpu", True),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", False),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient cpu, 1 in backoff after failed scale-up",
         False),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: ", False),
        ("FailedScaleUp", "Node scale up in zones a associated with this pod failed: GCE out of resources.", False),
        ("FailedScheduling", 'Failed to schedule pod, incompatible with nodepool "default", limits exceeded', False),
    ],
)  # fmt: skip
def test_an_autoscaler_that_adds_no_node_is_heard_and_given_up_on_only_when_it_never_can(
    reason: str, message: str, gives_up: bool
) -> None:
    found = why(pod(scheduled=NO_MATCH), most=MOST, limited=True, warnings=(warning(reason, message),))
    assert found is not None
    assert found.final == gives_up
    if gives_up:
        assert final(found) == (Outcome.REFUSED, 2.0)
        assert message in found.why
    full = pod(scheduled="0/3 nodes are available: 3 Insufficient cpu.", asks={"cpu": "1"})
    found = why(full, most=MOST, warnings=(warning(reason, message),))
    assert found is not None
    assert not found.final
    assert f"; the autoscaler says: {message.strip()}" in found.why


@pytest.mark.parametrize(
    ("text", "asks", "most"),
    [
        ("3 Insufficient nvidia.com/gpu", {"nvidia.com/gpu": "9"}, None),  # nodes may not be seen
        ("3 Insufficient nvidia.com/gpu", {"nvidia.com/gpu": "8"}, MOST),
        ("3 node(s) had untolerated taint {node.kubernetes.io/unreachable: }", {}, MOST),
        ("2 node(s) didn't match Pod's node affinity/selector, 1 Insufficient cpu", {"cpu": "1"}, MOST),
        ("3 Too many pods", {}, MOST),
        ("pod has unbound immediate PersistentVolumeClaims", {}, MOST),
        ("3 Insufficient cpu, 1 Insufficient some-thing, 2", {"cpu": "500m"}, MOST),
    ],
)
def test_what_may_change_by_itself_is_waited_for(
    text: str, asks: dict[str, str], most: dict[str, float] | None
) -> None:
    found = why(pod(scheduled=f"0/3 nodes are available: {text}.", asks=asks), most=most)
    assert found is not None
    assert not found.final
    assert found.why.startswith("waiting: 0/3 nodes")


def test_a_claim_that_is_not_there_is_refused() -> None:
    text = '0/1 nodes are available: persistentvolumeclaim "data" not found. not found'
    assert final(why(pod(scheduled=text))) == REFUSED


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation', REFUSED),
        ('pods "x" is forbidden: error looking up service account ns/none: serviceaccount "none" not found', REFUSED),
        ('pods "x" is forbidden: looking up service account default: serviceaccount "default" not found', INFRA),
        ('pods "x" is forbidden: no PriorityClass with name none was found', REFUSED),
        ('pods "x" is forbidden: failed quota: q: must specify limits.cpu', REFUSED),
        ('pods "x" is forbidden: exceeded quota: q, requested: cpu=9,pods=1, used: cpu=0, limited: cpu=8', REFUSED),
        ('admission webhook "v.example" denied the request: no', REFUSED),
        ('Internal error occurred: failed calling webhook "v.example": connection refused', INFRA),
        ('pods "x" is forbidden: unable to create new content because it is being terminated', INFRA),
        ('Pod "x" is invalid: spec.containers[0].image: Required value', REFUSED),
        ("the server is currently unable to handle the request", INFRA),
        ("", INFRA),
    ],
)
def test_pods_that_cannot_be_made_are_told_by_the_reason(message: str, expected: tuple[Outcome, float]) -> None:
    failing = warning("FailedCreate", f"Error creating: {message}", kind="Job", name="job")
    assert final(why(root=RootObject(), warnings=(failing,))) == expected
    assert why(pod(), root=RootObject(), warnings=(failing,)) is None  # it is there now


@pytest.mark.parametrize("how", ["requested: pods=1, used: pods=5, limited: pods=5", "requested: cpu=9k"])
def test_a_quota_that_is_full_is_waited_for(how: str) -> None:
    for what in ("exceeded", "status unknown for"):
        message = f'Error creating: pods "x" is forbidden: {what} quota: q, {how}'
        found = why(root=RootObject(), warnings=(warning("FailedCreate", message, kind="Job", name="job"),))
        assert found == Waiting(f"waiting for room in the namespace's quota: {what} quota: q, {how}")


def test_retries_that_name_another_pod_each_are_one_reason() -> None:
    reasons = [
        why(
            warnings=(
                warning("FailedCreate", f'Error creating: pods "x-{n}" is forbidden: no', kind="Job", name="job"),
            )
        )
        for n in range(2)
    ]
    assert reasons[0] == reasons[1]


def test_a_final_reason_of_one_host_weighs_more_than_the_waiting_of_another() -> None:
    waits = pod(scheduled="0/3 nodes are available: 3 Insufficient cpu.")
    found = why(waits, pod(("ErrImageNeverPull", "no")), hosts=2)
    assert final(found) == REFUSED
    assert found is not None
    assert found.why.startswith("host 0: cannot pull image")


def test_what_kueue_holds_back_waits_in_its_words() -> None:
    held = msgspec.convert({"spec": {"suspend": True}}, RootObject)
    found = why(root=held, queue=True)
    assert found == Waiting("waiting: not admitted by Kueue yet")
    held_back = warning("Pending", "insufficient unused quota for nvidia.com/gpu", "Workload", "job-job-1a2b3")
    found = why(root=held, queue=True, warnings=(held_back,))
    assert found is not None
    assert found.why.endswith("yet: insufficient unused quota for nvidia.com/gpu")
    assert why(root=held) is None  # not released yet
    for message, expected in (
        ("LocalQueue none doesn't exist", REFUSED),
        (
            "insufficient quota for cpu in flavor f, current podset request (3) > maximum capacity (2)",
            (Outcome.REFUSED, 4.0),
        ),
    ):
        assert final(why(root=held, queue=True, warnings=(warning("Pending", message, "Workload"),))) == expected


async def test_a_job_that_others_hold_suspended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known = TrackedJob("job", "r", "u", 1, StageTime(Stage.CREATED, 0.0, "api-server"))
    job = JobState("job", known)
    job.root = msgspec.convert({"spec": {"suspend": True}}, RootObject)
    assert job.why_waiting(None, PATIENCE) is None  # it may be our own release that is not reported yet
    assert job.wake_s < math.inf
    monkeypatch.setattr(jobs, "HELD_S", 0.0)
    assert job.why_waiting(None, PATIENCE) == Waiting(jobs.HELD)
    job.root = RootObject()
    assert job.why_waiting(None, PATIENCE) is None


@given(st.text(max_size=200), st.sampled_from(["ErrImagePull", "CreateContainerError", "", "FailedMount"]))
def test_no_words_of_a_cluster_can_break_it(text: str, reason: str) -> None:
    for found in (
        why(pod((reason, text)), warnings=(warning(reason, text),)),
        why(pod(scheduled=f"0/3 nodes are available: {text}"), most=MOST),
        why(warnings=(warning("FailedCreate", f"exceeded quota {text}", "Job"),)),
    ):
        assert found is None or (found.why.isprintable() and len(found.why) < 1500)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("8", 8.0),
        ("1Gi", 2.0**30),
        ("1e3", 1000.0),
        ("2k", 2000.0),
        ("", None),
        ("x", None),
        ("1.2.3", None),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, number: float | None) -> None:
    assert parse_quantity(text) == number
