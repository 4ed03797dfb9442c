"""A covering set has every pair that any valid cell has; the proof is counted here once more, by brute force."""

from collections.abc import Callable, Iterable
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.plan import Selection, expand
from seatrial.suite import Cell, Suite, TrialModel, from_data

Make = Callable[..., Suite]


class Probe(TrialModel):
    kind: Literal["probe"]


def pairs(cells: Iterable[Cell]) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {
        (cell.trial, frozenset(pair))
        for cell in cells
        for pair in combinations([item for item in cell.axes.items() if item[0] != "repeat"], 2)
    }


@st.composite
def trials(draw: st.DrawFn) -> dict[str, Any]:
    matrix = {f"a{n}": list(range(draw(st.integers(1, 3)))) for n in range(draw(st.integers(0, 5)))}
    trial: dict[str, Any] = {"kind": "probe", "matrix": matrix, "repeat": draw(st.integers(1, 2))}
    length = draw(st.integers(0, 3))
    if length:
        trial["zip"] = {"z0": list(range(length)), "z1": list(range(length))}
    excludes = []
    for _ in range(draw(st.integers(0, 4)) if matrix else 0):
        names = draw(st.lists(st.sampled_from(sorted(matrix)), min_size=1, max_size=3, unique=True))
        excludes.append({name: draw(st.sampled_from(matrix[name])) for name in names} | {"why": "x"})
    return trial | {"exclude": excludes}


@settings(max_examples=150)
@given(st.lists(trials(), min_size=1, max_size=2))
def test_every_pair_that_a_valid_cell_has_is_covered(made: list[dict[str, Any]]) -> None:
    suite = from_data({"trials": {f"t{n}": trial for n, trial in enumerate(made)}}, Path(), {"probe": Probe}, {})
    whole, small = expand(suite), expand(suite, Selection(pairwise=True))
    possible = pairs(whole.cells)
    assert pairs(small.cells) == possible
    assert {cell.id for cell in small.cells} <= {cell.id for cell in whole.cells}
    assert len(small.cells) + len(small.excluded) == len(whole.cells) + len(whole.excluded)
    proof = small.coverage
    assert proof is not None
    assert proof.covered == proof.possible == len(possible)
    assert proof.missing == ()
    assert proof.of_cells == len(whole.cells)
    assert {tuple(value.axes) for value in small.cells} == {tuple(value.axes) for value in whole.cells}


def test_pairs_that_no_valid_cell_has_are_listed_as_impossible(suite_of: Make) -> None:
    trial = {
        "matrix": {"a": [1, 2], "b": [1, 2], "c": [1, 2]},
        "zip": {"x": ["p", "q"], "y": ["r", "s"]},
        "exclude": [{"a": 1, "b": 2, "why": "no"}],
    }
    plan = expand(suite_of(trial), Selection(pairwise=True))
    assert plan.coverage is not None
    assert plan.as_json()["pairwise"]["impossible"] == [{"trial": "t", "axes": {"a": "1", "b": "2"}}]


def test_a_missing_pair_would_be_seen(suite_of: Make) -> None:
    from seatrial.plan.pairwise import prove

    suite = suite_of({"matrix": {"a": [1, 2], "b": [1, 2]}})
    cells = expand(suite).cells
    proof = prove(cells, cells[:-1], cells, suite.axes)
    assert (proof.covered, proof.possible) == (3, 4)
    assert [(pair.value, pair.other_value) for pair in proof.missing] == [("2", "2")]


def test_the_set_is_small_and_always_the_same(suite_of: Make) -> None:
    suite = suite_of({"matrix": {f"a{n}": list(range(5)) for n in range(4)}})
    plans = [expand(suite, Selection(pairwise=True)) for _ in range(2)]
    assert [cell.id for cell in plans[0].cells] == [cell.id for cell in plans[1].cells]
    assert 25 <= len(plans[0].cells) <= 45  # of 625; 25 is the least that can be
    assert {combination.cause for combination in plans[0].excluded} == {"pairwise"}


def test_repeats_of_a_cell_stay_together(suite_of: Make) -> None:
    plan = expand(
        suite_of({"matrix": {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}, "repeat": 3}), Selection(pairwise=True)
    )
    kept = {tuple(cell.axes[name] for name in "abc") for cell in plan.cells}
    assert {(*combo, str(n)) for combo, n in product(kept, (1, 2, 3))} == {
        tuple(cell.axes.values()) for cell in plan.cells
    }
    assert len(kept) < 27


@pytest.mark.parametrize("trial", [{}, {"matrix": {"a": [1, 2, 3]}}, {"matrix": {"a": [1, 2], "b": [1, 2]}}])
def test_fewer_than_three_axes_are_kept_whole(suite_of: Make, trial: Any) -> None:
    plan = expand(suite_of(trial), Selection(pairwise=True))
    assert plan.excluded == ()


def test_a_cover_is_of_the_cells_that_are_selected(suite_of: Make) -> None:
    suite = suite_of({"matrix": {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}})
    plan = expand(suite, Selection(select=("a=1",), pairwise=True))
    assert {cell.axes["a"] for cell in plan.cells} == {"1"}
    assert plan.coverage is not None
    assert plan.coverage.possible == 9 + 3 + 3
