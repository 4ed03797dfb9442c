"""How metrics read: everywhere the same, small times as milliseconds."""

import pytest

from seatrial.job import pair_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0002677, "0.27 ms"),
        (0.0107, "10.7 ms"),
        (0.09996, "100 ms"),
        (-0.0004, "-0.4 ms"),
        (0.1, "0.1 s"),
        (2.4412, "2.441 s"),
        (0.0, "0 s"),
        (1e-9, "1e-09 s"),
    ],
)
def test_seconds_read_as_milliseconds_where_they_are_few(value: float, text: str) -> None:
    assert value_text(value, "s") == text


def test_other_units_are_left_alone() -> None:
    assert value_text(0.0002677, "tokens/s") == "0.0002677 tokens/s"
    assert value_text(0.0002677) == "0.0002677"


def test_a_metric_beside_another_has_its_unit_and_as_many_digits_as_tell_them_apart() -> None:
    assert value_text(0.12, "s", 0.09) == "0.12 s"
    assert value_text(0.09, "s", 0.12) == "0.09 s"
    assert value_text(0.01234, "s", 0.01231) == "12.34 ms"


def test_a_pair_has_one_unit() -> None:
    assert pair_text(0.0107, 0.0411, "s") == "10.7 → 41.1 ms"
    assert pair_text(0.09, 0.12, "s", " to ") == "0.09 to 0.12 s"
    assert pair_text(None, 0.02, "s", " to ") == "anything to 20 ms"
    assert pair_text(0.02, None, "s", " to ", "open") == "20 to open"
    assert pair_text(2, 3, "") == "2 → 3"
    assert pair_text(0.0123456, 0.0123457, "s") == "12.3456 → 12.3457 ms"
