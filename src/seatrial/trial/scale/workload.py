"""The manifest of one workload: built in (`templates/`), or a user's template with its values put in. Pure."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from seatrial.trial.scale.template import rendered
from seatrial.trial.scale.workload_model import Workload

QUEUE = "kueue.x-k8s.io/queue-name"
FRACTION = "gpu-fraction"  # of KAI and of Run:ai: a part of a GPU is no resource of Kubernetes
_CONTAINER = {"pytorchjob": "pytorch"}  # the name that its operator looks for


def manifest_of(workload: Workload, template: str, claim: str = "") -> dict[str, Any]:
    """Raises BadTemplate. Its name is the driver's to give."""
    if workload.template is not None:
        made = rendered(template, workload.values, claim)
    else:
        made = {"metadata": {}, **_filled(_built_in(_file_of(workload)), _slots(workload))}
        for pod in _with_containers(made) if 0 < workload.gpus < 1 else ():
            pod.setdefault("metadata", {})["annotations"] = {FRACTION: f"{workload.gpus:g}"}
    if workload.queue:
        made["metadata"]["labels"] = {**(made["metadata"].get("labels") or {}), QUEUE: workload.queue}
    return made


def _file_of(workload: Workload) -> str:
    if workload.kind == "job" and workload.pods > 1:
        return "indexed-job"
    if workload.kind == "pytorchjob" and workload.pods == 1:
        return "single-pytorchjob"  # its operator refuses no workers
    return str(workload.kind)


@cache
def _built_in(name: str) -> Any:
    return yaml.safe_load((files(__package__) / "templates" / f"{name}.yaml").read_text("utf-8"))


def _slots(workload: Workload) -> dict[str, Any]:
    """What is put where a built-in template has one of these words as a value."""
    return {
        "POD": _pod_spec(workload),
        "PODS": workload.pods,
        "WORKERS": workload.pods - 1,
        "QUEUED": workload.queue is not None,
        "QUEUE": workload.queue,
    }


def _filled(value: Any, slots: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, slots) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, slots) for one in value]
    return slots.get(value, value) if isinstance(value, str) else value


def _with_containers(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod, or template of pods, in it."""
    if isinstance(value, dict) and "containers" in (value.get("spec") or ()):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _with_containers(one)


def _pod_spec(workload: Workload) -> dict[str, Any]:
    requests = {"cpu": workload.cpu, "memory": workload.memory}
    gpus = {"nvidia.com/gpu": f"{workload.gpus:g}"} if workload.gpus >= 1 else {}
    container = {
        "name": _CONTAINER.get(str(workload.kind), "main"),
        "image": workload.image,
        "command": list(workload.command),
        "resources": {"requests": {**requests, **gpus}, "limits": gpus},
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    if workload.node_selector:
        spec["nodeSelector"] = dict(workload.node_selector)
    if workload.tolerate:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in workload.tolerate]
    if workload.priority:
        spec["priorityClassName"] = workload.priority
    if workload.scheduler:
        spec["schedulerName"] = workload.scheduler
    return spec
