"""Which cells are wanted: by id, axis, trial, tag and hash; the others are excluded combinations that say so."""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.plan import PlanError, Selection, expand
from seatrial.suite import Suite


@pytest.fixture
def suite(suite_of: Callable[..., Suite]) -> Suite:
    matrix: dict[str, Any] = {"runtime": "all", "machine": "all"}
    return suite_of(
        machines={"a": {"tags": ["quick"]}, "b": {}},
        runtimes={"r1": {"tags": ["new"]}, "r2": {}},
        trials={
            "one": {"kind": "probe", "matrix": matrix, "exclude": [{"runtime": "r2", "machine": "b", "why": "slow"}]},
            "two": {"kind": "probe", "tags": ["big"]},
        },
    )


def ids(suite: Suite, *select: str, tags: tuple[str, ...] = ()) -> list[str]:
    return [cell.id for cell in expand(suite, Selection(select, tags)).cells]


PAIRS = (("r1", "a"), ("r1", "b"), ("r2", "a"))
R1A, R1B, R2A = (f"one[runtime={runtime},machine={machine}]" for runtime, machine in PAIRS)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ((), [R1A, R1B, R2A, "two"]),
        ((R1A,), [R1A]),
        (("one*",), [R1A, R1B, R2A]),
        (("*machine=a]",), [R1A, R2A]),
        (("*runtime=r1*",), [R1A, R1B]),
        (("one[runtime=r?,machine=a]",), [R1A, R2A]),
        (("one",), [R1A, R1B, R2A]),
        (("runtime=r1",), [R1A, R1B]),
        (("runtime=r*,machine=a",), [R1A, R2A]),
        (("trial=two", "machine=b"), [R1B, "two"]),
        (("tag=quick",), [R1A, R2A]),
    ],
)
def test_expressions_mean_cells(suite: Suite, select: tuple[str, ...], expected: list[str]) -> None:
    assert ids(suite, *select) == expected


def test_a_hash_or_its_beginning_means_a_cell(suite: Suite) -> None:
    cell = expand(suite).cells[1]
    assert ids(suite, f"/{cell.hash}") == [cell.id]
    assert cell.id in ids(suite, f"/{cell.hash[:4]}")


def test_tags_are_those_of_trial_runtime_and_machine_and_all_must_be_there(suite: Suite) -> None:
    assert ids(suite, tags=("quick",)) == [R1A, R2A]
    assert ids(suite, tags=("quick", "new")) == [R1A]
    assert ids(suite, tags=("big",)) == ["two"]


def test_what_is_not_wanted_is_a_hole_that_says_so(suite: Suite) -> None:
    plan = expand(suite, Selection(("machine=a",), ("new",)))
    assert [cell.id for cell in plan.cells] == [R1A]
    assert sorted((combination.cause, combination.why) for combination in plan.excluded) == [
        ("exclude", "slow"),
        ("select", "not selected"),
        ("tag", "has no tag 'new'"),
        ("tag", "has no tag 'new'"),
    ]
    assert plan.counts["combinations"] == 5


@pytest.mark.parametrize(
    ("select", "tags", "said"),
    [
        (("noe",), (), "--select 'noe' matches nothing; did you mean 'one'?"),
        (("runtme=r1",), (), "unknown axis 'runtme'; did you mean 'runtime'?"),
        (("runtime=r3",), (), "no runtime 'r3'; known: r1, r2"),
        (("runtime=r2,machine=b",), (), "all matching combinations are excluded"),
        (("one[runtime=r2,machine=b]",), (), "excluded (slow)"),
        (("/ffff",), (), "a hash of 8 hex digits"),
        (("/xyz",), (), "a hash of 8 hex digits"),
        ((), ("quik",), "--tag 'quik' matches nothing; did you mean 'quick'?"),
        (("one", "nothing*"), (), "'nothing*' matches nothing"),
    ],
)
def test_what_matches_nothing_is_an_error_with_the_nearest(suite: Suite, select: Any, tags: Any, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        expand(suite, Selection(select, tags))
    assert said in str(caught.value)
