"""Kubernetes' strategic merge patch, for pod templates, as the API server does it.

1. Maps are merged, other values replaced; null takes a field away.
2. Lists of MERGE_KEYS are merged element by element, by the key given there; every other list is replaced as a whole.
   Elements that the patch names come in its order, new ones before those that it does not name.
3. `$patch: delete` in an element takes it out of a merged list (its key must be there), in a map it empties the map;
   `$patch: replace` as an element replaces the whole list by the patch's other elements, in a map the whole map.
   `$retainKeys: [..]` in a map takes away all fields but those: so a volume changes its source.
4. The differences are on purpose, and all are about what has nothing to be merged with: there nulls and directives mean
   the same as elsewhere. The server drops a map with `$patch: replace` silently, keeps some nulls (a limit
   becomes 0) and refuses most directives.
5. What has no meaning is a PatchError with the place of it, never passed over.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
PATCH, RETAIN = "$patch", "$retainKeys"

_IN_CONTAINERS = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
# Lists of a pod template that are merged, by the path of their fields; "" is for lists of plain values.
MERGE_KEYS: Mapping[Path, str] = {
    ("metadata", "finalizers"): "",
    ("metadata", "ownerReferences"): "uid",
    **{("spec", containers): "name" for containers in _CONTAINERS},
    **{("spec", containers, field): key for containers in _CONTAINERS for field, key in _IN_CONTAINERS.items()},
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "schedulingGates"): "name",
    ("spec", "resourceClaims"): "name",
}


class PatchError(ValueError):
    """A patch that means nothing, and where in it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{'.'.join(path) or 'the patch'}: {problem}")
        self.path, self.problem = path, problem


def apply_patch(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template with a patch put on it. Neither of the two is changed."""
    return _map(copy.deepcopy(dict(original)), copy.deepcopy(dict(patch)), ())


def _map(original: dict[str, Any], patch: dict[str, Any], path: Path) -> dict[str, Any]:
    directive = patch.pop(PATCH, None)
    if directive is not None:
        if directive not in ("replace", "delete"):
            raise PatchError(path, f"`{PATCH}` is {directive!r}, neither 'replace' nor 'delete'")
        return {} if directive == "delete" else _cleaned(patch, path)
    if RETAIN in patch:
        original = _retained(original, patch, path)
    for field, value in patch.items():
        place = (*path, str(field))
        if not isinstance(field, str):
            raise PatchError(place, "the name of a field is text")
        if field.startswith("$"):
            raise PatchError(place, f"not known here; `{PATCH}` and `{RETAIN}` are")
        if value is None:
            original.pop(field, None)
        elif isinstance(value, dict) and isinstance(original.get(field), dict):
            original[field] = _map(original[field], value, place)
        elif isinstance(value, list):
            kept = original.get(field)
            original[field] = _list(kept if isinstance(kept, list) else [], value, place)
        else:
            original[field] = _cleaned(value, place)
    return original


def _retained(original: dict[str, Any], patch: dict[str, Any], path: Path) -> dict[str, Any]:
    keys = patch.pop(RETAIN)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PatchError((*path, RETAIN), "expected a list of the names of fields")
    others = [field for field, value in patch.items() if value is not None and field not in keys]
    if others:
        raise PatchError((*path, RETAIN), f"it takes away {', '.join(others)}, which the patch sets")
    return {field: value for field, value in original.items() if field in keys}


def _list(original: list[Any], patch: list[Any], path: Path) -> list[Any]:
    key = MERGE_KEYS.get(path)
    if key is None:
        return [_cleaned(element, path, whole=True) for element in patch]
    if key == "":
        if not all(isinstance(element, str) for element in patch):
            raise PatchError(path, "expected a list of texts")
        added = [element for element in patch if element not in original]
        return _ordered([*original, *added], patch, original)
    return _merged_list(original, patch, key, path)


def _merged_list(original: list[Any], patch: list[Any], key: str, path: Path) -> list[Any]:
    replace, given = False, []
    for element in patch:
        if not isinstance(element, dict):
            raise PatchError(path, f"expected elements that are maps with `{key}`, got {element!r}")
        directive = element.get(PATCH)
        if directive is None or directive == "delete":
            _check_key(element, key, path)
        if directive is None:
            given.append(element)
        elif directive == "delete":
            original = [kept for kept in original if kept.get(key) != element[key]]
        elif directive == "replace":
            replace = True
        else:
            raise PatchError(path, f"`{PATCH}` is {directive!r}, neither 'replace' nor 'delete'")
    if replace:
        return [_map({}, element, path) for element in given]
    before = [element.get(key) for element in original]
    found = {element.get(key): element for element in reversed(original)}
    for element in given:
        found[element[key]] = _map(found.get(element[key], {}), element, path)
    named = list(dict.fromkeys(element[key] for element in given))
    others = [value for value in dict.fromkeys(before) if value not in named]
    return [found[value] for value in _ordered([*others, *named], named, before)]


def _check_key(element: Mapping[str, Any], key: str, path: Path) -> None:
    value = element.get(key)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise PatchError(path, f"an element has no `{key}`, by which it would be found: {_brief(element)}")


def _ordered(elements: Sequence[Any], named: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """Those of the patch in its order, the others in theirs; between the two by where they were before."""
    ours, others = [each for each in dict.fromkeys(named) if each in elements], []
    others = [each for each in elements if each not in ours]
    made: list[Any] = []
    for each in others:
        while ours and not (ours[0] in before and before.index(each) < before.index(ours[0])):
            made.append(ours.pop(0))
        made.append(each)
    return [*made, *ours]


def _cleaned(value: Any, path: Path, whole: bool = False) -> Any:
    """What is put in where nothing was: without nulls. `whole`: inside a list that is replaced as a whole."""
    if isinstance(value, list):
        return [_cleaned(element, path, whole) for element in value] if whole else _list([], value, path)
    if not isinstance(value, dict):
        return value
    if whole:
        for field in _directives(value):
            raise PatchError((*path, field), "this list is replaced as a whole; leave the directive out")
        return {field: _cleaned(item, (*path, field), True) for field, item in value.items() if item is not None}
    return _map({}, value, path)


def _directives(value: Mapping[str, Any]) -> Iterator[str]:
    return (field for field in value if isinstance(field, str) and field.startswith("$"))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
