"""Templates of workloads: those of Run:ai's scale test tool as they are, and those that are built in."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.kinds.scale.model import Workload
from seatrial.kinds.scale.work import NAME
from seatrial.kinds.scale.workload import QUEUE, manifests_of, rendered
from seatrial.suite import SuiteError

THEIRS = Path(__file__).parent / "runai"
VALUES = {"PROJECT_PLACEHOLDER": "team-a", "NUM_GPUS": "0.5"}


def theirs(name: str) -> str:
    return (THEIRS / f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("training", "TrainingWorkload"), ("interactive", "InteractiveWorkload"), ("distributed", "DistributedWorkload")],
)
def test_their_templates_are_filled_as_their_tool_fills_them(name: str, kind: str) -> None:
    values = {**VALUES, "NUM_WORKERS_PLACEHOLDER": 7} if name == "distributed" else VALUES
    (made,) = rendered("t", theirs(name), values)
    assert (made["apiVersion"], made["kind"]) == ("run.ai/v2alpha1", kind)
    assert made["metadata"]["namespace"] == "runai-team-a"
    assert made["spec"]["gpu"] == {"value": "0.5"}
    assert made["metadata"]["name"] == made["spec"]["name"]["value"] == NAME  # for the driver, which names each
    assert ("workers" in made["spec"]) == (name == "distributed")
    if name == "distributed":
        assert made["spec"]["workers"] == {"value": 7}
        assert made["spec"]["runPolicy"]["values"]["cleanPodPolicy"] == {"value": "None"}


@pytest.mark.parametrize("end", ["status: {}\n", "", "status: {}"])
def test_their_volume_claim_goes_to_the_end_of_the_spec(end: str) -> None:
    template = theirs("training").replace("status: {}\n", end)
    spec = rendered("t", template, VALUES, theirs("pvc"))[0]["spec"]
    assert spec["pvcs"]["items"]["pvc-new-0"]["value"]["size"] == "1Mi"
    assert spec["gpu"] == {"value": "0.5"}


def test_a_placeholder_that_nobody_filled_is_told_with_its_place_and_what_to_do() -> None:
    with pytest.raises(
        SuiteError, match=r"NUM_WORKERS_PLACEHOLDER has no value.*values: {NUM_WORKERS_PLACEHOLDER"
    ) as told:
        rendered("t", theirs("distributed"), VALUES)
    mark = told.value.problems[0].mark
    assert mark is not None
    line = theirs("distributed").splitlines()[mark.line - 1]
    assert line[mark.column - 1 :].startswith("NUM_WORKERS_PLACEHOLDER")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{1: a}", "JSON cannot represent: Dict key must be str"),
        ("!!set {a}", "JSON cannot represent"),
        ("99999999999999999999999", "JSON cannot represent: Integer exceeds"),
    ],
)
def test_what_cannot_be_sent_is_told_before(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        rendered("t", f"apiVersion: v1\nkind: Pod\nspec: {text}\n", {})


@pytest.mark.parametrize("field", ["labels: [a]", "annotations: a", "namespace: 5"])
def test_metadata_of_another_form_is_refused(field: str) -> None:
    with pytest.raises(SuiteError, match=f"`metadata.{field.split(':')[0]}` must be"):
        rendered("t", f"apiVersion: v1\nkind: Pod\nmetadata: {{{field}}}\n", {})


def built_in(**fields: Any) -> dict[str, Any]:
    (made,) = manifests_of(Workload(**fields), "")
    return made


def test_a_job_set_and_a_pytorch_job_have_the_pods_that_were_asked_for() -> None:
    (inner,) = built_in(kind="jobset", pods=4, gpus=2)["spec"]["replicatedJobs"]
    assert (inner["template"]["spec"]["completions"], inner["template"]["spec"]["parallelism"]) == (4, 4)
    replicas = built_in(kind="pytorchjob", pods=4)["spec"]["pytorchReplicaSpecs"]
    assert sum(one["replicas"] for one in replicas.values()) == 4
    assert {one["template"]["spec"]["containers"][0]["name"] for one in replicas.values()} == {"pytorch"}


@pytest.mark.parametrize("kind", ["pod", "job", "jobset", "pytorchjob"])
def test_a_part_of_a_gpu_is_an_annotation_of_every_pod_and_who_schedules_it_is_in_its_spec(kind: str) -> None:
    (pod,) = pod_templates(built_in(kind=kind, gpus=0.5, priority="high", scheduler="kai-scheduler"))
    assert pod["metadata"]["annotations"] == {"gpu-fraction": "0.5"}
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {}
    assert (pod["spec"]["priorityClassName"], pod["spec"]["schedulerName"]) == ("high", "kai-scheduler")


def pod_templates(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict) and "containers" in (value.get("spec") or ()):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [pod for one in inner for pod in pod_templates(one)]


def test_a_workload_of_kueue_alone_asks_its_queue_for_all_its_pods() -> None:
    made = built_in(kind="kueue", queue="trials", pods=4, gpus=2)
    (pods,) = made["spec"]["podSets"]
    assert (made["kind"], made["spec"]["queueName"], pods["count"]) == ("Workload", "trials", 4)
    assert pods["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize("kind", ["job", "jobset", "pytorchjob"])
def test_what_waits_in_a_queue_names_it_and_begins_suspended(kind: str) -> None:
    made = built_in(kind=kind, pods=2, queue="trials")
    assert made["metadata"]["labels"] == {QUEUE: "trials"}
    assert (made["spec"].get("runPolicy") or made["spec"])["suspend"] is True
    free = built_in(kind=kind, pods=2)
    assert (free["spec"].get("runPolicy") or free["spec"])["suspend"] is False


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "pod", "pods": 2}, "has one pod and no `queue`"),
        ({"kind": "pod", "queue": "q"}, "has one pod and no `queue`"),
        ({"kind": "kueue"}, "needs `queue`"),
        ({"kind": "kueue", "queue": "q", "priority": "high"}, "cannot be combined with `priority`"),
        ({"kind": "job", "values": {"A": 1}}, "apply only to `template`"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload(**fields)
