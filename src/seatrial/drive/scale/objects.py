"""Objects of any kind, of which only what the rules name is decoded: forms that are made from their paths."""

from typing import Any, cast

import msgspec

from seatrial.job.followed import Followed, ReachedWhen, segments
from seatrial.kubernetes import Meta, Object, ObjectPart

MAPS = ("annotations", "labels")


class OwnerReference(ObjectPart, frozen=True, gc=False):
    uid: str = ""


class OwnedMeta(Meta, frozen=True, gc=False):
    owner_references: tuple[OwnerReference, ...] = ()


class AnnotatedMeta(OwnedMeta, frozen=True, gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


def form_of(followed: Followed, annotated: bool = False) -> type[Object]:
    """What of such an object is decoded. `annotated`: its annotations, too."""
    wanted = [followed.about] if followed.about else []
    for rule in (*followed.rules, *followed.own):
        wanted += [path for path in (rule.path, rule.stamp, *rule.by) if path]
    tree: dict[str, Any] = {}
    for path in wanted:
        names = segments(path)
        if names[0][0] == "metadata":
            annotated = annotated or names[1][0] == "annotations"
        else:
            _grow(tree, names)
    meta: type[Meta] = AnnotatedMeta if annotated else OwnedMeta
    fields = [(name, *_field(name, inner)) for name, inner in tree.items()]
    made = msgspec.defstruct(
        f"Followed{followed.kind}",
        [("metadata", meta, msgspec.field(default_factory=meta)), *fields],
        bases=(Object,), frozen=True, gc=False,
    )  # fmt: skip
    return cast(type[Object], made)


def _grow(tree: dict[str, Any], names: tuple[tuple[str, str], ...]) -> None:
    for name, key in names:
        inner = tree.setdefault(name, {})
        if key:
            inner[LISTED] = {}
            inner.setdefault("type", {})
        tree = inner


LISTED = "[]"  # the part is a list, of which elements are told apart by their type


def _field(name: str, inner: dict[str, Any]) -> tuple[Any, Any]:
    """Type and default of a part."""
    if not inner:
        return Any, None
    listed = LISTED in inner
    fields = [(child, *_field(child, rest)) for child, rest in inner.items() if child != LISTED]
    part: Any = msgspec.defstruct(f"Part_{name}", fields, frozen=True, gc=False)
    return (tuple[part, ...] | None if listed else part | None), None


def value_at(thing: Any, path: str) -> str:
    """What is there, as text; empty when nothing is."""
    for name, key in segments(path):
        if thing is None:
            return ""
        thing = getattr(thing, PYTHON_NAMES.get(name, name), None)
        if key and thing is not None:
            thing = thing.get(key) if name in MAPS else next((one for one in thing if one.type == key), None)
    return "" if thing is None else str(thing)


PYTHON_NAMES = {"creationTimestamp": "creation_timestamp", "deletionTimestamp": "deletion_timestamp"}


def shows(rule: ReachedWhen, found: Object) -> bool:
    """Whether this state of an object shows that the rule's stage was reached."""
    if not rule.path:
        return True
    have = value_at(found, rule.path)
    return bool(have) and (not rule.values or have in rule.values)


def caused_by(rule: ReachedWhen, found: Object) -> str:
    return next(filter(None, (value_at(found, path) for path in rule.by)), "")
