"""A real node: pods are processes of this machine, and nothing of them is left."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leftovers import left_of

from cluster import image, processes, real_node
from cluster.cluster import Cluster, down, up
from cluster.errors import Unavailable
from cluster.folder import Folder
from world import EVERY

pytestmark = pytest.mark.cluster
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def namespace(real_cluster: Cluster) -> Iterator[str]:
    name = f"t{os.getpid()}-{time.time_ns() % 10**9}"
    real_cluster.kubectl("create", "namespace", name)
    yield name
    real_cluster.kubectl("delete", "namespace", name, "--wait=false")


def _pod(name: str, *command: str, image_name: str = image.BUSYBOX, **container: object) -> dict[str, Any]:
    one = {"name": "c", "image": image_name, "imagePullPolicy": "Never", "command": list(command), **container}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [one]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def _apply(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("--namespace", namespace, "apply", "-f", "-", input=json.dumps(items))


def _until(what: Callable[[], object], wait_s: float = 600.0) -> Any:
    until = time.monotonic() + wait_s
    while not (found := what()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.2)
    return found


def _ended(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    def look() -> Any:
        pod = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        states = pod["status"].get("containerStatuses", [])
        return states and states[0]["state"].get("terminated")

    return dict(_until(look))


def _run(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> tuple[dict[str, Any], str]:
    _apply(cluster, namespace, pod)
    name = pod["metadata"]["name"]
    ended = _ended(cluster, namespace, name)
    return ended, cluster.kubectl("--namespace", namespace, "logs", name).stdout


def test_exit_codes_logs_and_memory_limits_are_real(real_cluster: Cluster, namespace: str) -> None:
    ended, log = _run(real_cluster, namespace, _pod("three", "sh", "-c", "echo out; echo err >&2; exit 3"))
    assert (ended["exitCode"], sorted(log.split())) == (3, ["err", "out"])
    greedy = _pod(
        "greedy",
        "python3",
        "-c",
        "x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096])",
        image_name=image.PYTHON,
        resources={"limits": {"memory": "64Mi"}},
    )
    ended, _ = _run(real_cluster, namespace, greedy)
    assert ended["exitCode"] == 137
    assert ended["reason"] in ("OOMKilled", "Error"), "containerd may learn of the reason after the end"


def test_a_pod_under_the_restricted_standard_has_python_names_services_and_the_api(
    real_cluster: Cluster, namespace: str
) -> None:
    real_cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    program = """
import socket, ssl, urllib.request, time
def tried(what):
    for _ in range(3000):
        try: return what()
        except OSError as error: time.sleep(0.2)
    return repr(error)
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
trust = ssl.create_default_context(cafile=account + "ca.crt")
asked = urllib.request.Request("https://kubernetes.default.svc/version",
                               headers={"Authorization": "Bearer " + open(account + "token").read()})
