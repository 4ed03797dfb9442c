"""For tests of what reads logs and profiles: patterns as a trial gives them, and profiles made byte by byte."""

from collections.abc import Sequence
from typing import Any

from seatrial.agent.readers.log import Reading


def pattern(text: str, literal: str = "") -> dict[str, str]:
    return {"pattern": text, "literal": literal}


LOSS = pattern(r"(?<![\w/-])loss: (\S+)", "loss: ")
STEP = pattern(r"\bstep: (\d+)", "step: ")
STEP_TIME = pattern(r"step_time: ([\d.]+)", "step_time: ")


def read_log(
    data: bytes, chunk: int = 1 << 18, hosts: int = 1, **follow: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(result, notes) of a log that is there already."""
    reading = Reading(follow, hosts)
    notes = []
    for start in range(0, len(data), chunk):
        reading.feed(data[start : start + chunk])
        notes += reading.notes(None)
    reading.flush()
    return reading.result(), notes + reading.notes(None, last=True)


def values(notes: Sequence[dict[str, Any]], name: str, host: int = 0, field: str = "values") -> list[Any]:
    return [one for note in notes if note.get("name") == name and note["host"] == host for one in note[field]]


# ---- Protocol Buffers, written


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def part(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def named(field: int, number: int, name: str) -> bytes:
    """An entry of event_metadata (4) or stat_metadata (5)."""
    return part(field, whole(1, number) + part(2, whole(1, number) + part(2, name)))


def event(metadata: int, offset_s: float, duration_s: float = 0.1, stats: bytes = b"") -> bytes:
    times = whole(2, round(offset_s * 1e12)) + whole(3, round(duration_s * 1e12))
    return part(4, whole(1, metadata) + times + stats)


def stat(metadata: int, number: int) -> bytes:
    return part(4, whole(1, metadata) + whole(4, number))


def line(name: str, *events: bytes, timestamp_ns: int = 1_700_000_000_000_000_000) -> bytes:
    return part(3, whole(1, 7) + part(2, name) + whole(3, timestamp_ns) + b"".join(events))


def plane(name: str, *parts: bytes) -> bytes:
    return part(1, whole(1, 1) + part(2, name) + b"".join(parts))


def tpu_profile(offsets_s: Sequence[float] = (1, 2, 4), devices: int = 1, names: Sequence[str] = ()) -> bytes:
    """As a TPU makes it: a plane for each chip, with what it ran on its line `XLA Modules`."""
    named_so = list(names) or ["jit_train_step(123)"] * len(offsets_s)
    ids = {name: 300 + number for number, name in enumerate(dict.fromkeys(named_so))}
    modules = [event(ids[name], offset) for name, offset in zip(named_so, offsets_s, strict=True)]
    metadata = [named(4, number, name) for name, number in ids.items()] + [named(4, 1, "fusion.1")]
    ops = line("XLA Ops", *(event(1, offset) for offset in offsets_s))
    chips = [plane(f"/device:TPU:{n}", line("XLA Modules", *modules), ops, *metadata) for n in range(devices)]
    return b"".join([*chips, part(4, "host-0")])


def large_profile(events: int) -> bytes:
    return plane("/device:TPU:0", line("XLA Modules", event(300, 1) * events), named(4, 300, "jit_train_step"))


def host_profile(steps: dict[int, float]) -> bytes:
    """As JAX makes it on CPU: step annotations on the host, nothing on a device."""
    events, at_s = [], 0.0
    for number, seconds in steps.items():
        events.append(event(1, at_s, seconds, stat(9, number)))
        events.append(event(2, at_s, seconds / 2))
        at_s += seconds
    metadata = [named(4, 1, "train"), named(4, 2, "PjitFunction(train_step)"), named(5, 9, "step_num")]
    return plane("/host:CPU", line("python", *events), *metadata) + plane("Task Environment")
