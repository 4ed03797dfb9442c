"""A machine that is lost in the middle of a run, and nobody ever takes it up: on the cluster everything ends by its own
limits and goes away by itself, what holds GPUs first."""

import base64
import contextlib
import http.server
import json
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_world import SHARED, ClusterWorld, cluster_world, until, waiting

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from targets.kubernetes.on_cluster import namespace_of
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
    timeout: {{run: 20s}}
"""
# Submits a job, and is killed between making and releasing it.
SUBMITTER = """
import asyncio, os, signal, sys
from seatrial.job import Environment, JobSpec, Step
from seatrial.targets.kubernetes import kind

async def main(kubeconfig, namespace, shared, release):
    volumes = [{"host": shared, "at": "/shared", "read_only": False}]
    target = kind.open("t", kind.options(kubeconfig=kubeconfig, namespace=namespace, pull="Never", volumes=volumes))
    await target.open()
    async def killed(*args, **more):
        os.kill(os.getpid(), signal.SIGKILL)
    if release == "no":
        target._client.patch = killed
    step = Step("run", "command", {"command": "echo once >> /shared/ran"})
    python = Environment(image="localhost/python:3")
    spec = JobSpec("t", (step,), environment=python)
    job = spec.for_attempt("lost", "69b56f04", 1)
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
def test_what_a_lost_machine_left_ends_by_itself_gpus_first_and_goes_with_its_run(far: ClusterWorld) -> None:
    on_gpu(far, TRIALS, keep="1h", keep_gpu="1s")
    with far.begun(2):
        assert phases(far) == {"one": "Running", "gpu": "Running"}
    # The trials end by their own limit; of the keepers that of the GPU leaves first.
    until(lambda: phases(far).get("gpu") != "Running", lambda: str(phases(far)))
    assert phases(far).get("one") == "Running"
    assert len(run_objects(far)) == 1
    run_object_ends(far)


def test_a_trial_that_succeeded_leaves_a_complete_job_which_the_cluster_deletes(far: ClusterWorld) -> None:
    far.trials(waiting("[1]"), keep="10s")
    with far.begun(1):
        pass
    far.go()
    seen = set()

    def conditions() -> list[str]:
        jobs = json.loads(far.kubectl("get", "jobs", "-l", "seatrial/part=job", "-o", "json"))["items"]
        found = [one["type"] for job in jobs for one in job["status"].get("conditions", ()) if one["status"] == "True"]
        seen.update(found)
        return found

    until(lambda: "Complete" in conditions(), lambda: str(seen))
    assert not seen & {"Failed", "FailureTarget"}
    until(lambda: "seatrial/part=job" not in far.kubectl("get", "jobs,pods,secrets,configmaps", "--show-labels"))
    assert far.kubectl("get", "pods", "-o", "name") == ""
    assert len(run_objects(far)) == 1
    run_object_ends(far)


def submitter(far: ClusterWorld, release: str) -> int:
    command = [sys.executable, "-c", SUBMITTER, str(far.kubeconfig), far.namespace, str(far.shared), release]
    return subprocess.run(command, env=far.env, timeout=600).returncode


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


# ---- others in the pod that never end

DEAF = 'trap "" TERM; while true; do sleep 1; done'  # hears no polite word
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SIDECAR = {
    "name": "proxy", "image": "localhost/busybox:1", "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", DEAF],
    "securityContext": RESTRICTED,
}  # fmt: skip
NATIVE = {**SIDECAR, "name": "native", "restartPolicy": "Always"}
ONE = f"""
  works:
    kind: runtime
    facts: false
    retries: 0
    matrix: {{machine: gpu, runtime: python}}
    run: ["echo one >> {SHARED}/ran; echo kept > $SEATRIAL_FILES/a; until test -e {SHARED}/go; do sleep 0.1; done"]
    timeout: {{run: 1h, grace: 1s}}
"""


def on_gpu(far: ClusterWorld, trials: str, **target: Any) -> None:
    far.trials(trials, gpu_resource=GPU, **target)
    text = (far.folder / "suite.yaml").read_text()
    gpu = "gpu: {target: cluster, gpu: {count: 1}, cpu: 0.25, memory: 64Mi}"
    far.suite(text.replace("machines: {", f"machines: {{{gpu}, "))


