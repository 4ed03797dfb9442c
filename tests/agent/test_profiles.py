"""Profiles are opened, not only counted: what is real is read right, what is not is refused with its reason."""

import gzip
import io
import json
import random
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reads import event, host_profile, large_profile, line, named, part, plane, stat, tpu_profile, whole

from seatrial.agent.readers import kineto, xplane
from seatrial.agent.readers.files import read_one
from seatrial.agent.readers.json_file import UnreadableFile


def seconds(profile: dict[str, Any]) -> list[float]:
    return [step["seconds"] for step in profile["steps"]]


# ---- XPlane


def test_steps_of_a_tpu_are_from_the_start_of_a_module_to_the_next() -> None:
    found = xplane.read_xplane(tpu_profile([1, 2, 4], devices=4))
    assert statistics.median(seconds(found)) == pytest.approx(1.5)
    assert found["step_source"] == "XLA Modules on /device:TPU:0"
    assert found["devices"] == {"TPU": {"count": 4, "events": 24}}
    assert (found["events"], found["unresolved"], found["ambiguous"], found["errors"]) == (24, 0, [], [])
    assert found["planes"][0] == {"name": "/device:TPU:0", "lines": 2, "events": 6}
    assert found["steps"][0]["start_s"] == pytest.approx(1_700_000_001)


def test_modules_in_any_order_are_sorted() -> None:
    assert seconds(xplane.read_xplane(tpu_profile([4, 1, 2]))) == pytest.approx([1, 2])


def test_modules_of_several_names_are_ambiguous() -> None:
    found = xplane.read_xplane(tpu_profile([1, 2, 4], names=["jit_a", "jit_b", "jit_a"]))
    assert (found["steps"], found["step_source"], found["ambiguous"]) == ([], "", ["jit_a", "jit_b"])


def test_annotated_steps_count_when_modules_have_several_names() -> None:
    modules = tpu_profile([1, 2, 4], names=["jit_a", "jit_b", "jit_a"])
    found = xplane.read_xplane(modules + host_profile({3: 0.5, 4: 0.25}))
    assert (seconds(found), found["ambiguous"]) == ([pytest.approx(0.5), pytest.approx(0.25)], [])


def test_one_module_is_no_step() -> None:
    assert xplane.read_xplane(tpu_profile([1]))["steps"] == []


def test_another_device_is_named_as_the_source() -> None:
    data = plane("/device:GPU:0", line("XLA Modules", event(1, 1), event(1, 3)), named(4, 1, "jit_step"))
    found = xplane.read_xplane(data)
    assert (seconds(found), found["step_source"]) == ([pytest.approx(2)], "XLA Modules on /device:GPU:0")


def test_on_a_cpu_steps_are_those_that_the_program_named() -> None:
    found = xplane.read_xplane(host_profile({3: 0.019644, 4: 0.0237, 5: 0.019158}))
    assert [step["number"] for step in found["steps"]] == [3, 4, 5]
    assert seconds(found) == pytest.approx([0.019644, 0.0237, 0.019158])
    assert (found["step_source"], found["devices"]) == ("step annotations of the host", {})


def test_the_profile_of_a_real_run_reads_as_its_log_says() -> None:
    """Made by JAX on a CPU, and cut down to its steps byte for byte; the seconds are those that the job printed."""
    path = Path(__file__).parent / "profiles/cpu.xplane.pb"
    log = {3: 0.008, 4: 0.008768, 5: 0.007336, 6: 0.006511, 7: 0.008814, 8: 0.012364}
    found = read_one(str(path), "xplane", {})["profile"]
    assert {step["number"]: step["seconds"] for step in found["steps"]} == pytest.approx(log, rel=0.005)
    assert (found["events"], found["unresolved"]) == (6, 0)


def test_events_without_a_name_are_counted() -> None:
    data = plane(
        "/host:CPU", line("python", event(1, 0), event(2, 0), event(70_000, 0), part(4, b"")), named(4, 1, "a")
    )
    found = xplane.read_xplane(data)
    assert (found["events"], found["unresolved"]) == (4, 3)


