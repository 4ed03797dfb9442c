"""A machine that is lost in the middle of a run, and nobody ever takes it up: on the cluster everything ends by its own
limits and goes away by itself, what holds GPUs first."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster_world import SHARED, ClusterWorld, cluster_world, until

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from target.kubernetes.on_cluster import namespace_of
from world import World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

GPU = "seatrial.test/gpu"  # of which a node can have some without a device
RUN_OBJECT = "seatrial/part=run"
TRIALS = f"""
  waits:
    kind: runtime
    facts: false
    matrix: {{machine: [one, gpu], runtime: python}}
    run: ["echo ${{machine}} >> {SHARED}/ran; sleep 3600"]
    timeout: {{run: 3s}}
"""
# Submits a job, and is killed between making and releasing it.
SUBMITTER = """
import asyncio, os, signal, sys
from seatrial.job import Environment, Job, Step
from seatrial.target.kubernetes import kind

async def main(kubeconfig, namespace, shared, release):
    volumes = [{"host": shared, "at": "/shared", "read_only": False}]
    target = kind.open("t", kind.options(kubeconfig=kubeconfig, namespace=namespace, pull="Never", volumes=volumes))
    await target.open()
    async def killed(*args, **more):
        os.kill(os.getpid(), signal.SIGKILL)
    if release == "no":
        target._client.patch = killed
    step = Step("run", "run", {"command": "echo once >> /shared/ran"})
    python = Environment(image="localhost/python:3")
    job = Job("lost-69b56f04-1", "lost", "69b56f04", 1, "t", (step,), environment=python)
    handle = await target.submit(job, {})
    async for event in target.watch():
        if event.exit:
            break
    await target.remove(handle)
    await target.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        yield cluster_world(world, real_cluster, namespace)


@pytest.fixture
def gpu_node(real_cluster: Cluster) -> None:
    capacity = json.dumps([{"op": "add", "path": f"/status/capacity/{GPU.replace('/', '~1')}", "value": "8"}])
    real_cluster.kubectl("patch", "node", "real-0", "--subresource=status", "--type=json", f"-p={capacity}")
    allocatable = f"jsonpath={{.items[0].status.allocatable.{GPU.replace('.', chr(92) + '.')}}}"
    until(lambda: real_cluster.kubectl("get", "nodes", "-o", allocatable).stdout == "8")


def phases(far: ClusterWorld) -> dict[str, str]:
    """Of pods, by the machine that they ask for."""
    pods = json.loads(far.kubectl("get", "pods", "-l", "seatrial/part=pod", "-o", "json"))["items"]
    return {
        "gpu" if GPU in json.dumps(pod["spec"]["containers"]) else "one": pod["status"]["phase"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def run_object_ends(far: ClusterWorld) -> None:
    """Its days are over; what it owns goes with it."""
    far.kubectl("patch", "jobs", "--type=merge", '-p={"spec":{"ttlSecondsAfterFinished":1}}', *run_objects(far))
    far.gone()


def run_objects(far: ClusterWorld) -> list[str]:
    names = far.kubectl("get", "jobs", "-l", RUN_OBJECT, "-o", "name").split()
    return [name.rpartition("/")[2] for name in names]


@pytest.mark.usefixtures("gpu_node")
def test_what_a_lost_machine_left_ends_and_goes_by_itself_and_gpus_first(far: ClusterWorld) -> None:
    far.trials(TRIALS, gpu_resource=GPU, keep="20s", keep_gpu="1s")
    text = (far.folder / "suite.yaml").read_text()
    gpu = "gpu: {target: cluster, gpu: {count: 1}, cpu: 0.25, memory: 64Mi}"
    far.suite(text.replace("machines: {", f"machines: {{{gpu}, "))
    with far.begun(2):
        assert phases(far) == {"one": "Running", "gpu": "Running"}
    # The trials end by their own limit; of the keepers that of the GPU leaves first.
    until(lambda: phases(far).get("gpu") != "Running", lambda: str(phases(far)))
    assert phases(far).get("one") == "Running"
    until(lambda: not far.kubectl("get", "jobs,pods,configmaps", "-l", "seatrial/job", "-o", "name"))
    assert len(run_objects(far)) == 1
    run_object_ends(far)


def submitter(far: ClusterWorld, release: str) -> int:
    command = [sys.executable, "-c", SUBMITTER, str(far.kubeconfig), far.namespace, str(far.shared), release]
    return subprocess.run(command, env=far.env, timeout=240).returncode


def test_a_job_that_was_made_and_not_released_holds_nothing_and_goes_with_its_run(far: ClusterWorld) -> None:
    assert submitter(far, "no") == -signal.SIGKILL
    (job,) = json.loads(far.kubectl("get", "jobs", "-l", "seatrial/part=job", "-o", "json"))["items"]
    assert job["spec"]["suspend"] is True
    assert far.kubectl("get", "pods", "-o", "name") == ""
    run_object_ends(far)
    assert far.lines() == []


def test_a_job_that_was_made_and_not_released_runs_once_when_it_is_asked_for_again(far: ClusterWorld) -> None:
    assert submitter(far, "no") == -signal.SIGKILL
    assert submitter(far, "yes") == 0
    assert far.lines() == ["once"]
    far.gone()
