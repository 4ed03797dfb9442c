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
    assert tally.left_s(0.0) is None
    tally.take("a", "running", "", 0.0)
    assert tally.left_s(10.0) == pytest.approx(80.0)


def test_waiting_for_a_place_is_no_work_that_was_done() -> None:
    tally = Tally("a", {"a": 30.0})
    tally.take("a", "starting", "", 0.0)
    tally.take("a", "waiting", "no node is free", 5.0)
    assert tally.left_s(500.0) is None
    tally.take("a", "running", "", 500.0)
    assert tally.left_s(510.0) == pytest.approx(20.0)


def test_a_few_slow_cells_at_the_start_do_not_make_the_rest_slow() -> None:
    """Eight cells at a time, each of 2 s, but the first eight waited 6 s for a build: 25 s are left, not 80."""
    cells = [f"{number}" for number in range(108)]
    tally = Tally(cells)
    for number in range(8):
        tally.take(cells[number], "starting", "", 0.0)
        tally.take(cells[number], "waiting", "the environment is built", 0.1)
        tally.take(cells[number], "running", "", 6.0)
        tally.take(cells[number], "passed", "", 8.0)
    assert tally.left_s(8.0) == pytest.approx(100 * 2 / 8)
