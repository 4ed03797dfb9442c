"""What the metrics of a cell depend on, the name of its series, and trials that are switched off."""

from collections.abc import Callable

import pytest

from seatrial.job import Settings, differences
from seatrial.job.conditions import other_conditions
from seatrial.plan import expand
from seatrial.suite import Cell, Suite, SuiteError, settings_of

Make = Callable[..., Suite]
HARDWARE = {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpu": []}


def fingerprint(cell: Cell, hardware: dict[str, object]) -> str:
    return settings_of(cell, hardware).fingerprint


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
        {"matrix": {"n": [2]}},
        {"machine": "m"},
        {"env": {"A": "1"}, "conditions": ["env.A"]},
        {"runtime": "r", "conditions": ["env"]},
    ],
)
def test_conditions_count(suite_of: Make, fields: dict[str, object]) -> None:
    more = {"runtimes": {"r": {"env": {"B": "1"}}}, "machines": {"m": {"cpu": 1.0}}}
    plain = {"run": ["true"], "matrix": {"n": [1]}}
    before = one(suite_of(plain, **more))
    after = one(suite_of({**plain, **fields}, **more))
    assert fingerprint(before, HARDWARE) != fingerprint(after, HARDWARE)


@pytest.mark.parametrize(
    ("runtime", "fields", "name", "values"),
    [
        ({}, {"env": {"A": "1"}}, "env.A", "(not set) → 1"),
        ({"env": {"B": "2"}}, {}, "env.B", "(not set) → 2"),
        ({"image": "new:2"}, {}, "image", "(not set) → new:2"),
        ({"python": "3.11", "packages": ["numpy"]}, {}, "packages", '(not set) → ["numpy"]'),
        ({"workspace": {"git": "url", "ref": "v2"}}, {}, "workspace.ref", "(not set) → v2"),
        ({}, {"run": ["false"], "under_test": ["run"]}, "run", '["true"] → ["false"]'),
    ],
)
def test_what_is_under_test_does_not_count_and_is_named(
    suite_of: Make, runtime: dict[str, object], fields: dict[str, object], name: str, values: str
) -> None:
    plain = {"run": ["true"], "runtime": "r", **{key: fields[key] for key in ("under_test",) if key in fields}}
    before = settings_of(one(suite_of(plain, runtimes={"r": {}})), HARDWARE)
    after = settings_of(one(suite_of({**plain, **fields}, runtimes={"r": runtime})), HARDWARE)
    assert before.fingerprint == after.fingerprint
    found = {change.field: str(change) for change in differences(before.under_test, after.under_test)}
    assert found[name] == f"{name} {values}"


def test_the_longest_name_decides_on_which_side_a_field_is(suite_of: Make) -> None:
    fields = {"run": ["true"], "env": {"A": "1", "B": "2"}, "conditions": ["env"], "under_test": ["env.B"]}
    settings = settings_of(one(suite_of(fields)), HARDWARE)
    assert "env.A" in settings.conditions
    assert "env.B" in settings.under_test


def test_a_field_that_is_not_there_cannot_be_moved(suite_of: Make) -> None:
    with pytest.raises(SuiteError, match=r"unknown field 'workspace\.rev'; did you mean 'workspace\.ref'"):
        suite_of({"run": ["true"], "conditions": ["workspace.rev"]})
    with pytest.raises(SuiteError, match="cannot be in both"):
        suite_of({"run": ["true"], "conditions": ["env"], "under_test": ["env"]})


def test_a_secret_is_known_by_its_name_alone(suite_of: Make) -> None:
    cell = one(suite_of({"run": ["true"], "env": {"TOKEN": {"secret": "HF"}}}, secrets={"HF": {"env": "HF_TOKEN"}}))
    assert settings_of(cell, HARDWARE).under_test["env.TOKEN"] == "secret HF"


def test_a_field_that_was_moved_is_compared_with_what_it_was() -> None:
    before = Settings({"command": "a", "cores": "2"}, {"env.A": "1"})
    moved = Settings({"cores": "2", "env.A": "1"}, {"command": "b"})
    assert not other_conditions(before, moved)
    assert [str(one) for one in other_conditions(before, Settings({"cores": "4", "env.A": "2"}, {"command": "b"}))] == [
        "cores 2 → 4",
        "env.A 1 → 2",
    ]


def test_of_long_values_the_part_is_shown_that_differs() -> None:
    same = "python train.py " + "--option value " * 20
    (found,) = differences({"command": f"{same}--lr 1"}, {"command": f"{same}--lr 2"})
    assert str(found) == "command …ion value --lr 1 → …ion value --lr 2"


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
    for other in ({"cores": 4}, {"cpu": "y"}, {"gpu": ["A100"]}, {"tpu": {"type": "v6e-8", "topology": "2x4"}}):
        assert fingerprint(cell, HARDWARE) != fingerprint(cell, {**HARDWARE, **other})


def test_a_benchmark_has_a_name_of_its_own_for_each_cell(suite_of: Make) -> None:
    cells = expand(suite_of({"run": ["true"], "matrix": {"n": [1, 2]}, "benchmark": "b-${n}"})).cells
    assert [cell.benchmark for cell in cells] == ["b-1", "b-2"]
    with pytest.raises(SuiteError, match="add \\$\\{n\\} to the name"):
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
    (combination,) = plan.excluded
    assert (combination.why, combination.cause) == ("until the driver is mended", "disabled")


def test_a_baseline_that_is_not_there_yet_is_told_of(suite_of: Make) -> None:
    cell = one(suite_of({"run": ["true"], "baseline": "b.yaml"}))
    assert "b.yaml does not exist yet; run `seatrial baseline update`" in cell.unbounded
    assert not cell.bounds
