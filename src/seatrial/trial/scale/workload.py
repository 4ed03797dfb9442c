"""The manifest of one workload: built in, or a template with its values put in. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

from seatrial.trial.scale.model import Workload


class BadTemplate(Exception):
    """What is wrong with a template, and where in it, with its values put in."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def manifest_of(workload: Workload, template: str) -> dict[str, Any]:
    """Raises BadTemplate. Its name is the driver's to give."""
    if workload.template is not None:
        return _rendered(template, workload.values)
    return _pod(workload) if workload.kind == "pod" else _job(workload)


def _rendered(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):  # NUM_GPUS_X before NUM_GPUS
        if name not in template:
            raise BadTemplate(f"{name!r} of `values` is not in it")
        template = template.replace(name, str(value))
    try:
        documents = [one for one in yaml.safe_load_all(template) if one is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise BadTemplate(f"it is no YAML: {error.problem or error}", line, column) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadTemplate(f"it is no YAML: {error}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadTemplate(f"it has {len(documents)} objects, and a workload is one")
    missing = [key for key in ("apiVersion", "kind") if not isinstance(documents[0].get(key), str)]
    if missing:
        raise BadTemplate(f"it has no {' and no '.join(missing)}")
    made: dict[str, Any] = documents[0]
    if not isinstance(made.setdefault("metadata", {}), dict):
        raise BadTemplate("its metadata is no map")
    return made


def _pod_spec(workload: Workload) -> dict[str, Any]:
    requests = {"cpu": workload.cpu, "memory": workload.memory}
    gpus = {"nvidia.com/gpu": str(workload.gpus)} if workload.gpus else {}
    container = {
        "name": "main",
        "image": workload.image,
        "command": list(workload.command),
        "resources": {"requests": {**requests, **gpus}, "limits": gpus},
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    if workload.node_selector:
        spec["nodeSelector"] = dict(workload.node_selector)
    if workload.tolerate:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in workload.tolerate]
    return spec


def _pod(workload: Workload) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": _pod_spec(workload)}


def _job(workload: Workload) -> dict[str, Any]:
    """Indexed where it has several pods."""
    spec: dict[str, Any] = {"backoffLimit": 0, "template": {"spec": _pod_spec(workload)}}
    if workload.pods > 1:
        spec |= {"completionMode": "Indexed", "completions": workload.pods, "parallelism": workload.pods}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec}
