"""What is measured on a real API server: stages of objects that belong to workloads, who evicted pods, the server's own
audit log, and what is known when the server goes away in the middle."""

import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.cluster import up
from cluster.errors import Unavailable
from cluster.fixtures import FAKE_NODES, GPUS, cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, scale_world, wait_for
from seatrial.job import Verdict
from world import World

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(1200)
FREE: dict[str, Any] = {"failed": 1000, "unfinished": 1000}


@pytest.fixture
def alone(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScaleWorld]:
    """On a cluster of its own: what is done to it would disturb whoever else uses one."""
    try:
        made = up(
            f"alone-{uuid.uuid4().hex[:6]}", fake_nodes=FAKE_NODES, gpus=GPUS, place=tmp_path_factory.mktemp("clusters")
        )
    except Unavailable as error:
        pytest.skip(f"no cluster here: {error.what}")
    with made, scale_world(world, made) as scale:
        yield scale


def stamps(scale: ScaleWorld) -> list[dict[str, Any]]:
    lines = (scale.attempt() / "files/stamps.jsonl").read_text().splitlines()
    return [found for found in map(json.loads, lines) if "workload" in found]


def test_when_pods_were_bound_comes_from_the_audit_log_and_clocks_agree(scale: ScaleWorld) -> None:
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}}
    foreign["spec"] = {"containers": [{"name": "x", "image": "x"}], "schedulingGates": [{"name": "seatrial/test"}]}
    scale.cluster.kubectl("-n", scale.namespace, "apply", "-f", "-", input=json.dumps(foreign))
    scale.trial(count=80, audit_log=str(scale.cluster.audit_log))
    scale.seatrial("run", "suite.yaml", check=0)
    findings = scale.findings()
    assert (
        "80 of 80 workloads, 0 unfinished, 0 with inexact time, 0 failed, by audit"
        in findings["bound scheduled.p99"].message
    )
    assert findings["audit log"].message.startswith("80 workloads from ")
    assert findings["clock"].verdict is Verdict.PASSED, findings["clock"].message
    assert "server timestamps agree" in findings["clock"].message
    assert findings["watch"].message.startswith("followed pods, jobs.batch")
    charts = {one.title: one for one in scale.results().cells[0].charts}
    assert "Quantiles with 95 % intervals" in charts
    columns = {
        "Load, workloads": {"offered", "acknowledged"},
        "Lag and latency of the client": {"create p99", "watch lag"},
        "Requests of the API server": {"in flight"},
        "etcd": {"size"},
    }
    assert all({"seconds", *names} <= {*charts[title].columns} for title, names in columns.items())
    health = charts["Load, workloads"]
    assert sum(row[health.columns.index("acknowledged")] for row in health.rows) == 80
    scale.assert_nothing_left()
    assert scale.cluster.kubectl("-n", scale.namespace, "get", "pod", "foreign", "-o", "name").stdout


def replica_set(priority: str) -> dict[str, Any]:
    """One whose pod stays: fake nodes end the pods of Jobs."""
    labels = {"app": "JOB_NAME_PLACEHOLDER"}
    container = {"name": "x", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    template = {"metadata": {"labels": labels}, "spec": spec}
    inner = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {}, "spec": inner}


@pytest.mark.cluster
def test_who_evicted_pods_and_what_the_scheduler_decided_is_known(alone: ScaleWorld) -> None:
    """Twenty nodes of eight GPUs, and thirty pods that want eight: those of the higher class push others out."""
    scale = alone
    for name, priority in (("low", ""), ("high", "system-cluster-critical")):
        (scale.folder / f"{name}.yaml").write_text(json.dumps(replica_set(priority)))
    workloads = {name: {"template": f"{name}.yaml", "pods": 1} for name in ("low", "high")}
    scale.trial(workloads=workloads, count=30, arrivals={"rate": 10}, settle="20s", bounds=FREE, seed=3)
    scale.seatrial("run", "suite.yaml", check=None)
    seen = Counter(one["stage"] for one in stamps(scale))
    assert seen["unschedulable"] > 0
    assert seen["evicted"] > 0
    preflight = scale.findings()["preflight nodes"].message
    assert preflight == "20 nodes have 160 GPUs; 240 requested"
    (evicted,) = [one for one in scale.results().cells[0].charts if one.title == "Evictions by cause"]
    highs = {one["number"] for one in scale.submissions() if one["of"] == "high"}
    names = {str(row[0]) for row in evicted.rows}
    assert all(name.startswith("scale-") and int(name.split("-")[2]) in highs for name in names), names
    metrics = scale.results().cells[0].metrics
    assert metrics["decided"]["p50"]["value"] <= metrics["scheduled"]["p50"]["value"]
    scale.assert_nothing_left()


