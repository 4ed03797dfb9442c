"""Merges the user's `template:` into our pod template and checks that everything that Seatrial needs is still there."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.kubernetes import Manifest
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.pod import VOLUME
from seatrial.targets.protocol import TargetError, refused

# Lists that are merged by that field of their elements; all others are replaced, as on the API server.
MERGED = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name",
    "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "volumes": "name",
    "imagePullSecrets": "name", "hostAliases": "ip", "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name", "resourceClaims": "name",
}  # fmt: skip
DELETE = {"$patch": "delete"}
_OWN_VARIABLES = ("HOME", "TMPDIR", "MASTER_ADDR", "MASTER_PORT")
_OWN_FIELDS = ("command", "args", "terminationMessagePath", "terminationMessagePolicy")


def templated(ours: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """`ours` with the patch applied. Raises TargetError (REFUSED) if the patch is invalid or removes what is needed."""
    if not patch:
        return ours
    made = _merged(ours, patch, ())
    lost = list(_lost(ours, made))
    if lost:
        raise refused("the target's `template` removes or changes parts that Seatrial needs: " + "; ".join(lost))
    return made


def _merged(ours: Mapping[str, Any], patch: Mapping[str, Any], path: tuple[str, ...]) -> Manifest:
    """Merges maps; null removes a field; lists in MERGED are merged, others replaced."""
    made = dict(ours)
    for field, value in patch.items():
        place = (*path, str(field))
        if place[-1].startswith("$"):
            raise _invalid(place, "unknown directive; only `$patch: delete` in a list element is supported")
        before = made.get(field)
        if value is None:
            made.pop(field, None)
        elif isinstance(value, dict):
            made[field] = _merged(before if isinstance(before, dict) else {}, value, place)
        elif isinstance(value, list) and field in MERGED:
            made[field] = _merged_list(before if isinstance(before, list) else [], value, MERGED[field], place)
        else:
            made[field] = copy.deepcopy(value)
    return made


def _merged_list(ours: list[Any], patch: list[Any], key: str, path: tuple[str, ...]) -> list[Any]:
    """Our elements in their order, then new ones."""
    made = {one[key]: one for one in ours}
    for element in patch:
        if not isinstance(element, dict) or not isinstance(element.get(key), str | int):
            raise _invalid(path, f"a list element has no `{key}`, which identifies it: {str(element)[:80]}")
        if DELETE.items() <= element.items():
            made.pop(element[key], None)
        else:
            made[element[key]] = _merged(made.get(element[key], {}), element, path)
    return list(made.values())


def _invalid(path: tuple[str, ...], problem: str) -> TargetError:
    return refused(f"the target's `template`: {'.'.join(path)}: {problem}")


def _lost(ours: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    labels = _map(_map(made.get("metadata")).get("labels"))
    yield from (f"label {key}" for key, value in ours["metadata"]["labels"].items() if labels.get(key) != value)
    spec = _map(made.get("spec"))
    yield from (
        f"spec.{field}" for field in ("restartPolicy", "subdomain") if spec.get(field) != ours["spec"].get(field)
    )
    own_volumes = [one for one in ours["spec"]["volumes"] if one["name"].startswith("seatrial-")]
    for volume in _changed(own_volumes, spec.get("volumes"), "name"):
        if volume["name"] != VOLUME or VOLUME not in _by(spec.get("volumes"), "name"):
            yield f"volume {volume['name']}"
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
    variables = [
        one
        for one in ours["env"]
        if one["name"].startswith("SEATRIAL_") or one["name"] in _OWN_VARIABLES or "valueFrom" in one
    ]
    mounts = [one for one in ours["volumeMounts"] if one["mountPath"].startswith(f"{names.PLACE}/")]
    yield from (f"port {one['name']}" for one in _changed(ours.get("ports", []), made.get("ports"), "name"))
    yield from (f"variable {one['name']}" for one in _changed(variables, made.get("env"), "name"))
    yield from (f"the mount at {one['mountPath']}" for one in _changed(mounts, made.get("volumeMounts"), "mountPath"))


def _changed(ours: list[Manifest], made: Any, key: str) -> list[Manifest]:
    """Our elements that are missing or changed in the other list."""
    found = _by(made, key)
    return [one for one in ours if found.get(one[key]) != one]


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _by(elements: Any, key: str) -> dict[Any, Mapping[str, Any]]:
    found = elements if isinstance(elements, list) else []
    return {element.get(key): element for element in found if isinstance(element, dict)}
