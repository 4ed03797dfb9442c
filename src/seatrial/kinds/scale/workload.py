"""Renders workload manifests: built in, or from a user's template.

Templates use plain text replacement, so those of Run:ai's scale test tool work unchanged. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from seatrial.kinds.scale.model import DeviceClaim, Workload
from seatrial.kinds.scale.work import NAME
from seatrial.limited_yaml import load_all
from seatrial.suite import SuiteError
from seatrial.suite.yaml.problem import Problem, SourceMark

if TYPE_CHECKING:
    from seatrial.kubernetes import Manifest

JOB_NAME = "JOB_NAME_PLACEHOLDER"  # replaced by the name that Seatrial gives to each workload
_NEEDED = re.compile(r"[A-Z][A-Z_]*_PLACEHOLDER|\bNUM_GPUS\b")
_STATUS = re.compile(r"^status:", re.MULTILINE)


def bad_template(path: str, message: str, line: int = 1, column: int = 1) -> SuiteError:
    """An error at a position in the rendered template."""
    return SuiteError([Problem(message, SourceMark(path, line, column))])


def rendered(path: str, template: str, values: Mapping[str, Any], claim: str = "") -> "list[Manifest]":
    """Renders the objects of a template, in their order. `claim`, the text of a volume claim, is inserted before the
    line `status:`, or at the end. `path` is that of the template, for errors. Raises SuiteError."""
    text = template
    if claim:
        found = _STATUS.search(template)
        spec, rest = (template[: found.start()], template[found.start() :]) if found else (template, "")
        text = "\n".join([spec.removesuffix("\n"), claim.rstrip("\n"), rest])
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):  # NUM_GPUS_X before NUM_GPUS
        if name not in text:
            raise bad_template(path, f"{name!r} of `values` not found in the template")
        text = text.replace(name, str(value))
    text = text.replace(JOB_NAME, NAME)
    if left := _NEEDED.search(text):
        line, column = text.count("\n", 0, left.start()) + 1, left.start() - text.rfind("\n", 0, left.start())
        raise bad_template(path, f"{left[0]} has no value; add `values: {{{left[0]}: …}}`", line, column)
    return _objects(path, text)


def _objects(path: str, text: str) -> "list[Manifest]":
    try:
        documents = [one for one in load_all(text) if one is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise bad_template(path, f"invalid YAML: {error.problem or error}", line, column) from None
    except (yaml.YAMLError, ValueError) as error:
        raise bad_template(path, f"invalid YAML: {error}") from None
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise bad_template(path, f"expected objects (maps) separated by `---`, found {len(documents)} YAML documents")
    made, known = [_object(path, one) for one in documents], set()
    for one in made if len(made) > 1 else ():
        kind, name = one["kind"], one["metadata"].setdefault("name", NAME)
        if NAME not in name:
            why = f"each workload has its own; write for example {JOB_NAME}-{name}"
            raise bad_template(path, f"the name of {kind} {name} must contain {JOB_NAME}: {why}")
        if (kind, name) in known:
            raise bad_template(path, f"two objects are {kind} {name.replace(NAME, JOB_NAME)}; rename one")
        known.add((kind, name))
    if len(spaces := {one["metadata"].get("namespace") for one in made} - {None}) > 1:
        raise bad_template(path, f"all objects must be in one namespace, found {', '.join(sorted(spaces))}")
    return made


def _object(path: str, document: "Manifest") -> "Manifest":
    missing = [key for key in ("apiVersion", "kind") if not isinstance(document.get(key), str)]
    if missing:
        raise bad_template(path, f"missing {' and '.join(missing)}")
    try:
        made: Manifest = _json_data(document)
    except TypeError as error:
        raise bad_template(path, f"contains a value that JSON cannot represent: {error}") from None
    if not isinstance(made.setdefault("metadata", {}), dict):
        raise bad_template(path, "`metadata` must be a map")
    for field, form in (("labels", dict), ("annotations", dict), ("name", str), ("namespace", str)):
        if not isinstance(made["metadata"].get(field), form | None):
            raise bad_template(path, f"`metadata.{field}` must be {'text' if form is str else 'a map'}")
    return made


def _json_data(value: Any) -> Any:
    """The value as it is sent to Kubernetes. Stricter than msgspec.json, which accepts numeric keys, sets and bytes.
    Raises TypeError."""
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
OWN_QUEUES = ("kai", "volcano")  # gangs with queues of their own
FRACTION = "gpu-fraction"  # annotation of KAI and Run:ai, because a fraction of a GPU is not a Kubernetes resource


def manifests_of(workload: Workload, template: str, claim: str = "") -> "list[Manifest]":
    """The objects of one workload: built in (`templates/`), or from a user's template. The load generator sets its
    name. Raises SuiteError."""
    if workload.template is not None:
        made = rendered(workload.template, template, workload.values, claim)
        before = [one["kind"] for one in made[:-1]]
        for wait in workload.waits:
            if wait.kind not in before:
                known = ", ".join(dict.fromkeys(before)) or "none"
                why = f"`wait` names {wait.kind}; kinds of objects with another after them: {known}"
                raise bad_template(workload.template, why)
    else:
        made = _built_in_objects(workload)
    for one in made if workload.queue and workload.gang not in OWN_QUEUES else ():
        one["metadata"]["labels"] = {**(one["metadata"].get("labels") or {}), QUEUE: workload.queue}
    return made


def _built_in_objects(workload: Workload) -> "list[Manifest]":
    """What the pods need, then the pods or their controller."""
    from seatrial.kubernetes import pod_metadata

    name, claim, gang = str(workload.kind), workload.claim, gang_of(workload)
    if name == "job" and workload.pods > 1:
        name = "indexed-job"
    elif name == "pytorchjob" and workload.pods == 1:
        name = "single-pytorchjob"  # its operator rejects zero workers
    slots = {
        "POD": _pod_spec(workload),
        "PODS": workload.pods,
        "WORKERS": workload.pods - 1,
        "QUEUED": workload.queue is not None and workload.gang not in OWN_QUEUES,
        "QUEUE": workload.queue,
        "PRIORITY": workload.priority,
    }
    made = [_filled(gang["group"], slots)] if gang else []
    if isinstance(claim, DeviceClaim):
        made.append(_filled(_built_in("claim"), {"DEVICE_CLASS": claim.device_class, "DEVICES": claim.count}))
    fraction = {"annotations": {FRACTION: f"{workload.gpus:g}"}} if 0 < workload.gpus < 1 else {}
    for place in range(workload.pods if name == "pod" else 1):
        one = {"metadata": {"name": f"{NAME}-{place}"} if name == "pod" and gang else {}}
        one |= _filled(_built_in(name), slots)
        for metadata in pod_metadata({"template": one}):  # also if the workload is a pod itself
            for field, texts in (*fraction.items(), *gang.get("pods", {}).items()):
                metadata[field] = {**metadata.get(field, {}), **_filled(texts, {})}
        made.append(one)
    return made


def gang_of(workload: Workload) -> "Manifest":
    """The PodGroup, the metadata of its pods and the usual name of the scheduler; empty without a gang."""
    found: Manifest = _built_in("gangs")[workload.gang] if workload.gang else {}
    return found


@cache
def _built_in(name: str) -> Any:
    return load_all((files(__package__) / "templates" / f"{name}.yaml").read_text("utf-8"))[0]


def _filled(value: Any, slots: Mapping[str, Any]) -> Any:
    """A built-in template with each slot name replaced by its value; fields without a value are left out."""
    slots = {"NAME": NAME, **slots}
    if isinstance(value, dict):
        filled = {key: _filled(one, slots) for key, one in value.items()}
        return {key: one for key, one in filled.items() if one is not None}
    if isinstance(value, list):
        return [_filled(one, slots) for one in value]
    return slots.get(value, value) if isinstance(value, str) else value


def _pod_spec(workload: Workload) -> "Manifest":
    gpus = {"nvidia.com/gpu": f"{workload.gpus:g}"} if workload.gpus >= 1 else {}
    claims = [{"name": "devices", "resourceClaimTemplateName": NAME}] if workload.claim else []
    requests = {"cpu": workload.cpu, "memory": workload.memory, **gpus}
    container = {
        "name": "pytorch" if workload.kind == "pytorchjob" else "main",  # the name that its operator expects
        "image": workload.image,
        "command": list(workload.command),
        "resources": {"requests": requests, "limits": gpus, **({"claims": [{"name": "devices"}]} if claims else {})},
    }
    optional = {
        "nodeSelector": dict(workload.node_selector),
        "tolerations": [{"key": key, "operator": "Exists"} for key in workload.tolerate],
        "priorityClassName": workload.priority,
        "schedulerName": workload.scheduler or gang_of(workload).get("scheduler"),
        "resourceClaims": claims,
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return spec | {field: value for field, value in optional.items() if value}
