"""Nodes that do not exist, played by kwok: pods on them are scheduled and run, or so the API server is told."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.api import Api, ApiError
from cluster.control_plane import Part
from cluster.errors import ClusterError
from cluster.folder import Folder, Record, write_whole

LABEL = "type=kwok"
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
PARALLEL = 64
AT_A_TIME = 8
READY_WITHIN_S = 300.0
EXPECTED_RATE = 500.0
"""Nodes a second; only how often one looks follows from it."""
LOOK_S = 0.25
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready")
_PLATFORM = {"os": "linux", "arch": "amd64"}
_SYSTEM = {"operatingSystem": "linux", "architecture": "amd64"}
_SAID = ("kubeletVersion", "containerRuntimeVersion", "osImage")
_INFO = (*_SAID, "machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion")

# kwok minds the pods of nodes only when it has a stage for nodes: this one fits none.
_NO_STAGE_OF_NODES = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "no-node"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Node"},
        "selector": {"matchLabels": {"seatrial/node": "none"}},
        "next": {},
    },
}


def kwok(folder: Folder, record: Record, binary: Path) -> Part:
    settings = folder.settings / "kwok.yaml"
    stages = subprocess.run([binary, "stages"], capture_output=True, text=True, check=True).stdout
    write_whole(settings, "\n---\n".join([json.dumps(_configuration()), json.dumps(_NO_STAGE_OF_NODES), stages]))
    port = record.ports["kwok"]
    argv = (
        str(binary),
        f"--kubeconfig={folder.kubeconfigs / 'kwok'}",
        f"--config={settings}",
        f"--server-address=127.0.0.1:{port}",
        "--node-ip=127.0.0.1",
        f"--node-port={port}",
        "--v=WARN",
    )
    return Part("kwok", argv, port, "")


def _configuration() -> dict[str, object]:
    """No leases and no heartbeats: a thousand idle nodes then cost nothing, and kwok can be restarted."""
    options = {
        "manageNodesWithLabelSelector": LABEL,
        "cidr": "10.128.0.0/14",
        "podPlayStageParallelism": PARALLEL,
        "nodePlayStageParallelism": PARALLEL,
        "podsOnNodeSyncParallelism": PARALLEL // 2,
        "enablePodsOnNodeSyncListPager": False,
        "enablePodsOnNodeSyncStreamWatch": True,
        "nodeLeaseDurationSeconds": 0,
    }
    return {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}


def add(apis: list[Api], count: int, gpus: int, tainted: bool, port: int) -> int:
    """Makes those of so many that are not there, waits until they are ready, and gives how many it made.

    One that is there stays as it is, also when somebody said that it is not ready."""
    there = {item["metadata"]["name"] for item in _listed(apis[0])}
    made = [name for name in map(_name, range(count)) if name not in there]
    waiting, lock = iter(made), threading.Lock()
    failed: list[Exception] = []

    def work(api: Api) -> None:
        try:
            for name in _shared(waiting, lock):
                _create(api, node(name, gpus, tainted, port))
        except (ClusterError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(api,)) for api in apis]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise ClusterError(f"fake nodes could not be created: {failed[0]}")
    _await_ready(apis[0], set(made))
    return len(made)


def _name(number: int) -> str:
    return f"fake-{number}"


def node(name: str, gpus: int, tainted: bool, port: int) -> dict[str, object]:
    """Ready when it is made: nobody has to say so later, and a test that says that it is not is not contradicted."""
    room = {"cpu": "96", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "250"}
    if gpus:
        room["nvidia.com/gpu"] = str(gpus)
    label, _, value = LABEL.partition("=")
    labels = {
        label: value,
        "kubernetes.io/hostname": name,
        # Also by the names of old, which the node controller would add to each node otherwise.
        **{f"{prefix}kubernetes.io/{what}": value for prefix in ("", "beta.") for what, value in _PLATFORM.items()},
        "seatrial/node": "fake",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [TAINT] if tainted else []},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [_condition(kind, kind == "Ready") for kind in _CONDITIONS],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {field: "kwok" if field in _SAID else "" for field in _INFO} | _SYSTEM,
        },
    }


def _condition(kind: str, true: bool) -> dict[str, str]:
    return {"type": kind, "status": str(true), "reason": "Fake", "message": "a node that kwok plays"}


def _listed(api: Api) -> list[dict[str, Any]]:
    path = f"/api/v1/nodes?resourceVersion=0&labelSelector={LABEL.replace('=', '%3D')}"
    return list(api.request("GET", path)["items"])


def _is_ready(item: dict[str, Any]) -> bool:
    """For pods: the taint that every new node gets must be gone too."""
    conditions = item["status"].get("conditions", [])
    taints = item["spec"].get("taints", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions) and not any(
        one["key"].startswith("node.kubernetes.io/") for one in taints
    )


def _shared(names: Iterator[str], lock: threading.Lock) -> Iterator[str]:
    while True:
        with lock:
            name = next(names, None)
        if name is None:
            return
        yield name


def _create(api: Api, body: dict[str, object]) -> None:
    try:
        api.request("POST", "/api/v1/nodes", body)
    except ApiError as error:
        if error.status != 409:
            raise


def _await_ready(api: Api, names: set[str]) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while left := names - {item["metadata"]["name"] for item in _listed(api) if _is_ready(item)}:
        if time.monotonic() > until:
            raise ClusterError(f"{len(left)} of {len(names)} fake nodes are not ready after {READY_WITHIN_S:.0f} s.")
        time.sleep(LOOK_S + len(left) / EXPECTED_RATE)  # a look at thousands of nodes costs the server something
