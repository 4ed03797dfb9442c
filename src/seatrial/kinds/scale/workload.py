"""A user's template with its values put in: plain text that is replaced, as in Run:ai's scale test tool, whose own
templates work as they are. Pure."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from seatrial.kinds.scale.model import Workload
from seatrial.kinds.scale.work import NAME

JOB_NAME = "JOB_NAME_PLACEHOLDER"  # the name of each workload, which is Seatrial's to give
_NEEDED = re.compile(r"[A-Z][A-Z_]*_PLACEHOLDER|\bNUM_GPUS\b")
_STATUS = re.compile(r"^status:", re.MULTILINE)


class BadTemplate(Exception):
    """What is wrong with a template, and where in it, with its values put in."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def rendered(template: str, values: Mapping[str, Any], claim: str = "") -> dict[str, Any]:
    """One object. `claim` is the text of a volume claim, that goes to the end of its spec. Raises BadTemplate."""
    text = _with_claim(template, claim) if claim else template
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):  # NUM_GPUS_X before NUM_GPUS
        if name not in text:
            raise BadTemplate(f"{name!r} of `values` is not in it")
        text = text.replace(name, str(value))
    text = text.replace(JOB_NAME, NAME)
    if left := _NEEDED.search(text):
        line, column = text.count("\n", 0, left.start()) + 1, left.start() - text.rfind("\n", 0, left.start())
        raise BadTemplate(f"{left[0]} is left in it: give it a value, `values: {{{left[0]}: …}}`", line, column)
    return _one_object(text)


def _with_claim(template: str, claim: str) -> str:
    """Before the line `status:`, where the spec ends; without one, at the end."""
    found = _STATUS.search(template)
    at = found.start() if found else len(template)
    before = template[:at] if template[:at].endswith("\n") else f"{template[:at]}\n"
    return before + claim.rstrip("\n") + "\n" + template[at:]


def _one_object(text: str) -> dict[str, Any]:
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
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
    try:
        made: dict[str, Any] = _json_data(documents[0])
    except (TypeError, RecursionError) as error:
        raise BadTemplate(f"it has what no JSON has: {error}") from None
    if not isinstance(made.setdefault("metadata", {}), dict):
        raise BadTemplate("its metadata is no map")
    for field, form in (("labels", dict), ("annotations", dict), ("namespace", str)):
        if not isinstance(made["metadata"].get(field), form | None):
            raise BadTemplate(f"its metadata.{field} is {'no text' if form is str else 'no map'}")
    return made


def _json_data(value: Any) -> Any:
    """As it is sent to Kubernetes. msgspec.json would write numbers as keys, sets and bytes. Raises TypeError."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("Dict key must be str")
        return {key: _json_data(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_data(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise TypeError("Integer exceeds 64-bit range")
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return None if isinstance(value, float) and not math.isfinite(value) else value


QUEUE = "kueue.x-k8s.io/queue-name"
FRACTION = "gpu-fraction"  # of KAI and of Run:ai: a part of a GPU is no resource of Kubernetes
_CONTAINER = {"pytorchjob": "pytorch"}  # the name that its operator looks for


def manifest_of(workload: Workload, template: str, claim: str = "") -> dict[str, Any]:
    """The manifest of one workload: built in (`templates/`), or a user's template with its values put in. Its name is
    the driver's to give. Raises BadTemplate."""
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
