"""What the figures of a cell depend on, the name of its series, and trials that are switched off."""

from collections.abc import Callable

import pytest

from seatrial.engine.judge import fingerprint
from seatrial.plan import expand
from seatrial.suite import Cell, Suite, SuiteError

Make = Callable[..., Suite]
HARDWARE = {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpu": []}


def one(suite: Suite) -> Cell:
    (cell,) = expand(suite).cells
    return cell


def test_repeats_are_one_series(suite_of: Make) -> None:
    cells = expand(suite_of({"run": ["true"], "matrix": {"n": [1]}, "repeat": 3})).cells
    assert {cell.benchmark for cell in cells} == {"t[n=1]"}
    assert len({fingerprint(cell, HARDWARE) for cell in cells}) == 1
    assert len({cell.hash for cell in cells}) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"run": ["false"]},
        {"env": {"A": "1"}},
        {"matrix": {"n": [2]}},
        {"runtime": "r"},
        {"machine": "m"},
    ],
)
def test_what_is_run_counts(suite_of: Make, fields: dict[str, object]) -> None:
    more = {"runtimes": {"r": {"env": {"B": "1"}}}, "machines": {"m": {"cpu": 1.0}}}
    plain = {"run": ["true"], "matrix": {"n": [1]}}
    before = one(suite_of(plain, **more))
    after = one(suite_of({**plain, **fields}, **more))
    assert fingerprint(before, HARDWARE) != fingerprint(after, HARDWARE)


def test_limits_names_and_tags_do_not_count(suite_of: Make) -> None:
    before = one(suite_of({"run": ["true"], "machine": "a"}, machines={"a": {"cpu": 1.0}}))
    after = one(
        suite_of(
            {"run": ["true"], "machine": "b", "timeout": {"run": "3h"}, "retries": 3, "tags": ["x"], "confirm": 1},
            machines={"b": {"cpu": 1.0, "price": 2.0, "parallel": 1}},
        )
    )
    assert fingerprint(before, HARDWARE) == fingerprint(after, HARDWARE)


def test_hardware_counts_but_not_memory_to_the_byte(suite_of: Make) -> None:
    cell = one(suite_of({"run": ["true"]}))
    assert fingerprint(cell, HARDWARE) == fingerprint(cell, {**HARDWARE, "memory_bytes": 2})
    for other in ({"cores": 4}, {"cpu": "y"}, {"gpu": ["A100"]}):
        assert fingerprint(cell, HARDWARE) != fingerprint(cell, {**HARDWARE, **other})


def test_a_benchmark_has_a_name_of_its_own_for_each_cell(suite_of: Make) -> None:
    cells = expand(suite_of({"run": ["true"], "matrix": {"n": [1, 2]}, "benchmark": "b-${n}"})).cells
    assert [cell.benchmark for cell in cells] == ["b-1", "b-2"]
    with pytest.raises(SuiteError, match="put \\$\\{n\\} into the name"):
        suite_of({"run": ["true"], "matrix": {"n": [1, 2]}, "benchmark": "b"})


def test_a_trial_that_is_switched_off_is_a_hole_with_the_reason(suite_of: Make) -> None:
    plan = expand(
        suite_of(
            trials={
                "off": {"kind": "probe", "run": ["true"], "disabled": "until the driver is mended"},
                "on": {"kind": "probe", "run": ["true"]},
            }
        )
    )
    assert [cell.id for cell in plan.cells] == ["on"]
    (hole,) = plan.holes
    assert (hole.why, hole.cause) == ("until the driver is mended", "disabled")


def test_a_baseline_that_is_not_there_yet_is_told_of(suite_of: Make) -> None:
    cell = one(suite_of({"run": ["true"], "baseline": "b.yaml"}))
    assert "b.yaml does not exist yet; `seatrial baseline update`" in cell.unbounded
    assert not cell.bounds