def containers_running(far: ClusterWorld) -> list[str]:
    (pod,) = json.loads(far.kubectl("get", "pods", "-l", "seatrial/part=pod", "-o", "json"))["items"]
    return [one["name"] for one in pod["status"].get("containerStatuses", []) if "running" in one["state"]]


def gpus_in_use(far: ClusterWorld) -> list[str]:
    """Pods that hold a place on their node."""
    pods = json.loads(far.kubectl("get", "pods", "-l", "seatrial/part=pod", "-o", "json"))["items"]
    return [one["metadata"]["name"] for one in pods if one["status"]["phase"] not in ("Succeeded", "Failed")]


@pytest.mark.usefixtures("gpu_node")
def test_sidecars_of_either_sort_that_hear_nothing_do_not_outlive_the_run(far: ClusterWorld) -> None:
    on_gpu(far, ONE, template={"spec": {"containers": [SIDECAR], "initContainers": [NATIVE]}})
    far.go()
    far.seatrial("run", "suite.yaml", check=0)
    assert gpus_in_use(far) == []
    far.gone()


@pytest.mark.usefixtures("gpu_node")
def test_an_injected_sidecar_of_a_lost_run_ends_with_the_deadline_of_its_pod(far: ClusterWorld) -> None:
    with injected(far, SIDECAR):
        on_gpu(far, ONE, keep_gpu="1s")
        with far.begun(1):
            pass
        (pod,) = json.loads(far.kubectl("get", "pods", "-l", "seatrial/part=pod", "-o", "json"))["items"]
        assert [one["name"] for one in pod["spec"]["containers"]] == ["trial", "keeper", "proxy"]
        far.go()
        until(lambda: containers_running(far) == ["proxy"], lambda: str(containers_running(far)))
        assert pod["spec"]["activeDeadlineSeconds"] < 2 * 3600
        far.kubectl("patch", "pod", pod["metadata"]["name"], '-p={"spec": {"activeDeadlineSeconds": 1}}')
        until(lambda: not gpus_in_use(far), "the sidecar still holds the pod")
    # The pod failed by its deadline, but the trial had reported its end.
    result = far.seatrial("attach", "last")
    assert result.returncode == 0, result.stdout
    far.gone()


@pytest.mark.usefixtures("gpu_node")
def test_reap_takes_a_trial_that_has_ended_for_ended_whatever_is_still_in_its_pod(far: ClusterWorld) -> None:
    on_gpu(far, ONE, template={"spec": {"containers": [SIDECAR]}})
    with far.begun(1):
        pass
    far.forgotten()
    assert "kept: still running" in far.elsewhere("reap", "--target", far.on_target).stdout
    assert len(gpus_in_use(far)) == 1
    far.go()
    state = "jsonpath={..containerStatuses[?(@.name=='trial')].state}"
    until(lambda: "terminated" in far.kubectl("get", "pods", "-o", state))
    far.elsewhere("reap", "--target", far.on_target)
    assert gpus_in_use(far) == []
    far.gone()


@contextlib.contextmanager
def injected(far: ClusterWorld, container: dict[str, Any]) -> Iterator[None]:
    """A real webhook of the cluster that puts a container into every new pod of the namespace."""
    steps = [{"op": "add", "path": "/spec/containers/-", "value": container}]
    patch = base64.b64encode(json.dumps(steps).encode()).decode()

    class Inject(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
            body = json.dumps({**{key: review[key] for key in ("apiVersion", "kind")}, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    cert, key = far.folder / "hook.crt", far.folder / "hook.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=hook", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *name, "-keyout", key, "-out", cert], check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inject)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = {
        "name": "inject.seatrial.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": base64.b64encode(cert.read_bytes()).decode(),
        },
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": far.namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }  # fmt: skip
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    manifest = far.folder / "hook.json"
    manifest.write_text(json.dumps({**head, "metadata": {"name": far.namespace}, "webhooks": [hook]}))
    far.kubectl("apply", "-f", str(manifest))
    try:  # it counts a moment after it was made
        tried = ("run", "tried", "--image=x", "--dry-run=server", "-o", "json")
        until(lambda: f'"{container["name"]}"' in far.kubectl(*tried), "the webhook is not asked")
        yield
    finally:
        far.kubectl("delete", "-f", str(manifest))
        server.shutdown()
        server.server_close()
