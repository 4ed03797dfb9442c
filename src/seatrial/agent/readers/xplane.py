"""Reads profiles of XLA (`*.xplane.pb`: JAX, PyTorch/XLA, TensorFlow) without any of these: the wire format of Protocol
Buffers and the few messages that matter.

    XSpace  1 planes, 2 errors, 3 warnings, 4 hostnames
    XPlane  1 id, 2 name, 3 lines, 4 event_metadata (map), 5 stat_metadata (map), 6 stats
    XLine   1 id, 2 name, 3 timestamp_ns, 4 events, 9 duration_ps, 10 display_id, 11 display_name
    XEvent  1 metadata_id, 2 offset_ps, 3 duration_ps, 4 stats, 5 num_occurrences
    XStat   1 metadata_id, 2 double, 3 uint64, 4 int64, 5 str, 6 bytes, 7 ref
"""

from __future__ import annotations

import mmap
import re
from itertools import islice
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .json_file import UnreadableFile

Buffer = Union[bytes, mmap.mmap]
MODULES = "XLA Modules"
STEP_STAT = "step_num"
MOST_STEPS = 10_000
MOST_EVENTS_READ = 2_000_000  # events whose times are read
MOST_PLANES = 1_000
MOST_TEXTS = 20
_TEXT_CHARACTERS = 500
EVENT_TAG, ID_TAG = 0x22, 0x08  # field 4 of a line (length-delimited), field 1 of an event (a number)
_DEVICE = re.compile(r"/device:([A-Za-z_ ]+):(\d+)$")


class Field(NamedTuple):
    """`value` of a number; `start` and `end` of a length-delimited field."""

    number: int
    wire: int
    value: int
    start: int
    end: int


def varint(data: Buffer, at: int, end: int) -> Tuple[int, int]:
    """Returns (number, end offset)."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise UnreadableFile("a number of more than 10 bytes at byte %d" % at)
    raise UnreadableFile("the file ends in the middle of a number, at byte %d" % end)


def field_at(data: Buffer, begun: int, end: int) -> Tuple[Field, int]:
    """Returns (field, offset of the next one)."""
    tag, at = varint(data, begun, end)
    number, wire = tag >> 3, tag & 7
    if number == 0:
        raise UnreadableFile("invalid field 0 at byte %d" % begun)
    if wire == 0:
        value, at = varint(data, at, end)
        return Field(number, wire, value, begun, at), at
    if wire == 2:
        size, at = varint(data, at, end)
    elif wire in (1, 5):
        size = 8 if wire == 1 else 4
    else:
        raise UnreadableFile("unknown wire type %d at byte %d" % (wire, begun))
    if at + size > end:
        raise UnreadableFile("a field of %d bytes at byte %d, but only %d are left" % (size, begun, end - at))
    return Field(number, wire, 0, at, at + size), at + size


def fields(data: Buffer, at: int, end: int) -> Iterator[Field]:
    while at < end:
        field, at = field_at(data, at, end)
        yield field


def text_of(data: Buffer, field: Field) -> str:
    cut = min(field.end, field.start + 4 * _TEXT_CHARACTERS)
    return data[field.start : cut].decode("utf-8", "replace")[:_TEXT_CHARACTERS]


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class Plane:
    """One device or host. Lines are located first, because the names of their events follow them."""

    def __init__(self, data: Buffer, start: int, end: int) -> None:
        self.data = data
        self.name = ""
        self.lines: List[Tuple[int, int]] = []
        self.names: Dict[int, str] = {}  # of events
        self.stat_names: Dict[int, str] = {}
        self.events = 0
        self.unresolved = 0
        for field in fields(data, start, end):
            if field.wire != (0 if field.number == 1 else 2) and field.number <= 6:
                raise UnreadableFile("invalid wire type for field %d of a plane" % field.number)
            if field.number == 2:
                self.name = text_of(data, field)
            elif field.number == 3:
                self.lines.append((field.start, field.end))
            elif field.number in (4, 5):
                key, name = self._entry(field)
                (self.names if field.number == 4 else self.stat_names)[key] = name

    def _entry(self, entry: Field) -> Tuple[int, str]:
        """Returns the key of a map entry and the name in its value."""
        key, name = 0, ""
        for field in fields(self.data, entry.start, entry.end):
            if field.number == 1 and field.wire == 0:
                key = signed(field.value)
            elif field.number == 2 and field.wire == 2:
                for inner in fields(self.data, field.start, field.end):
                    if inner.number == 2 and inner.wire == 2:
                        name = text_of(self.data, inner)
        return key, name

    def read_line(self, start: int, end: int) -> Tuple[str, int]:
        """Returns (name, timestamp_ns) and counts the events, and those with unknown names. Most of a profile is
        events, so their usual form (a short length, then a small number) has a fast path."""
        data, names = self.data, self.names
        name, timestamp_ns, at = "", 0, start
        while at < end:
            if data[at] == EVENT_TAG and at + 3 < end and data[at + 1] < 0x80 and data[at + 2] == ID_TAG:
                body, identity = at + 2, data[at + 3]
                at = body + data[at + 1]
                if at > end:
                    raise UnreadableFile("an event at byte %d is longer than its line" % body)
                if identity >= 0x80:
                    identity = signed(varint(data, body + 1, at)[0])
            else:
                field, at = field_at(data, at, end)
                if field.number == 2 and field.wire == 2:
                    name = text_of(data, field)
                elif field.number == 3 and field.wire == 0:
                    timestamp_ns = signed(field.value)
                if field.number != 4:
                    continue
                if field.wire != 2:
                    raise UnreadableFile("invalid wire type for an event at byte %d" % field.start)
                identity = self.event(field.start, field.end)[0]
            self.events += 1
            self.unresolved += identity not in names
        return name, timestamp_ns

    def event(self, start: int, end: int) -> Tuple[int, int, int]:
        """Returns (metadata id, offset_ps, duration_ps)."""
        found = [0, 0, 0]
        for field in fields(self.data, start, end):
            if field.number <= 3:
                if field.wire != 0:
                    raise UnreadableFile("invalid wire type for field %d of an event" % field.number)
                found[field.number - 1] = signed(field.value)
        return found[0], found[1], found[2]

    def stat(self, start: int, end: int, wanted: int) -> Optional[int]:
        """Returns an event's integer statistic `wanted`."""
        for field in fields(self.data, start, end):
            if field.number != 4 or field.wire != 2:
                continue
            identity, value = 0, None
            for inner in fields(self.data, field.start, field.end):
                if inner.number == 1 and inner.wire == 0:
                    identity = signed(inner.value)
                elif inner.number in (3, 4) and inner.wire == 0:
                    value = signed(inner.value)
            if identity == wanted:
                return value
        return None


