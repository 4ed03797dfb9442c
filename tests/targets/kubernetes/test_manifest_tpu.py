"""TPU machines: the JobSet is the one that xpk creates for the same slices, and each host knows its number."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from manifest_shapes import JOB, changed, container, made, made_of, options_of, pod_templates

from seatrial.agent.pod.pod import host_number
from seatrial.job import Job, Outcome, Resources, Tpu
from seatrial.kinds.training.kind import kind as training
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import SuiteError, load
from seatrial.targets.kubernetes.watch.objects import PodObject
from seatrial.targets.protocol import TargetError


def tpu_job(kind: str, topology: str, slices: int = 1, chips: int = 0) -> Job:
    tpu = Tpu(kind, topology, slices, chips)
    return changed(hosts=tpu.hosts, resources=Resources(tpu=tpu))


# What `xpk workload create --tpu-type=NAME --num-slices=N` asks for: by the name that it has there, the
# values of its two node labels, chips for each pod and pods for each slice.
XPK = {
    "v4-8": (Tpu("v4", "2x2x1"), "tpu-v4-podslice", "2x2x1", 4, 1),
    "v4-16": (Tpu("v4", "2x2x2"), "tpu-v4-podslice", "2x2x2", 4, 2),
    "v5p-8": (Tpu("v5p", "2x2x1"), "tpu-v5p-slice", "2x2x1", 4, 1),
    "v5p-128": (Tpu("v5p", "4x4x4"), "tpu-v5p-slice", "4x4x4", 4, 16),
    "v5litepod-8": (Tpu("v5e", "2x4"), "tpu-v5-lite-podslice", "2x4", 4, 2),
    "v5litepod-256": (Tpu("v5litepod", "16x16"), "tpu-v5-lite-podslice", "16x16", 4, 64),
    "v6e-1": (Tpu("v6e", "1x1"), "tpu-v6e-slice", "1x1", 1, 1),
    "v6e-4": (Tpu("v6e", "2x2"), "tpu-v6e-slice", "2x2", 4, 1),
    "v6e-16": (Tpu("v6e", "4x4"), "tpu-v6e-slice", "4x4", 4, 4),
    "tpu7x-8": (Tpu("tpu7x", "2x2x1"), "tpu7x", "2x2x1", 4, 1),
}


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("name", XPK)
def test_a_jobset_for_tpus_is_the_one_of_xpk(name: str, slices: int) -> None:
    tpu, accelerator, topology, chips, hosts = XPK[name]
    job = tpu_job(tpu.type, tpu.topology, slices)
    root = made_of(job, options_of("{workload: jobset, queue: multislice-queue}")).root
    assert (root["apiVersion"], root["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert root["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "multislice-queue"
    exclusive = root["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
    assert exclusive == "cloud.google.com/gke-nodepool"
    assert root["spec"]["failurePolicy"]["maxRestarts"] == 0
    (replicated,) = root["spec"]["replicatedJobs"]
    assert replicated["replicas"] == slices
    of_slice = replicated["template"]["spec"]
    assert of_slice["parallelism"] == of_slice["completions"] == hosts
    assert of_slice["backoffLimit"] == 0
    pod = of_slice["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    labels = {"gke-tpu-accelerator": accelerator, "gke-tpu-topology": topology}
    assert pod["nodeSelector"] == {f"cloud.google.com/{key}": value for key, value in labels.items()}
    assert container(root)["resources"]["limits"] == {"google.com/tpu": str(chips)}
    # What xpk sets and Seatrial leaves to `security` and `template`, because restricted namespaces refuse it.
    assert not {"hostNetwork", "dnsPolicy"} & pod.keys()
    assert "privileged" not in container(root).get("securityContext", {})


def variables(root: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(root)["env"]}


def test_several_slices_find_each_other() -> None:
    found = variables(made("tpu-slices").root)
    first = "nightly-1-69b56f04-1-h-0-0.nightly-1-69b56f04-1.trials.svc"
    assert found["MEGASCALE_NUM_SLICES"] == "2"
    assert found["MEGASCALE_COORDINATOR_ADDRESS"] == found["MASTER_ADDR"] == first
    slice_of_pod = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}}
    assert found["MEGASCALE_SLICE_ID"] == slice_of_pod
    pods = [name.partition(".")[0].removeprefix("nightly-1-69b56f04-1-") for name in hostnames(found)]
    assert pods == ["h-0-0", "h-0-1", "h-1-0", "h-1-1"]


def hostnames(found: dict[str, Any]) -> list[str]:
    return str(found["SEATRIAL_HOSTNAMES"]).split(",")


def test_one_slice_needs_no_variables_for_several() -> None:
    assert not [name for name in variables(made("tpu").root) if "MEGASCALE" in name or "SLICE" in name]


def test_the_agent_and_the_watch_number_the_hosts_of_all_slices_alike() -> None:
    found = made("tpu-slices").root
    labels = next(pod_templates(found))["metadata"]["labels"]
    numbers = []
    for of_slice in range(2):
        for index in range(2):
            of_pod = {
                "jobset.sigs.k8s.io/job-global-index": str(of_slice),
                "batch.kubernetes.io/job-completion-index": str(index),
            }
            pod = msgspec.convert({"metadata": {"name": "p", "labels": {**labels, **of_pod}}}, PodObject)
            env = {"JOB_COMPLETION_INDEX": str(index), "SEATRIAL_SLICE": str(of_slice), "SEATRIAL_SLICES": "2"}
            assert host_number(4, env, "p") == pod.number
            numbers.append(pod.number)
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("job", "written", "message"),
    [
        (tpu_job("v9", "2x2"), "{}", "unknown TPU type 'v9'; use v4, v5e,"),
        (tpu_job("v6e", "2x2", 2), "{}", "a TPU with 2 hosts needs a JobSet; set `workload: jobset` in the target"),
        (tpu_job("v6e", "4x4"), "{workload: job}", "a TPU with 4 hosts needs a JobSet"),
        (
            changed(hosts=3, resources=Resources(tpu=Tpu("v6e", "2x2", 2))),
            "{workload: jobset}",
            "3 hosts on a TPU with 2",
        ),
        (changed(resources=Resources(tpu=Tpu("v6e", "2x2", 2))), "{workload: jobset}", "1 host on a TPU with 2"),
    ],
)
def test_slices_that_could_not_work_are_refused(job: Job, written: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        made_of(job, options_of(written))
    assert raised.value.outcome is Outcome.REFUSED


def test_a_tpu_of_one_host_needs_no_jobset_and_any_label_of_gke_can_be_named() -> None:
    job = tpu_job("tpu-v5-lite-device", "2x4", chips=8)
    pod = next(pod_templates(made_of(job, options_of("{}")).root))["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "tpu-v5-lite-device"
    assert container(made_of(job, options_of("{}")).root)["resources"]["limits"]["google.com/tpu"] == "8"


def test_tpus_and_other_devices_are_freed_as_soon_as_gpus_are() -> None:
    def keep(found: dict[str, Any]) -> str:
        return next(one["value"] for one in container(found, "keeper")["env"] if one["name"] == "SEATRIAL_KEEP_S")

    assert keep(made("tpu").root) == keep(made("accelerator").root) == keep(made("gpu-model").root)
    assert keep(made_of(JOB, options_of("{}")).root) != keep(made("tpu").root)


SUITE = """
targets: {{cluster: {{kind: kubernetes, workload: jobset}}}}
machines: {{tpu: {{target: cluster, tpu: {tpu}}}, ipu: {{accelerator: {{resource: example.com/ipu, count: 16}}}}}}
trials: {{train: {{kind: training, command: python train.py, machine: [tpu, ipu], needs: {{{needs}}}}}}}
"""


def test_a_training_on_a_tpu_has_a_process_on_each_host(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.format(tpu="{type: v6e, topology: 2x4, slices: 2}", needs="tpu.slices: '>=2', tpu.type: v6e"))
    plan = expand(load(path, *models()))
    (cell,) = plan.cells
    (excluded,) = plan.excluded
    assert "needs tpu.slices >=2, machine ipu has 0" in excluded.why
    job = training.parts(cell)[0].job
    assert job.hosts == job.steps[0].args["hosts"] == 4
    assert job.resources.tpu == Tpu("v6e", "2x4", 2)


def test_another_device_is_a_capability_too(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.format(tpu="{type: v6e, topology: 2x2}", needs="accelerator.resource: example.com/ipu"))
    plan = expand(load(path, *models()))
    assert [cell.machine_name for cell in plan.cells] == ["ipu"]
    assert "machine tpu has no accelerator" in plan.excluded[0].why


@pytest.mark.parametrize(
    ("tpu", "problem"),
    [
        ("{type: v6e, topology: 2x3}", "6 chips cannot be divided into hosts of 4; set `chips`"),
        ("{type: v6e, topology: 2x2, chips: 8}", "4 chips cannot be divided into hosts of 8"),
        ("{type: v6e, topology: 2x2, slices: 1025}", "1025 hosts are too many"),
        ("{type: v6e, topology: 4096x4096}", "hosts are too many"),
        ("{type: v6e, topology: 0x4}", "0x4"),
        ("{type: v6e, topology: 16}", "16"),
        ("{type: v6e}", "topology"),
    ],
)
def test_a_tpu_that_cannot_be_is_refused_when_the_suite_is_read(tmp_path: Path, tpu: str, problem: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.format(tpu=tpu, needs=""))
    with pytest.raises(SuiteError) as raised:
        load(path, *models())
    assert problem in str(raised.value)