print("api", tried(lambda: urllib.request.urlopen(asked, context=trust).status))
print("host", len({tried(lambda n=n: socket.gethostbyname(f"hosts-{n}.workers")) for n in (0, 1)}))
print("service", tried(lambda: urllib.request.urlopen("http://web").status))
"""
    container = {
        "name": "c",
        "image": image.PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", program],
        "securityContext": RESTRICTED,
    }
    template = {"spec": {"subdomain": "workers", "restartPolicy": "Never", "containers": [container]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "hosts"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": template,
        },
    }
    web = _pod(
        "web", "python3", "-m", "http.server", "8000", "-d", "/tmp", image_name=image.PYTHON, securityContext=RESTRICTED
    )
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "workers"},
            "spec": {"clusterIP": "None", "selector": {"job-name": "hosts"}, "publishNotReadyAddresses": True},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
        },
    ]
    _apply(real_cluster, namespace, *services, web, job)
    real_cluster.kubectl("--namespace", namespace, "wait", "job/hosts", "--for=condition=Complete", "--timeout=600s")
    log = real_cluster.kubectl("--namespace", namespace, "logs", "job/hosts", "--all-pods").stdout
    said = [line.partition("] ")[2] for line in log.splitlines()]
    assert sorted(said) == ["api 200"] * 2 + ["host 2"] * 2 + ["service 200"] * 2
    pod = real_cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/web")
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8000/", timeout=600) as answer:
        assert answer.status == 200, "pods are reached from this machine"
    _proves_port_forward(real_cluster, namespace)


def _proves_port_forward(cluster: Cluster, namespace: str) -> None:
    kubernetes = Folder(cluster.folder).read().programs["kubernetes"]  # type: ignore[union-attr]
    command = [kubernetes, "kubectl", f"--kubeconfig={cluster.kubeconfig}", "-n", namespace]
    with subprocess.Popen([*command, "port-forward", "pod/web", ":8000"], stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = int(forward.stdout.readline().split(" -> ")[0].rpartition(":")[2])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=600) as answer:
            assert answer.status == 200
        forward.terminate()


def test_the_hosts_python_can_be_lent_by_its_path_and_exec_has_input_and_exit_codes(
    real_cluster: Cluster, namespace: str
) -> None:
    volumes = {"python": sys.base_prefix, "lib": "/lib", "lib64": "/lib64", "usr-lib": "/usr/lib"}
    mounts = [
        {"name": name, "mountPath": path, "readOnly": True} for name, path in volumes.items() if Path(path).exists()
    ]
    pod = _pod("lent", "sleep", "300", volumeMounts=mounts)
    pod["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path}} for name, path in volumes.items() if Path(path).exists()
    ]
    _apply(real_cluster, namespace, pod)
    real_cluster.kubectl("-n", namespace, "wait", "pod/lent", "--for=condition=Ready", "--timeout=600s")
    python = Path(sys.executable).resolve()
    said = real_cluster.kubectl(
        "-n",
        namespace,
        "exec",
        "-i",
        "lent",
        "--",
        str(python),
        "-",
        check=False,
        input="import sys; print(6 * 7); sys.exit(5)",
    )
    assert (said.stdout, said.returncode) == ("42\n", 5), said.stderr


def test_a_pod_that_fills_its_volume_is_evicted(real_cluster: Cluster, namespace: str) -> None:
    pod = _pod("fills", "sh", "-c", "dd if=/dev/zero of=/v/x bs=1M count=64; sleep 300")
    pod["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "8Mi"}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    _apply(real_cluster, namespace, pod)
    path = f"/api/v1/namespaces/{namespace}/pods/fills"
    assert _until(lambda: real_cluster.request("GET", path)["status"].get("reason")) == "Evicted"


def test_the_machines_own_places_are_not_touched(real_cluster: Cluster) -> None:
    """What other containerds and kubelets of this machine would use."""
    seen = real_cluster.in_node("ls", "/run/containerd", "/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods")
    assert seen.returncode == 0, seen.stderr
    ours = real_cluster.folder / "node" / "lib" / "kubelet"
    assert ours.is_dir()
    for place in ("/run/containerd/containerd.sock", "/var/lib/kubelet", "/var/lib/containerd"):
        if Path(place).exists():
            assert not Path(place).samefile(ours)
    assert not [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(real_cluster.folder) in line]
    rules = shutil.which("iptables-save")
    if rules:
        assert "KUBE-" not in subprocess.run([rules], capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def own_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # So deep that the path of a socket in it would be longer than the 107 characters that one may have.
    place = tmp_path_factory.mktemp("own") / ("deep-" * 12) / ("deeper-" * 8)
    yield place
    down("own", place=place)


@pytest.fixture
def own(own_place: Path) -> Cluster:
    """One that these tests may break, with a pod that goes on. What the test before broke is brought up again."""
    try:
        made = up("own", kubelet=True, place=own_place)
    except Unavailable as error:
        pytest.skip(f"no cluster here: {error.what}")
    made.kubectl("delete", "pods", "--all", "--ignore-not-found", "--now")
    _apply(made, "default", _pod("lives", "sh", "-c", "trap exit TERM; while :; do echo tick; sleep 0.2; done"))
    made.kubectl("wait", "pod/lives", "--for=condition=Ready", "--timeout=600s")
    return made


def _started_at(cluster: Cluster, pod: str) -> tuple[int, str]:
    status = cluster.request("GET", f"/api/v1/namespaces/default/pods/{pod}")["status"]["containerStatuses"][0]
    return status["restartCount"], status["state"]["running"]["startedAt"]


def test_pods_live_on_when_kubelet_and_containerd_die_and_come_back(own: Cluster) -> None:
    before = _started_at(own, "lives")
    for part in ("kubelet", "containerd"):
        own.kill(part)
    assert own.missing() == ["containerd", "kubelet"]
    assert up(own.name, place=own.folder.parent) == own
    _apply(own, "default", _pod("next", "true"))
    assert _ended(own, "default", "next")["exitCode"] == 0
    assert _started_at(own, "lives") == before


def test_up_again_touches_nothing_that_runs(own: Cluster) -> None:
    """kube-proxy ends when its settings are written; without it no service is reached."""

    def there() -> tuple[dict[str, int], dict[str, int]]:
        settings = [path for path in (own.folder / "node" / "settings").rglob("*") if path.is_file()]
        return processes.parts(own.folder), {str(path): path.stat().st_mtime_ns for path in settings}

    before = there()
    assert "proxy" in before[0]
    assert up(own.name, place=own.folder.parent) == own
    assert there() == before


def test_a_node_that_is_cut_off_is_noticed_and_comes_back(own: Cluster) -> None:
    def ready() -> str:
        conditions = own.request("GET", "/api/v1/nodes/real-0")["status"]["conditions"]
        return str(next(one["status"] for one in conditions if one["type"] == "Ready"))

    own.connect_node(False)
    _until(lambda: ready() == "Unknown")
    own.connect_node(True)
    _until(lambda: ready() == "True")


def test_a_node_that_dies_takes_its_pods_with_it_and_is_booted_again(own: Cluster) -> None:
    group = Folder(own.folder).control_group
    assert _members(group), "its pod runs in the cluster's control group"
    own.kill("node")
    assert _until(lambda: not _members(group))
    assert set(own.missing()) == {"node", "containerd", "kubelet", "proxy", "names"}
    assert up(own.name, place=own.folder.parent).ready()
    _apply(own, "default", _pod("after", "true"))
    assert _ended(own, "default", "after")["exitCode"] == 0


def _members(group: str) -> list[str]:
    found: list[str] = []
    for at, _, names in os.walk("/sys/fs/cgroup"):
        if f"/{group}/" in f"{at}/" and "cgroup.procs" in names:
            with contextlib.suppress(OSError):
                found += Path(at, "cgroup.procs").read_text().split()
    return found


def test_killed_all_over_and_taken_down_nothing_is_left(own: Cluster) -> None:
    inside = own.in_node("sh", "-c", "ls /proc | grep -c '^[0-9]'")
    assert int(inside.stdout) > 5
    for process in processes.find(own.folder):
        if process.part != "node":
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    members = _members(Folder(own.folder).control_group)
    assert down(own.name, place=own.folder.parent)
    assert left_of(own.folder) == []
    assert not [pid for pid in members if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("seed", range(20 if EVERY else 2))
def test_killed_while_a_real_node_comes_up_and_taken_down_nothing_is_left(
    tmp_path: Path, kubernetes: Path, root: None, seed: int
) -> None:
    try:
        real_node.check_machine()
    except Unavailable as error:
        pytest.skip(error.what)
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster", "up", "--dir", str(tmp_path), "killed", "--kubelet"],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wanted = ["node", "containerd", "kubelet"][seed % 3]
    _until(lambda: wanted in processes.parts(tmp_path.resolve() / "killed") or process.poll() is not None)
    time.sleep(0.3 * (seed // 3))
    process.kill()
    process.wait()
    down("killed", place=tmp_path)
    assert left_of(tmp_path / "killed") == []


def test_a_real_node_without_root_or_containerd_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(Unavailable, match="needs root"):
            up("real", kubelet=True, place=tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        shutil, "which", lambda program, path=None: None if program in ("containerd", "ctr") else "/bin/true"
    )
    with pytest.raises(Unavailable, match="apt-get install containerd"):
        up("real", kubelet=True, place=tmp_path)
    assert list(tmp_path.iterdir()) == []
