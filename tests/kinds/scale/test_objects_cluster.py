"""Workloads of several objects on a real cluster: volumes, services, gangs and devices. Nothing of them is left."""

import contextlib
import json
import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.fixtures import cluster
from kinds.scale.scale_world import WITHIN_S, ScaleWorld, wait_for
from kinds.scale.test_measuring_cluster import account
from seatrial.job import Verdict

__all__ = ["cluster"]
pytestmark = pytest.mark.timeout(3600)
COUNT = 6
DOCS = Path(__file__).parents[3] / "docs"
EVERY_KIND = "jobs,pods,configmaps,secrets,services,persistentvolumeclaims,resourceclaims,resourceclaimtemplates"
TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: JOB_NAME_PLACEHOLDER-settings}
data: {workload: JOB_NAME_PLACEHOLDER}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: JOB_NAME_PLACEHOLDER-data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: STORAGE_PLACEHOLDER
  resources: {requests: {storage: 1Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: JOB_NAME_PLACEHOLDER}
spec: {selector: {workload: JOB_NAME_PLACEHOLDER}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {labels: {workload: JOB_NAME_PLACEHOLDER}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, persistentVolumeClaim: {claimName: JOB_NAME_PLACEHOLDER-data}}]
  containers:
    - name: main
      image: x
      envFrom: [{configMapRef: {name: JOB_NAME_PLACEHOLDER-settings}}]
      volumeMounts: [{name: data, mountPath: /data}]
"""


def objects(scale: ScaleWorld, *more: str) -> list[str]:
    """All objects with Seatrial's label, and all generated for them."""
    kinds = ",".join([EVERY_KIND, *more])
    found = scale.cluster.kubectl("get", kinds, "-n", scale.namespace, "-o", "name").stdout.split()
    return [one for one in found if "kube-root-ca" not in one]


@contextlib.contextmanager
def volumes(scale: ScaleWorld, count: int) -> Iterator[str]:
    """The storage class of so many volumes, each for one claim."""
    name = f"disk-{uuid.uuid4().hex[:8]}"
    for number in range(count):
        spec = {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "hostPath": {"path": "/nowhere"},
        }
        body = {"metadata": {"name": f"{name}-{number}"}, "spec": spec}
        scale.cluster.request("POST", "/api/v1/persistentvolumes", body)
    try:
        yield name
    finally:
        for number in range(count):
            scale.cluster.request("DELETE", f"/api/v1/persistentvolumes/{name}-{number}")


def trial(scale: ScaleWorld, storage: str, **fields: Any) -> None:
    (scale.folder / "objects.yaml").write_text(TEMPLATE)
    workload = {"template": "objects.yaml", "values": {"STORAGE_PLACEHOLDER": storage}, **fields.pop("of", {})}
    bounds = {"claim_bound.p99": "10m", "endpoint_ready.p99": "10m", "created..claim_bound.p50": "10m"}
    scale.trial(workload=workload, **{"count": COUNT, "arrivals": {"rate": 10}, "bounds": bounds, **fields})


def test_objects_that_refer_to_each_other_are_created_followed_and_deleted(scale: ScaleWorld) -> None:
    with volumes(scale, COUNT) as storage:
        trial(
            scale, storage, until="endpoint_ready", of={"wait": {"kind": "PersistentVolumeClaim", "condition": "Bound"}}
        )
        scale.seatrial("run", "suite.yaml", check=0)
        findings = scale.findings()
        for stage in ("claim_bound", "endpoint_ready"):
            assert f"{COUNT} of {COUNT} workloads, 0 unfinished" in findings[f"bound {stage}.p99"].message
        assert "services" in findings["watch"].message
        assert "endpointslices.discovery.k8s.io" in findings["watch"].message
        made = scale.submissions()
        assert {one["attempts"] for one in made} == {4}, "one request per object"
        assert all(one["paused_s"] > 0 for one in made), "each pod waited for its volume"
        wait_for(lambda: not objects(scale))


def test_a_volume_that_is_never_bound_fails_its_workload_with_the_reason(scale: ScaleWorld) -> None:
    with volumes(scale, COUNT - 1) as storage:
        wait = [{"kind": "PersistentVolumeClaim", "condition": "Bound"}]
        trial(scale, storage, until="ready", settle="15s", of={"wait": wait})
        scale.seatrial("run", "suite.yaml", check=1)
        found = scale.findings()["bound failed"]
        assert found.message.startswith(f"failed: 1 of {COUNT} workloads")
        assert "is not Bound after 15 s; the objects after it were not created" in str(found.evidence)
        wait_for(lambda: not objects(scale))


def test_of_a_run_that_was_killed_all_objects_are_reaped(scale: ScaleWorld) -> None:
    with volumes(scale, 40) as storage:
        trial(scale, storage, count=400, until="ready")
        process = scale.start("run", "suite.yaml")
        wait_for(lambda: scale.so_far() >= 10)
        for line in scale.processes():  # Seatrial, the supervisor, the driver and its watch
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        process.communicate(timeout=WITHIN_S)
        assert objects(scale)
        scale.seatrial("reap", "--suite", "suite.yaml", check=0)
        wait_for(lambda: not objects(scale))


@contextlib.contextmanager
def pod_groups(scale: ScaleWorld, group: str, version: str) -> Iterator[None]:
    """The least definition of a scheduler's PodGroups."""
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [served]}
    scale.cluster.request("POST", where, {"metadata": {"name": f"podgroups.{group}"}, "spec": spec})
    try:
        wait_for(lambda: scale.cluster.kubectl("get", f"podgroups.{group}", "-n", scale.namespace).returncode == 0)
        yield
    finally:
        scale.cluster.request("DELETE", f"{where}/podgroups.{group}")


