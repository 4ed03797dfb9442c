"""Turns watch events into lines of the stamps file: which workload an object belongs to, and which stages are new.

Memory holds one number per object, never the object. An object whose owner is unknown (its watch may be later) waits
for the owner. Objects that never get one are foreign; the oldest are dropped."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from seatrial.kinds.scale.followed import CREATED, OF_ALL, STAGES, Followed, ReachedWhen, segments
from seatrial.kinds.scale.work import CANARY, WORKLOAD_LABEL, Stamp
from seatrial.kubernetes import DELETED, Meta, Object, ObjectPart, WatchEvent


class OwnerReference(ObjectPart, frozen=True, gc=False):
    uid: str = ""


class OwnedMeta(Meta, frozen=True, gc=False):
    owner_references: tuple[OwnerReference, ...] = ()


class AnnotatedMeta(OwnedMeta, frozen=True, gc=False):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


def form_of(followed: Followed, annotated: bool = False) -> type[Object]:
    """A struct type for objects of this kind that decodes only the fields with the values of the rules, down to their
    second level, and annotations if `annotated`."""
    wanted = [followed.about] if followed.about else []
    for rule in (*followed.rules, *followed.own):
        wanted += [path for path in (rule.path, rule.stamp, *rule.by) if path]
    parts: dict[str, set[str]] = {}  # the fields inside each field; none: all of it
    for (name, key), *rest in map(segments, wanted):
        parts.setdefault(name, set()).update([rest[0][0]] if rest and not key else [])
    meta: type[Meta] = AnnotatedMeta if annotated or "annotations" in parts.get("metadata", ()) else OwnedMeta
    fields: list[tuple[str, Any, Any]] = [("metadata", meta, msgspec.field(default_factory=meta))]
    for name in sorted(parts.keys() - {"metadata"}):
        inner = [(one, Any, None) for one in sorted(parts[name])]
        part: Any = msgspec.defstruct(f"Part_{name}", inner, frozen=True, gc=False) if inner else Any
        fields.append((name, part | None, None))
    made = msgspec.defstruct(f"Followed{followed.kind}", fields, bases=(Object,), frozen=True, gc=False)
    return cast(type[Object], made)


def value_at(thing: Any, path: str) -> str:
    """The value at the path as text; empty if there is none."""
    for name, key in segments(path):
        thing = thing.get(name) if isinstance(thing, dict) else getattr(thing, PYTHON_NAMES.get(name, name), None)
        if not key:
            continue
        if isinstance(thing, dict):
            thing = thing.get(key)
            continue
        listed = [one for one in (thing if isinstance(thing, list) else ()) if isinstance(one, dict)]
        if key == "*":
            rest = path.partition("[*].")[2]
            return max((value_at(one, rest) for one in listed), default="")
        thing = next((one for one in listed if one.get("type") == key), None)
    return "" if thing is None else str(thing)


PYTHON_NAMES = {"creationTimestamp": "creation_timestamp", "deletionTimestamp": "deletion_timestamp"}


MOST_ORPHANS = 20_000
_BITS = {stage: 1 << place for place, stage in enumerate(STAGES)}
_SHIFT = len(STAGES)
_ALL = (1 << _SHIFT) - 1


class Stamps:
    """The stamps file, and the workload of each known object."""

    def __init__(self, path: Path, prefix: str, selector: str) -> None:
        """`selector` holds the attempt's labels, as `a=b,c=d`."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._prefix = f"{prefix}-"
        self._own = dict(label.split("=", 1) for label in selector.split(","))
        self.known: dict[str, int] = {}  # uid -> the workload's number, with a bit for each written stage
        self._adopted: dict[str, int] = {}  # workloads of others by name
        self._next = 0
        self._orphans: OrderedDict[str, list[Callable[[], None]]] = OrderedDict()  # by owner uid

    def write(self, line: object) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")

    def number_in(self, name: str) -> int | None:
        """The number of the workload with this name."""
        number = name.removeprefix(self._prefix)
        own = int(number) if number.isdecimal() and name.startswith(self._prefix) else None
        return self._adopted.get(name, own)

    def adopt(self, found: Any, at_s: float, since_s: float | None, kind: str) -> int:
        """Gives a number to a workload that another created."""
        number, meta = self._next, found.metadata
        self._next += 1
        self._adopted[meta.name] = number
        self.write(Stamp(number, meta.uid, CREATED, at_s, since_s, server=meta.creation_timestamp or "", kind=kind))
        self.register(meta.uid, number, 0)
        return number

    def number_of(self, labels: Mapping[str, str]) -> str:
        """The value of Seatrial's own label; empty without one, and for an object of another attempt."""
        number = labels.get(WORKLOAD_LABEL, "")
        return number if number and self._own.items() <= labels.items() else ""

    def wait_for(self, uids: list[str], record: Callable[[], None]) -> None:
        for uid in uids:
            self._orphans.setdefault(uid, []).append(record)
        while len(self._orphans) > MOST_ORPHANS:
            self._orphans.popitem(last=False)

    def register(self, uid: str, number: int, bits: int) -> None:
        new = uid not in self.known
        self.known[uid] = number << _SHIFT | bits
        if new and uid in self._orphans:
            for record in self._orphans.pop(uid):
                record()