def test_negative_and_large_numbers_are_read() -> None:
    negative = part(4, whole(1, -5) + whole(2, -1_000_000_000_000) + whole(3, 10**17))
    data = plane(
        "/host:CPU", line("python", negative, event(2, 1, 1, stat(9, -3))), named(4, -5, "a"), named(5, 9, "step_num")
    )
    found = xplane.read_xplane(data)
    assert found["unresolved"] == 1
    assert [step["number"] for step in found["steps"]] == [-3]


def test_errors_of_the_profiler_are_told_and_bounded() -> None:
    found = xplane.read_xplane(
        tpu_profile() + part(3, "a warning") + part(2, "w" * 5000) + part(2, "out of space") * 50
    )
    assert found["errors"][1:] == ["out of space"] * 19
    assert len(found["errors"][0]) == 500


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "the file is empty"),
        (b"this is a text, not a profile\n", "unknown wire type|unknown XSpace field|are left"),
        (b'{"traceEvents": []}', "unknown wire type|unknown XSpace field|are left"),
        (b"\x00" * 100, "field 0"),
        (b"\xff" * 100, "more than 10 bytes"),
        (part(9, b"x"), "unknown XSpace field 9"),
        (whole(1, 5), "unknown XSpace field 1"),
        (tpu_profile()[:-3], "but only .* are left"),
        (tpu_profile()[:100], "but only .* are left"),
        (plane("x", part(3, part(4, b"\x08"))), "middle of a number"),
        (plane("x", whole(3, 1)), "field 3 of a plane"),
        (plane("x", part(3, whole(4, 1))), "invalid wire type for an event"),
        (plane("x", part(3, part(4, part(1, b"xx")))), "field 1 of an event"),
        (plane("x", part(3, b"\x22\x7f\x08\x01")), "longer than its line"),
    ],
)
def test_what_is_no_profile_says_why(data: bytes, error: str) -> None:
    with pytest.raises(UnreadableFile, match=error):
        xplane.read_xplane(data)


def test_random_bytes_and_cut_profiles_are_refused() -> None:
    rng = random.Random(4)
    assert all(_refused(rng.randbytes(1000)) for _ in range(300))
    assert all(_refused(rng.randbytes(8)) for _ in range(300))
    whole_profile = host_profile(dict.fromkeys(range(20), 0.02))
    first_end = len(whole_profile) - len(plane("Task Environment"))
    cuts = [cut for cut in range(len(whole_profile)) if cut not in (first_end,)]
    assert all(_refused(whole_profile[:cut]) for cut in cuts)


def _read_or_refused(read: Callable[[], dict[str, Any]]) -> str:
    """That it was read, or why not: nothing else may come of any bytes."""
    try:
        return f"{read()['events']} events"
    except UnreadableFile as error:
        return str(error)


def _refused(data: bytes) -> bool:
    return not _read_or_refused(lambda: xplane.read_xplane(data)).endswith(" events")


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_no_bytes_at_all_break_the_reader(data: bytes) -> None:
    for candidate in (
        data,
        plane("/host:CPU", data),
        plane("/device:TPU:0", part(3, data)),
        plane("a", part(3, part(4, data))),
    ):
        assert _read_or_refused(lambda candidate=candidate: xplane.read_xplane(candidate))


@given(st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=200)
def test_a_changed_byte_never_breaks_the_reader(place: int, byte: int) -> None:
    data = bytearray(host_profile({1: 0.1, 2: 0.2}) + tpu_profile())
    data[place % len(data)] = byte
    assert _read_or_refused(lambda: xplane.read_xplane(bytes(data)))


