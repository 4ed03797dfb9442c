"""What a run has once on the cluster, shared by all its jobs: the object that owns all else, the agent, the inputs."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.manifest.marks import QUEUE, marked
from seatrial.target.kubernetes.manifest.quantity import seconds
from seatrial.target.kubernetes.options import KubernetesOptions

SCRIPTS = ("start.sh", "keep.sh")
PART_BYTES = 896 << 10  # of an archive in one ConfigMap, which holds at most 1 MiB
PART = "part"  # its key
NO_IMAGE = "none"  # of a pod that is never made


def run_object(run: str, ttl_s: float, options: KubernetesOptions, namespace: str, image: str = "") -> dict[str, Any]:
    """A Job of no pods: it is complete at once, and the cluster removes it, and so all that it owns, after `ttl_s`.
    Its `image`, which is never pulled, is that of a job of the run, so that a policy for images has nothing against it.
    """
    container = {
        "name": "none",
        "image": image or options.image or NO_IMAGE,
        "resources": {"limits": {"cpu": "1m", "memory": "1Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    labels = names.run_labels(run, "run") | ({QUEUE: options.queue} if options.queue else {})
    metadata = {"name": names.run_object_name(run), "namespace": namespace, "labels": labels}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completions": 0,
            "parallelism": 0,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": seconds(ttl_s),
            "template": {"metadata": {"labels": names.run_labels(run, "run")}, "spec": pod},
        },
    }
    return marked(made, options)


def agent_configs(run: str, agent: bytes, owner: Mapping[str, Any], namespace: str) -> list[dict[str, Any]]:
    """The agent and the scripts that start it. Its name follows from the content: a newer agent has another."""
    folder = files("seatrial.target.kubernetes").joinpath("scripts")
    scripts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS}
    digest = hashlib.sha256(agent)
    for name in SCRIPTS:
        digest.update(scripts[name].encode())
    made = _config_map(run, "agent", digest.hexdigest(), owner, namespace)
    return [{**made, "data": scripts, "binaryData": {"agent.pyz": base64.b64encode(agent).decode()}}]


def input_configs(run: str, archive: bytes, owner: Mapping[str, Any], namespace: str) -> list[dict[str, Any]]:
    """An archive in parts, in order; two archives of a run with the same part share it. None of an empty one."""
    made = []
    for start in range(0, len(archive), PART_BYTES):
        part = archive[start : start + PART_BYTES]
        config = _config_map(run, "inputs", hashlib.sha256(part).hexdigest(), owner, namespace)
        made.append({**config, "binaryData": {PART: base64.b64encode(part).decode()}})
    return made


def _config_map(run: str, part: str, digest: str, owner: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    name = names.object_name(f"{names.SEATRIAL}-{run}-{part}-{digest[:16]}")
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": names.run_labels(run, part),
        "ownerReferences": [dict(owner)],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}
