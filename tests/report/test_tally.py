"""How long the rest of a run will take, from what is known of its cells."""

import pytest

from seatrial.report.view.live import Tally


def test_the_rest_is_shared_by_as_many_as_ran_at_once() -> None:
    tally = Tally("abcdef", dict.fromkeys("abcdef", 60.0))
    tally.take("a", "running", "", 0.0)
    tally.take("b", "running", "", 0.0)
    tally.take("a", "passed", "", 60.0)
    assert tally.left_s(60.0) == pytest.approx((0 + 4 * 60) / 2)


def test_one_long_cell_takes_as_long_as_it_takes() -> None:
    tally = Tally("ab", {"a": 600.0, "b": 1.0})
    tally.take("a", "running", "", 0.0)
    tally.take("b", "running", "", 0.0)
    assert tally.left_s(100.0) == pytest.approx(500.0)


def test_a_cell_without_a_past_is_taken_for_an_ordinary_one() -> None:
    assert Tally("ab").left_s(0.0) is None
    tally = Tally("abc", {"a": 30.0})
    assert tally.left_s(0.0) == pytest.approx(90.0)


def test_waiting_for_a_place_is_no_work_that_was_done() -> None:
    tally = Tally("a", {"a": 30.0})
    tally.take("a", "starting", "", 0.0)
    tally.take("a", "waiting", "no node is free", 5.0)
    assert tally.left_s(500.0) == pytest.approx(30.0)
    tally.take("a", "running", "", 500.0)
    assert tally.left_s(510.0) == pytest.approx(20.0)