class StampFeed:
    """The events of one watch: one kind of object in one namespace."""

    def __init__(
        self, stamps: Stamps, followed: Followed, root: bool, blind_since_s: float | None, adopts: bool = False
    ) -> None:
        """`adopts`: objects created from now on are workloads."""
        self._stamps, self._followed, self._root, self._adopts = stamps, followed, root, adopts
        self._earlier: set[str] = set()  # uids of objects that existed before
        self._synced = False
        self._blind_since_s = self._last_s = blind_since_s
        self._there: set[str] = set()  # uids, if deletion is a stage
        self._given: set[str] | None = None  # uids in a list after a gap

    def take(self, event: "WatchEvent[Any]") -> None:
        found: Any = event.object
        if found is None:  # all existing objects have been seen after a (re)start of the watch
            given, self._given, self._blind_since_s, self._synced = self._given, None, None, True
            for uid in () if given is None else self._there - given:  # deleted in a gap
                self._gone(uid, event.at_s, self._last_s)
            self._last_s = event.at_s
            return
        if event.relisted and self._given is None:
            self._given = set()
            self._stamps.write({"gap_s": self._last_s, "at_s": event.at_s, "kind": self._followed.kind})
        since_s = self._last_s if event.relisted else self._blind_since_s
        if self._given is not None:
            self._given.add(found.metadata.uid)
        meta = found.metadata
        if self._stamps.number_of(meta.labels) == CANARY:
            self._stamps.write({"canary": meta.annotations.get(CANARY, ""), "at_s": event.at_s})
        else:
            self.record(event, since_s)
        if not event.relisted:
            self._last_s = event.at_s

    def record(self, event: "WatchEvent[Any]", since_s: float | None) -> None:
        found: Any = event.object
        if self._adopts and found.metadata.uid not in self._stamps.known:
            if not self._synced or event.kind == DELETED:
                self._earlier.add(found.metadata.uid)
            if found.metadata.uid in self._earlier:
                return
            self._stamps.adopt(found, event.at_s, since_s, self._followed.kind)
        number, owners = self._belongs(found)
        uid = value_at(found, self._followed.about) if self._followed.about else found.metadata.uid
        if number is None:
            if owners:
                self._stamps.wait_for(owners, partial(self.record, event, since_s))
            return
        itself = self._root and bool(self._adopts or self._stamps.number_of(found.metadata.labels))
        rules = self._followed.own if itself else self._followed.rules
        if self._followed.gone:
            self._there.add(uid)
        if event.kind != DELETED:  # the last state was seen before, or cannot be trusted
            self._reach(number, uid, found, rules, event.at_s, since_s)
        if event.kind == DELETED and self._followed.gone:
            self._gone(uid, event.at_s, since_s)

    def _belongs(self, found: Any) -> tuple[int | None, list[str]]:
        """The number of its workload; None with its owners if they are unknown."""
        labels = found.metadata.labels
        if self._adopts:
            return self._stamps.known[found.metadata.uid] >> _SHIFT, []
        if (number := self._stamps.number_of(labels)).isdecimal():
            return int(number), []
        if WORKLOAD_LABEL in labels:
            return None, []  # another attempt's
        if self._followed.about:
            owners = [value_at(found, self._followed.about)]
        else:
            owners = [owner.uid for owner in found.metadata.owner_references]
        for uid in owners:
            if uid in self._stamps.known:
                return self._stamps.known[uid] >> _SHIFT, owners
        for label in self._followed.labels:
            named = self._stamps.number_in(labels.get(label, ""))
            if named is not None:
                return named, owners
        return None, [uid for uid in owners if uid]

    def _reach(
        self, number: int, uid: str, found: Any, rules: tuple[ReachedWhen, ...], at_s: float, since_s: float | None
    ) -> None:
        bits, new, kind = self._stamps.known.get(uid, 0) & _ALL, uid not in self._stamps.known, self._followed.kind
        for rule in rules:
            # The event with the evictor may follow the condition of the eviction: keep both.
            if bits & _BITS[rule.stage] and not (rule.by and self._followed.about):
                continue
            have = value_at(found, rule.path) if rule.path else ""
            if rule.path and (not have or (rule.values and have not in rule.values)):
                if new and rule.stage in OF_ALL:
                    self._stamps.write(Stamp(number, uid, rule.stage, at_s, kind=kind, pending=True))
                continue
            server = value_at(found, rule.stamp) if rule.stamp else ""
            by = next(filter(None, (value_at(found, path) for path in rule.by)), "")
            self._stamps.write(Stamp(number, uid, rule.stage, at_s, since_s, rule.failed, server, by, kind))
            bits |= _BITS[rule.stage]
        self._stamps.register(uid, number, bits)

    def _gone(self, uid: str, at_s: float, since_s: float | None) -> None:
        self._there.discard(uid)
        known, stage = self._stamps.known.get(uid, 0), self._followed.gone
        if not known & _BITS[stage]:
            self._stamps.write(Stamp(known >> _SHIFT, uid, stage, at_s, since_s, kind=self._followed.kind))
            self._stamps.known[uid] = known | _BITS[stage]