def test_a_large_profile_takes_little_memory() -> None:
    tracemalloc.start()
    found = xplane.read_xplane(
        host_profile(dict.fromkeys(range(1000), 0.1)) + plane("/host:X", line("ops", event(1, 1) * 20_000))
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["events"] == 22_000
    assert peak < 5 << 20
    assert len(xplane.read_xplane(large_profile(20_000))["steps"]) == xplane.MOST_STEPS


# ---- Kineto


def trace(*events: dict[str, Any], **fields: Any) -> bytes:
    made = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": list(events), "traceName": "x", **fields}
    return json.dumps(made).encode()


def step(number: int, start_us: float, lasted_us: float, **fields: Any) -> dict[str, Any]:
    base = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
    return {**base, "ts": start_us, "dur": lasted_us, **fields}


KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0}}


def read_trace(data: bytes, most_bytes: int = 1 << 30) -> dict[str, Any]:
    return kineto.read_kineto(io.BytesIO(data), most_bytes)


def test_a_trace_has_steps_devices_and_categories() -> None:
    events = [
        step(4, 200, 33_012),
        step(3, 100, 29_709),
        KERNEL,
        {**KERNEL, "args": {"device": 1}},
        {"ph": "M", "name": "x"},
    ]
    events.append(step(3, 100, 29_709, cat="gpu_user_annotation"))
    found = read_trace(trace(*events))
    assert [(one["number"], one["seconds"]) for one in found["steps"]] == [(3, 0.029709), (4, 0.033012)]
    assert (found["events"], found["step_source"]) == (5, "ProfilerStep")
    assert found["devices"] == {"GPU": {"count": 2, "events": 2}}
    assert {"name": "kernel", "lines": 1, "events": 2} in found["planes"]


@pytest.mark.parametrize("read_bytes", [1, 7, 100])
def test_a_trace_in_pieces_reads_the_same(monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
    data = trace(step(1, 1, 2), {"ph": "X", "name": "ä€😀", "cat": "cpu_op"}, step(2, 3, 12345.5), end=12)
    expected = read_trace(data)
    monkeypatch.setattr(kineto, "READ_BYTES", read_bytes)
    assert read_trace(data) == expected
    assert expected["events"] == 3


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "empty"), (b"   ", "empty"), (b"[]", "expected one of '{'"), (b"{}", "`traceEvents` is missing"),
        (b'{"a": 1}', "`traceEvents` is missing"), (trace(step(1, 1, 1))[:-30], "cut off|end of the file"),
        (b'{"traceEvents": [1]}', "not an object"), (b'{"traceEvents": {}}', "expected one of"),
        (trace() + b"x", "extra data after"),
        (b'{"traceEvents": [' + b'{"args":' * 100_000, "nested too deeply|cut off"),
        (b'{"traceEvents": [{"a": "' + b"x" * (9 << 20), "longer than"), (b"\xff\xfe\x00", "expected one of"),
        (b"\x00" * 5000, "expected one of"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_trace_says_why(data: bytes, error: str) -> None:
    with pytest.raises(UnreadableFile, match=error):
        read_trace(data)


@given(st.integers(0, 10**6), st.binary(max_size=4))
@settings(max_examples=150)
def test_a_changed_trace_never_breaks_the_reader(place: int, put: bytes) -> None:
    data = trace(step(1, 1, 2), KERNEL, step(2, 3, 4))
    place %= len(data)
    assert _read_or_refused(lambda: read_trace(data[:place] + put + data[place + len(put) :]))


def test_metrics_that_are_none_make_no_step() -> None:
    odd = [step(1, 1, 2, dur="long"), step(2, 1, 2, ts=None), step(3, 1, float("nan")), step(10**30, 1, 1)]
    assert read_trace(trace(*odd))["steps"] == []


def test_a_compressed_trace_is_read_and_a_bomb_is_not(tmp_path: Path) -> None:
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(trace(step(1, 1, 2))))
    assert read_one(str(tmp_path / "t.json.gz"), "kineto", {})["profile"]["events"] == 1
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (50 << 20)))
    tracemalloc.start()
    with pytest.raises(UnreadableFile, match="larger than 1000000 bytes when unpacked"):
        read_one(str(tmp_path / "bomb.json.gz"), "kineto", {"most_bytes": 1_000_000})
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
