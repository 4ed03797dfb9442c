"""The user's `template:` put on our pod template, and the check that what Seatrial needs in a pod is still there."""

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.job import Outcome
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.manifest.pod import VOLUME
from seatrial.target.kubernetes.manifest.strategic import PatchError, apply_patch
from seatrial.target.protocol import TargetError

_OWN_VARIABLES = ("HOME", "TMPDIR", "MASTER_ADDR", "MASTER_PORT")
_OWN_FIELDS = ("command", "args", "terminationMessagePath", "terminationMessagePolicy")


def templated(ours: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`ours` with the patch on it. TargetError (REFUSED) when the patch means nothing or takes away what is needed."""
    if not patch:
        return ours
    try:
        made = apply_patch(ours, patch)
    except PatchError as error:
        raise TargetError(f"the target's `template`: {error}", Outcome.REFUSED) from None
    lost = list(_lost(ours, made))
    if lost:
        raise TargetError(
            "the target's `template` takes away or changes what Seatrial needs in its pods: " + "; ".join(lost),
            Outcome.REFUSED,
        )
    return made


def _lost(ours: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    labels = _map(_map(made.get("metadata")).get("labels"))
    for key, value in ours["metadata"]["labels"].items():
        if labels.get(key) != value:
            yield f"label {key}"
    spec = _map(made.get("spec"))
    for field in ("restartPolicy", "subdomain"):
        if spec.get(field) != ours["spec"].get(field):
            yield f"spec.{field}"
    volumes = _by(spec.get("volumes"), "name")
    for volume in ours["spec"]["volumes"]:
        name = volume["name"]
        if name.startswith("seatrial-") and volumes.get(name) != volume and (name != VOLUME or name not in volumes):
            yield f"volume {name}"
    containers = _by(spec.get("containers"), "name")
    for container in ours["spec"]["containers"]:
        name = container["name"]
        if name not in containers:
            yield f"container {name}"
        else:
            yield from (f"{what} of container {name}" for what in _lost_of(container, containers[name]))


def _lost_of(ours: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in _OWN_FIELDS if made.get(field) != ours.get(field))
    if "readinessProbe" in ours and made.get("readinessProbe") != ours["readinessProbe"]:
        yield "readinessProbe"
    ports = _by(made.get("ports"), "name")
    for port in ours.get("ports", []):
        if ports.get(port["name"]) != port:
            yield f"port {port['name']}"
    variables = _by(made.get("env"), "name")
    for variable in ours["env"]:
        name = variable["name"]
        needed = name.startswith("SEATRIAL_") or name in _OWN_VARIABLES or "valueFrom" in variable
        if needed and variables.get(name) != variable:
            yield f"variable {name}"
    mounts = _by(made.get("volumeMounts"), "mountPath")
    for mount in ours["volumeMounts"]:
        place = mount["mountPath"]
        if place.startswith(f"{names.PLACE}/") and mounts.get(place) != mount:
            yield f"the mount at {place}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _by(elements: Any, key: str) -> dict[Any, Mapping[str, Any]]:
    found = elements if isinstance(elements, list) else []
    return {element.get(key): element for element in found if isinstance(element, dict)}
