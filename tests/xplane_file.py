"""Writes small XPlane profiles in the wire format of protocol buffers: what a device or a host would record."""

from collections.abc import Sequence


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def named(number: int, name: str) -> bytes:
    """An entry of a map from id to metadata."""
    return field(1, number) + field(2, field(1, number) + field(2, name.encode()))


def tpu_profile(starts_s: Sequence[float], devices: int = 1, name: str = "jit_train_step") -> bytes:
    """A module on each device at each of these times."""
    events = b"".join(field(4, field(1, 7) + field(2, int(start * 1e12)) + field(3, 10**9)) for start in starts_s)
    line = field(3, field(1, 1) + field(2, b"XLA Modules") + events)
    return b"".join(
        field(1, field(1, index + 1) + field(2, f"/device:TPU:{index}".encode()) + line + field(4, named(7, name)))
        for index in range(devices)
    )


def host_profile(steps: Sequence[tuple[int, float]]) -> bytes:
    """Annotated steps on the host: number and seconds of each."""
    events = b""
    for index, (number, seconds) in enumerate(steps):
        stat = field(4, field(1, 3) + field(4, number))
        events += field(4, field(1, 7) + field(2, int(index * 1e12)) + field(3, int(seconds * 1e12)) + stat)
    line = field(3, field(1, 1) + field(2, b"python") + events)
    plane = field(1, 1) + field(2, b"/host:CPU") + line + field(4, named(7, "train")) + field(5, named(3, "step_num"))
    return field(1, plane)
