"""Durations, sizes, requirements and placeholders."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.job.units import format_size, parse_duration, parse_size
from seatrial.suite import Suite
from seatrial.suite.axes import label_of
from seatrial.suite.values import parse_requirement


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90), (0.5, 0.5), ("500ms", 0.5), ("20m", 1200), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "20", "m", "1h 30m", "-5m", "0s", 0, -1, True, None, [], "1y", float("nan"), float("inf")]
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("16Gi", 16 * 2**30), ("1.5G", 1_500_000_000), ("512MiB", 2**29), ("1KB", 1000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["16", 16, "Gi", "16 Gi", "-1Gi", "0Gi", "16gi", None, True])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="invalid size"):
        parse_size(text)


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi"]))
def test_a_size_reads_back_to_about_what_it_was(number: int, unit: str) -> None:
    size = parse_size(f"{number}{unit}")
    assert parse_size(format_size(size)) == pytest.approx(size, rel=1e-3)


@pytest.mark.parametrize(
    ("need", "met", "unmet"),
    [
        (">=2", [2, 3.5], [1, "A100"]),
        ("<8", [7], [8]),
        (">1Gi", [2**30 + 1], [2**30]),
        ("<=4", [4], [5]),
        (2, [2], [1, 3]),
        ("A100", ["A100"], ["V100", 0]),
        ("!=A100", ["V100", 0], ["A100"]),
        (["A100", "H100"], ["H100"], ["V100"]),
        (4090, ["4090", 4090], ["4080"]),
        ("==40Gi", [40 * 2**30], [80 * 2**30]),
    ],
)
def test_requirements(need: Any, met: list[Any], unmet: list[Any]) -> None:
    requirement = parse_requirement(need)
    assert all(requirement.met_by(have) for have in met)
    assert not any(requirement.met_by(have) for have in unmet)


@pytest.mark.parametrize("need", ["", ">=", ">=x", True, None, [], [True], {}])
def test_what_is_no_requirement_is_refused(need: Any) -> None:
    with pytest.raises(ValueError, match=r"requirement|number|alternatives"):
        parse_requirement(need)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("plain", "plain"),
        ("a,b[c] d\x1b[2J", "a_b_c_d_2J"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        ("", "empty"),
        ({"name": "short", "x": 1}, "short"),
        ({"dtype": "f16", "needs": {"cpu": 1}, "deep": {"n": 2}}, "dtype:f16+deep.n:2"),
    ],
)
def test_labels_are_readable_and_safe_in_ids(value: Any, label: str) -> None:
    assert label_of(value) == label


def test_long_labels_are_cut_and_stay_different() -> None:
    one, other = label_of("x" * 500 + "1"), label_of("x" * 500 + "2")
    assert one != other
    assert len(one) == len(other) == 60


def test_placeholders_of_repeat_are_known(suite_of: Callable[[Any], Suite]) -> None:
    assert (
        suite_of({"trials": {"t": {"kind": "probe", "repeat": 2, "run": ["echo ${repeat}"]}}}).trials["t"].repeat == 2
    )