def test_a_gang_has_its_group_first_and_both_are_deleted(scale: ScaleWorld) -> None:
    with pod_groups(scale, "scheduling.volcano.sh", "v1beta1"):
        gang = {"pods": 3, "gang": "volcano", "scheduler": "default-scheduler", "command": ["sleep", "9"]}
        bounds = {"group_created.p99": "10m", "scheduled.p99": "10m"}
        for kind in ("pod", "job"):
            scale.trial(workload={"kind": kind, **gang}, count=COUNT, arrivals={"rate": 10}, bounds=bounds)
            scale.seatrial("run", "suite.yaml", check=0)
            findings = scale.findings()
            assert f"{COUNT} of {COUNT} workloads, 0 unfinished" in findings["bound group_created.p99"].message
            assert f"{COUNT} of {COUNT} workloads, 0 unfinished" in findings["bound scheduled.p99"].message
            wait_for(lambda: not objects(scale, "podgroups.scheduling.volcano.sh"))


def test_a_gang_without_its_scheduler_is_refused_before_anything_is_created(scale: ScaleWorld) -> None:
    scale.trial(workload={"kind": "job", "gang": "coscheduling"}, count=2, arrivals={"rate": 10})
    scale.seatrial("run", "suite.yaml", check=None)
    message = scale.findings()["driver"].message
    assert "unknown kind scheduling.x-k8s.io/v1alpha1 PodGroup" in message
    assert objects(scale) == []


@contextlib.contextmanager
def devices(scale: ScaleWorld, count: int) -> Iterator[str]:
    """A class of devices that a fake node has so many of."""
    name, api = f"gpu-{uuid.uuid4().hex[:8]}.example.com", "/apis/resource.k8s.io/v1"
    node = scale.cluster.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]
    listed = [{"name": f"d-{number}"} for number in range(count)]
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    chosen = {"selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}]}
    made = {
        "deviceclasses": {"metadata": {"name": name}, "spec": chosen},
        "resourceslices": {
            "metadata": {"name": name},
            "spec": {"driver": name, "nodeName": node, "pool": pool, "devices": listed},
        },
    }
    for where, body in made.items():
        scale.cluster.request("POST", f"{api}/{where}", body)
    try:
        yield name
    finally:
        for where in made:
            scale.cluster.request("DELETE", f"{api}/{where}/{name}")


def test_devices_are_allocated_and_one_that_gets_none_is_unfinished_with_the_reason(scale: ScaleWorld) -> None:
    with devices(scale, 8) as name:
        workload = {"kind": "pod", "claim": {"device_class": name, "count": 2}, "command": ["sleep", "600"]}
        bounds = {"claim_allocated.p99": "10m", "scheduled.p99": "10m"}
        scale.trial(workload=workload, count=4, arrivals={"rate": 10}, bounds=bounds)
        scale.seatrial("run", "suite.yaml", check=0)
        findings = scale.findings()
        assert "4 of 4 workloads, 0 unfinished" in findings["bound claim_allocated.p99"].message
        assert "resourceclaims.resource.k8s.io" in findings["watch"].message
        wait_for(lambda: not objects(scale))
        scale.trial(workload=workload, count=5, arrivals={"rate": 10}, settle="20s", bounds={})
        scale.seatrial("run", "suite.yaml", check=1)
        found = scale.findings()["bound unfinished"]
        assert found.verdict is Verdict.FAILED
        assert "1 of 5 workloads" in found.message
        assert "cannot allocate all claims" in found.message
        wait_for(lambda: not objects(scale))


def rules(*rights: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
        for group, resources, verbs in rights
    ]


def test_the_documented_rights_are_enough_and_missing_ones_are_named(scale: ScaleWorld) -> None:
    every = "create deletecollection get list watch"
    target = next(one for one in yaml.safe_load_all(role_in("kubernetes.md")) if one["kind"] == "Role")["rules"]
    needed = rules(
        ("", "configmaps persistentvolumeclaims services", every),
        ("", "pods", "create delete deletecollection get list patch watch"),
        ("discovery.k8s.io", "endpointslices", "list watch"),
    )
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "some"}}
    with volumes(scale, COUNT) as storage:
        trial(scale, storage, until="endpoint_ready")
        create = rules(("", "persistentvolumeclaims", "create"))  # else the dry run is refused
        allowed = {**role, "rules": [*target, *create, *needed[1:]]}
        scale.cluster.kubectl("-n", scale.namespace, "apply", "-f", "-", input=json.dumps(allowed))
        account(scale, lambda token: {"token": token}, "--role=some")
        scale.seatrial("run", "suite.yaml", check=3)
        message = scale.findings()["driver"].message
        for missing in ("deletecollection configmaps", "get persistentvolumeclaims", "watch services"):
            assert missing in message
        assert "pods" not in message.partition("missing permissions")[2].partition("docs/scale.md")[0]
        allowed["rules"] = [*target, *needed]
        scale.cluster.kubectl("-n", scale.namespace, "apply", "-f", "-", input=json.dumps(allowed))
        scale.seatrial("run", "suite.yaml", check=0)
        findings = scale.findings()
        assert f"{COUNT} of {COUNT} workloads, 0 unfinished" in findings["bound endpoint_ready.p99"].message
        assert "endpointslices" not in findings["watch"].message.partition("not followed")[2]
        wait_for(lambda: not objects(scale))


def role_in(page: str) -> str:
    """The YAML of the documented Role and its binding."""
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(block)