def profile(planes: List[Any], events: int, devices: Dict[str, Any], steps: List[Any], source: str) -> Dict[str, Any]:
    """The content of a profile, in the same form for all formats."""
    made = {"planes": planes, "events": events, "devices": devices, "steps": steps, "step_source": source}
    return dict(made, errors=[], unresolved=0, ambiguous=[])


class Summary:
    """Collects the result of `read_xplane`."""

    def __init__(self) -> None:
        self.planes: List[Dict[str, Any]] = []
        self.events = 0
        self.unresolved = 0
        self.devices: Dict[str, Dict[str, int]] = {}
        self.modules: Dict[str, List[Tuple[int, str]]] = {}  # by device: (start in ps, name) of each module it ran
        self.annotated: List[Dict[str, Any]] = []  # steps that the program annotated
        self.errors: List[str] = []
        self._read = 0

    def take(self, plane: Plane) -> None:
        device = _DEVICE.match(plane.name)
        step_stat = next((key for key, name in plane.stat_names.items() if name == STEP_STAT), None)
        for start, end in plane.lines:
            name, timestamp_ns = plane.read_line(start, end)
            found = ((field.start, field.end) for field in fields(plane.data, start, end) if field.number == 4)
            events = islice(found, max(0, MOST_EVENTS_READ - self._read))
            if device and name == MODULES:
                for begin, finish in events:
                    self._read += 1
                    identity, offset_ps, _ = plane.event(begin, finish)
                    at = (timestamp_ns * 1000 + offset_ps, plane.names.get(identity, "?"))
                    self.modules.setdefault(plane.name, []).append(at)
            elif step_stat is not None and not device:
                for begin, finish in events:
                    self._read += 1
                    number = plane.stat(begin, finish, step_stat)
                    if number is not None:
                        _, offset_ps, duration_ps = plane.event(begin, finish)
                        start_s = timestamp_ns / 1e9 + offset_ps / 1e12
                        self.annotated.append({"number": number, "seconds": duration_ps / 1e12, "start_s": start_s})
        self.events += plane.events
        self.unresolved += plane.unresolved
        if len(self.planes) < MOST_PLANES:
            self.planes.append({"name": plane.name, "lines": len(plane.lines), "events": plane.events})
        if device and plane.events:
            kind = self.devices.setdefault(device.group(1), {"count": 0, "events": 0})
            kind["count"] += 1
            kind["events"] += plane.events

    def done(self) -> Dict[str, Any]:
        steps, source, ambiguous = self._steps()
        found = profile(self.planes, self.events, self.devices, steps[:MOST_STEPS], source)
        return dict(found, errors=self.errors, unresolved=self.unresolved, ambiguous=ambiguous)

    def _steps(self) -> Tuple[List[Dict[str, Any]], str, List[str]]:
        """Returns the steps: from the start of one module to the next on the first device, if all modules have one
        name; else the program's step annotations on the host."""
        ambiguous: List[str] = []
        device = next((name for name in sorted(self.modules, key=_device_order) if len(self.modules[name]) > 1), None)
        if device is not None:
            modules = sorted(self.modules[device])
            names = sorted({name for _, name in modules})
            if len(names) == 1:
                starts = [start_ps for start_ps, _ in modules]
                steps: List[Dict[str, Any]] = [
                    {"number": None, "seconds": (starts[after] - start_ps) / 1e12, "start_s": start_ps / 1e12}
                    for after, start_ps in enumerate(starts[:-1], 1)
                ]
                return steps, "%s on %s" % (MODULES, device), []
            ambiguous = names[:MOST_TEXTS]
        steps = sorted(self.annotated, key=lambda step: float(step["start_s"]))
        return steps, "step annotations of the host" if steps else "", [] if steps else ambiguous


def _device_order(name: str) -> Tuple[bool, int, str]:
    found = _DEVICE.match(name)
    return name != "/device:TPU:0", int(found.group(2)) if found else 0, name


def read_xplane(data: Buffer) -> Dict[str, Any]:
    """Raises UnreadableFile if the data is not a profile. An empty file is valid Protocol Buffers, but not a
    profile."""
    if len(data) == 0:
        raise UnreadableFile("the file is empty")
    if data[:2] == b"\x1f\x8b":
        raise UnreadableFile("compressed (expected a plain .xplane.pb)")
    summary = Summary()
    for field in fields(data, 0, len(data)):
        if field.number > 4 or field.wire != 2:
            raise UnreadableFile("unknown XSpace field %d at byte %d" % (field.number, field.start))
        if field.number == 1:
            summary.take(Plane(data, field.start, field.end))
        elif field.number == 2 and len(summary.errors) < MOST_TEXTS:
            summary.errors.append(text_of(data, field))
    return summary.done()
