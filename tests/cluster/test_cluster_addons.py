"""JobSet, Kueue and the training operator in a cluster: that the real controllers do their work, and nothing else."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leftovers import left_of
from sockets import LOOPBACK, listening

from cluster.addons import ADDONS, chosen, had
from cluster.api import ApiError
from cluster.bring_up import BringUp, merged
from cluster.build import built
from cluster.cluster import Cluster, up
from cluster.control_plane import Part
from cluster.errors import ClusterError, Different, PartFailed, Unavailable
from cluster.fixtures import needs_addon, queue
from cluster.folder import Folder, Options, Record

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 300.0
QUEUE = "kueue.x-k8s.io/queue-name"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
Object = dict[str, Any]


@pytest.fixture
def namespace(addons_cluster: Cluster) -> Iterator[str]:
    name = f"addons-{secrets.token_hex(4)}"
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    addons_cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": strict}})
    yield name
    addons_cluster.kubectl("delete", "namespace", name, "--wait=false")


_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _pods(container: str, gpus: int, fits: bool = True) -> Object:
    """A template. Pods that fit no node stay pending, and so hold what their queue gave them."""
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"cpu": "1"}}
    where = {} if fits else {"nodeSelector": {"none": "such"}}
    one = {"name": container, "image": "none", "resources": resources, "securityContext": _SECURITY}
    return {"spec": {"restartPolicy": "Never", "containers": [one], **where}}


def _labels(queue_name: str) -> Object:
    return {"labels": {QUEUE: queue_name}} if queue_name else {}


def _job(name: str, gpus: int, queue_name: str = "", fits: bool = True) -> Object:
    spec = {"backoffLimit": 0, "suspend": bool(queue_name), "template": _pods("trial", gpus, fits)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **_labels(queue_name)}, "spec": spec}


def _jobset(name: str, gpus: int, queue_name: str = "") -> Object:
    of_one = {"spec": {"backoffLimit": 0, "completions": 2, "parallelism": 2, "template": _pods("trial", gpus)}}
    spec = {"suspend": bool(queue_name), "replicatedJobs": [{"name": "hosts", "replicas": 2, "template": of_one}]}
    metadata = {"name": name, **_labels(queue_name)}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _pytorchjob(name: str, gpus: int, queue_name: str = "", workers: int = 1, container: str = "pytorch") -> Object:
    def replicas(count: int) -> Object:
        return {"replicas": count, "restartPolicy": "Never", "template": _pods(container, gpus)}

    spec = {
        "runPolicy": {"suspend": bool(queue_name)},
        "pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(workers)},
    }
    metadata = {"name": name, **_labels(queue_name)}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def _await(look: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + WITHIN_S
    while not (seen := look()):
        assert time.monotonic() < until, f"not within {WITHIN_S:.0f} s: {what}"
        time.sleep(0.1)
    return seen


def _true(one: Object, condition: str) -> bool:
    conditions = one.get("status", {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def _await_condition(cluster: Cluster, path: str, condition: str) -> Object:
    def look() -> Object | None:
        one: Object = cluster.request("GET", path)
        return one if _true(one, condition) else None

    found: Object = _await(look, f"{path} is {condition}")
    return found


def _items(cluster: Cluster, namespace: str, what: str) -> list[Object]:
    return list(json.loads(cluster.kubectl("get", what, "-n", namespace, "-o", "json").stdout)["items"])


@pytest.mark.cluster
def test_the_jobs_of_a_jobset_run_to_completion(addons_cluster: Cluster, namespace: str) -> None:
    needs_addon("jobset")
    path = JOBSETS.format(namespace)
    addons_cluster.request("POST", path, _jobset("set", gpus=4))
    done = _await_condition(addons_cluster, f"{path}/set", "Completed")
    assert done["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed", "as its webhook says"
    jobs = _items(addons_cluster, namespace, "jobs")
    assert sorted(job["metadata"]["name"] for job in jobs) == ["set-hosts-0", "set-hosts-1"]
    assert all(job["status"]["succeeded"] == 2 and _true(job, "Complete") for job in jobs)
    assert [one["metadata"]["name"] for one in _items(addons_cluster, namespace, "services")] == ["set"]
    addons_cluster.kubectl("delete", "jobset", "set", "-n", namespace)
    _await(lambda: not _items(addons_cluster, namespace, "jobs"), "its jobs go with it")


@pytest.mark.cluster
def test_wrong_objects_are_refused_by_the_webhooks_of_their_controllers(
    addons_cluster: Cluster, namespace: str
) -> None:
    needs_addon("jobset")
    twice = _jobset("set", gpus=1)
    twice["spec"]["replicatedJobs"][0]["dependsOn"] = [{"name": "nobody", "status": "Ready"}]
    with pytest.raises(ApiError, match="admission webhook"):
        addons_cluster.request("POST", JOBSETS.format(namespace), twice)
    needs_addon("training-operator")
    with pytest.raises(ApiError, match="at least one container with name pytorch"):
        addons_cluster.request("POST", PYTORCHJOBS.format(namespace), _pytorchjob("p", 1, container="trial"))
    assert not _items(addons_cluster, namespace, "jobsets,pytorchjobs")


@pytest.mark.cluster
def test_a_queued_job_is_admitted_and_one_over_the_quota_waits_until_room_comes(
    addons_cluster: Cluster, namespace: str
) -> None:
    needs_addon("kueue")
    path = JOBS.format(namespace)
    with queue(addons_cluster, namespace, gpus=8) as name:
        addons_cluster.request("POST", path, _job("first", 6, name, fits=False))
        _await(lambda: not addons_cluster.request("GET", f"{path}/first")["spec"]["suspend"], "the first is admitted")
        addons_cluster.request("POST", path, _job("second", 6, name))
        said = _await(lambda: _why_it_waits(addons_cluster, namespace, "second"), "it is said why the second waits")
        assert "insufficient unused quota for nvidia.com/gpu" in said
        assert addons_cluster.request("GET", f"{path}/second")["spec"]["suspend"] is True
        assert not addons_cluster.request("GET", f"{path}/second")["status"].get("active")
        addons_cluster.kubectl("delete", "job", "first", "-n", namespace)
        _await_condition(addons_cluster, f"{path}/second", "Complete")
        addons_cluster.request("POST", path, _job("without", 1))
        _await_condition(addons_cluster, f"{path}/without", "Complete")

        def owners() -> set[str]:
            workloads = _items(addons_cluster, namespace, "workloads")
            return {one["metadata"]["ownerReferences"][0]["name"] for one in workloads}

        _await(lambda: owners() <= {"second", "without"}, "that of the first goes with it")
        assert owners() == {"second"}, "a job without the label is not its business"


def _why_it_waits(cluster: Cluster, namespace: str, job: str) -> str:
    for workload in _items(cluster, namespace, "workloads"):
        if workload["metadata"]["ownerReferences"][0]["name"] == job:
            conditions = workload.get("status", {}).get("conditions") or []
            reserved = [one for one in conditions if one["type"] == "QuotaReserved"]
            return next((str(one["message"]) for one in reserved if one["status"] == "False"), "")
    return ""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("addon", "path", "make", "running"),
    [
        ("jobset", JOBSETS, _jobset, "Completed"),
        ("training-operator", PYTORCHJOBS, _pytorchjob, "Running"),
    ],
)
def test_kueue_also_queues_what_the_other_addons_define(
    addons_cluster: Cluster,
    namespace: str,
    addon: str,
    path: str,
    make: Callable[[str, int, str], Object],
    running: str,
) -> None:
    needs_addon("kueue")
    needs_addon(addon)
    where = path.format(namespace)
    with queue(addons_cluster, namespace, gpus=8) as name:
        addons_cluster.request("POST", JOBS.format(namespace), _job("holder", 8, name, fits=False))
        holder = f"{JOBS.format(namespace)}/holder"
        _await(lambda: not addons_cluster.request("GET", holder)["spec"]["suspend"], "the holder is admitted")
        addons_cluster.request("POST", where, make("waits", 1, name))
        _await(lambda: _why_it_waits(addons_cluster, namespace, "waits"), "it is said why it waits")
        pods = _items(addons_cluster, namespace, "pods")
        assert {one["metadata"]["ownerReferences"][0]["name"] for one in pods} <= {"holder"}
        addons_cluster.kubectl("delete", "job", "holder", "-n", namespace)
        _await_condition(addons_cluster, f"{where}/waits", running)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("addon", "path", "make", "running"),
    [
        ("kueue", JOBS, _job, "Complete"),
        ("jobset", JOBSETS, _jobset, "Completed"),
        ("training-operator", PYTORCHJOBS, _pytorchjob, "Running"),
    ],
)
def test_what_waits_suspended_is_queued_when_it_is_given_the_label(
    addons_cluster: Cluster,
    namespace: str,
    addon: str,
    path: str,
    make: Callable[[str, int, str], Object],
    running: str,
) -> None:
    needs_addon("kueue")
    needs_addon(addon)
    where = path.format(namespace)
    with queue(addons_cluster, namespace, gpus=8) as name:
        body = make("late", 1, name)
        del body["metadata"]["labels"]
        addons_cluster.request("POST", where, body)
        assert not _items(addons_cluster, namespace, "workloads")
        addons_cluster.kubectl("label", body["kind"].lower(), "late", f"{QUEUE}={name}", "-n", namespace)
        _await_condition(addons_cluster, f"{where}/late", running)


@pytest.mark.cluster
def test_a_queue_can_be_read_in_both_versions_of_kueues_api(addons_cluster: Cluster, namespace: str) -> None:
    """They are stored in one and converted by its webhook."""
    needs_addon("kueue")
    with queue(addons_cluster, namespace, gpus=8):
        for version, field in (("v1beta1", "cohort"), ("v1beta2", "cohortName")):
            path = f"/apis/kueue.x-k8s.io/{version}/clusterqueues/{namespace}-queue"
            body: Object = addons_cluster.request("GET", path)
            body["spec"][field] = f"by-{version}"
            addons_cluster.request("PUT", path, body)
            other = addons_cluster.kubectl(
                "get", f"clusterqueue.v1beta1.kueue.x-k8s.io/{namespace}-queue", "-o", "json"
            )
            assert json.loads(other.stdout)["spec"]["cohort"] == f"by-{version}"


@pytest.mark.cluster
def test_the_hosts_of_a_pytorchjob_know_their_rank_and_their_master(addons_cluster: Cluster, namespace: str) -> None:
    needs_addon("training-operator")
    path = PYTORCHJOBS.format(namespace)
    addons_cluster.request("POST", path, _pytorchjob("train", gpus=8, workers=2))
    _await_condition(addons_cluster, f"{path}/train", "Running")
    pods = _await(lambda: [pods for pods in [_items(addons_cluster, namespace, "pods")] if len(pods) == 3], "3 pods")[0]
    ranks = {}
    for pod in pods:
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        ranks[pod["metadata"]["name"]] = variables["RANK"]
        assert variables["MASTER_ADDR"] == "train-master-0"
        assert variables["WORLD_SIZE"] == "3"
    assert ranks == {"train-master-0": "0", "train-worker-0": "1", "train-worker-1": "2"}

    def services() -> set[str]:
        return {one["metadata"]["name"] for one in _items(addons_cluster, namespace, "services")}

    _await(lambda: services() == set(ranks), "a name for each host")


@pytest.mark.cluster
def test_they_listen_on_loopback_only_and_have_the_rights_of_their_own_manifests(addons_cluster: Cluster) -> None:
    """Whoever is not an administrator and lacks a right is refused, and that is in the audit log."""
    assert set(addons_cluster.options.addons) <= set(addons_cluster.parts())
    assert listening(addons_cluster.parts().values()) == {LOOPBACK}
    for name in addons_cluster.options.addons:
        opened = {os.readlink(link) for link in Path(f"/proc/{addons_cluster.parts()[name]}/fd").iterdir()}
        assert "anon_inode:inotify" not in opened, "of these a user may have few, and the control plane takes many"
    decisions: dict[str, set[str]] = {}
    for line in addons_cluster.audit_log.read_text().splitlines():
        entry = json.loads(line)
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision", "")
        decisions.setdefault(entry["user"]["username"], set()).add(decision)
    for name in addons_cluster.options.addons:
        account = ":".join(ADDONS[name].account)
        assert decisions[f"system:serviceaccount:{account}"] == {"allow"}, name
        refused = addons_cluster.kubectl(
            "auth", "can-i", "*", "*", f"--as=system:serviceaccount:{account}", check=False
        )
        assert refused.stdout.strip() == "no"


@pytest.mark.cluster
def test_addons_come_to_a_cluster_that_is_there_come_back_after_a_crash_and_leave_nothing(
    bring_up: Callable[..., Cluster],
) -> None:
    needs_addon("jobset")
    with bring_up("grows", fake_nodes=1) as small:
        place = small.folder.parent
        grown = up("grows", addons=["jobset"], place=place)
        assert grown.options == Options(1, 0, False, 0, ("jobset",))
        assert up("grows", place=place) == grown, "what is there need not be said again"
        path = JOBSETS.format("default")
        grown.kill("jobset")
        assert grown.missing() == ["jobset"]
        with pytest.raises(ApiError, match="failed calling webhook"):
            grown.request("POST", path, _jobset("set", gpus=0))
        assert up("grows", place=place).ready()
        grown.request("POST", path, _jobset("set", gpus=0))
        _await_condition(grown, f"{path}/set", "Completed")
    assert left_of(small.folder) == []


@pytest.mark.cluster
def test_one_that_cannot_start_is_told_with_its_last_lines_and_nothing_is_left(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_addon("jobset")
    monkeypatch.setitem(ADDONS, "jobset", replace(ADDONS["jobset"], flags=("--no-such-flag",)))
    with pytest.raises(PartFailed, match=r"jobset (did not start|ended)") as failed:
        up("wrong", addons=["jobset"], place=place)
    assert "flag provided but not defined: -no-such-flag" in failed.value.lines
    assert left_of(place / "wrong") == []


@pytest.mark.cluster
def test_when_another_program_is_quicker_with_its_port_it_takes_another_and_is_asked_there(
    bring_up: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_addon("jobset")
    start = BringUp._start
    with socket.socket() as other:

        def is_slow(self: BringUp, part: Part, address: str) -> None:
            if part.name == "jobset" and not other.getsockname()[1]:
                other.bind(("127.0.0.1", part.port))
                other.listen()
            start(self, part, address)

        monkeypatch.setattr(BringUp, "_start", is_slow)
        with bring_up("second", addons=["jobset"]) as second:
            assert other.getsockname()[1]
            assert second.ready()
            with pytest.raises(ApiError, match="admission webhook"):
                second.request("POST", *ADDONS["jobset"].wrong)


def test_addons_have_one_order_and_an_unknown_one_is_answered_with_the_nearest() -> None:
    assert chosen(["kueue", "jobset", "kueue"]) == chosen(["jobset", "kueue"])
    assert set(chosen(ADDONS)) == set(ADDONS)
    with pytest.raises(ClusterError, match=r"no addon 'job-set'\.\nDid you mean jobset"):
        chosen(["jobset", "job-set"])
    for argv in (["up", "x"], ["build"]):
        said = subprocess.run(
            [sys.executable, "-m", "cluster", *argv, "--with", "volcano"], cwd=ROOT, capture_output=True, text=True
        )
        assert said.returncode == 1
        assert "There are: jobset, training-operator, kueue." in said.stderr


def test_a_cluster_that_was_made_before_there_were_addons_is_not_given_any(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "old")
    folder.make()
    folder.write(Record(Options(), {"api": 20001}))
    written = json.loads((folder.path / "cluster.json").read_text())
    del written["options"]["addons"]
    (folder.path / "cluster.json").write_text(json.dumps(written))
    record = folder.read()
    assert record is not None
    assert merged("old", record, Options()) == Options()
    with pytest.raises(Different, match="kueue"):
        merged("old", record, Options(addons=("kueue",)))


@pytest.mark.parametrize("name", ADDONS)
def test_one_whose_modules_cannot_be_had_is_a_lack_of_this_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "empty"))
    with pytest.raises(Unavailable, match=f"modules of {name} cannot be had|no Go to build"):
        built(ADDONS[name].program)


def test_one_whose_manifests_cannot_be_had_is_a_lack_of_this_machine(
    tmp_path: Path, kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program is in the cache, but Go's own cache was emptied before its manifests were taken."""
    needs_addon("jobset")
    binary = had(ADDONS["jobset"], kubernetes)
    monkeypatch.setenv("SEATRIAL_CACHE", str(tmp_path / "cache"))
    again = tmp_path / "cache/cluster/built" / binary.parent.name / binary.name
    again.parent.mkdir(parents=True)
    again.symlink_to(binary)
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "empty"))
    with pytest.raises(Unavailable, match="modules of jobset cannot be had"):
        had(ADDONS["jobset"], kubernetes)
    assert not again.with_name("manifests.json").exists()