@pytest.mark.cluster
def test_an_api_server_that_restarts_leaves_every_workload_known_once(alone: ScaleWorld) -> None:
    """After the scheduler stopped for a while. Both are named, and no bound is undecided because of them."""
    scale = alone
    scale.trial(count=300, arrivals={"rate": 15})
    process = scale.start("run", "suite.yaml")
    wait_for(lambda: scale.so_far() > 20)
    scheduler = scale.cluster.parts()["scheduler"]
    os.kill(scheduler, signal.SIGSTOP)
    time.sleep(8)
    os.kill(scheduler, signal.SIGCONT)
    so_far = scale.so_far()
    wait_for(lambda: scale.so_far() > so_far + 20)
    scale.cluster.kill("apiserver")
    time.sleep(3)
    up(scale.cluster.name, place=scale.cluster.folder.parent)
    process.communicate(timeout=WITHIN_S)
    made = Counter(one["number"] for one in scale.submissions())
    assert made == Counter(range(300))
    findings = scale.findings()
    assert findings["bound scheduled.p99"].verdict is Verdict.PASSED, findings["bound scheduled.p99"].message
    unreachable = findings["API server"].message
    assert float(unreachable.removeprefix("API server unreachable for ").split()[0]) >= 3
    assert unreachable in findings["limited by"].message
    assert "; the scheduler: no binding for " in findings["limited by"].message
    assert findings["bound failed"].verdict is Verdict.PASSED
    assert findings["bound unfinished"].verdict is Verdict.PASSED
    assert findings["clean-up"].verdict is Verdict.PASSED
    assert {one["workload"] for one in stamps(scale) if one["stage"] == "started"} == set(range(300))
    each = Counter((one["workload"], one["pod"], one["stage"]) for one in stamps(scale))
    assert {*each.values()} == {1}
    scale.assert_nothing_left()


AN_HOUR_AHEAD = """
import time
right = time.time
time.time = lambda: right() + 3600
"""


def test_a_clock_that_is_an_hour_wrong_is_told_and_changes_no_metric(scale: ScaleWorld) -> None:
    (scale.folder / "sitecustomize.py").write_text(AN_HOUR_AHEAD)
    scale.trial(count=20, env={"PYTHONPATH": str(scale.folder)})
    scale.seatrial("run", "suite.yaml", check=0)
    findings = scale.findings()
    offset_s = float(findings["clock"].message.removeprefix("API server clock offset ").replace(",", "").split()[0])
    assert offset_s == pytest.approx(-3600, abs=600)
    assert "20 of 20 workloads, 0 unfinished, 0 with inexact time, 0 failed" in findings["bound scheduled.p99"].message
    scale.assert_nothing_left()


ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: some}
rules:
  - {apiGroups: [batch], resources: [jobs], verbs: [create, delete, get, list, patch, watch]}
  - {apiGroups: [""], resources: [pods], verbs: [get, list]}
  - {apiGroups: [""], resources: [configmaps], verbs: [create]}
"""


def account(scale: ScaleWorld, user: Callable[[str], dict[str, Any]], *role: str) -> None:
    """The suite's kubeconfig becomes that of a service account with this role in the namespace alone."""
    kubectl, namespace = scale.cluster.kubectl, scale.namespace
    kubectl("create", "serviceaccount", "some", "-n", namespace)
    kubectl("-n", namespace, "create", "rolebinding", "some", *role, f"--serviceaccount={namespace}:some")
    token = kubectl("create", "token", "some", "-n", namespace).stdout.strip()
    config = yaml.safe_load(Path(scale.cluster.kubeconfig).read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": user(token)}]
    (scale.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    suite = scale.folder / "suite.yaml"
    suite.write_text(suite.read_text().replace(str(scale.cluster.kubeconfig), str(scale.folder / "kubeconfig")))


def test_rights_that_are_missing_are_named_before_anything_is_made(scale: ScaleWorld) -> None:
    scale.cluster.kubectl("-n", scale.namespace, "apply", "-f", "-", input=ROLE)
    scale.trial()
    account(scale, lambda token: {"token": token}, "--role=some")
    scale.seatrial("run", "suite.yaml", check=3)
    message = scale.findings()["driver"].message
    for missing in ("deletecollection jobs.batch", "watch pods", "patch pods", "create pods"):
        assert missing in message
    assert scale.submissions() == []


PLUGIN = """#!/bin/sh
n=$(cat {folder}/calls 2>/dev/null || echo 0)
echo $((n + 1)) > {folder}/calls
token=expired
[ $((n % 2)) = 1 ] && token=$(cat {folder}/token)
printf '{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"%s"}}}}' $token
"""


def test_a_token_that_has_expired_is_renewed_and_what_may_not_be_read_is_not_known(scale: ScaleWorld) -> None:
    """Every other token of the plugin is refused by the server. Of the cluster itself nothing may be read."""

    def plugin(token: str) -> dict[str, Any]:
        (scale.folder / "token").write_text(token)
        script = scale.folder / "plugin"
        script.write_text(PLUGIN.format(folder=scale.folder))
        script.chmod(0o700)
        exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
        return {"exec": exec_}

    scale.trial(count=20)
    account(scale, plugin, "--clusterrole=cluster-admin")
    scale.seatrial("run", "suite.yaml", check=0)
    assert int((scale.folder / "calls").read_text()) >= 4, "the driver and its watch both renewed theirs"
    assert sorted(one["number"] for one in scale.submissions()) == list(range(20))
    findings = scale.findings()
    for unknown in ("preflight nodes", "preflight webhook"):
        assert findings[unknown].verdict is Verdict.SKIPPED
        assert findings[unknown].message.startswith("not checked: missing permission to list ")
    scale.assert_nothing_left()
