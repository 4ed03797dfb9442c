"""Every combination is a cell or an excluded combination with its reason, and a cell keeps its hash."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.plan import Plan, PlanError, Selection, expand
from seatrial.suite import Suite, SuiteError

Make = Callable[..., Suite]
GPUS = {"cpu": {"cpu": 4, "memory": "8Gi"}, "a100": {"gpu": {"model": "A100", "memory": "40Gi"}}, "quiet": {}}


def excluded(plan: Plan) -> dict[str, str]:
    return {"/".join(combination.axes.values()): combination.why for combination in plan.excluded}


def hashes(plan: Plan) -> dict[str, str]:
    return {cell.id: cell.hash for cell in plan.cells}


def test_every_combination_is_a_cell_or_a_hole(suite_of: Make) -> None:
    plan = expand(
        suite_of(
            {
                "matrix": {"runtime": "all", "machine": "all"},
                "exclude": [{"runtime": "plain", "machine": "a*", "why": "driver too old"}],
            },
            machines=GPUS,
            runtimes={"plain": {}, "torch": {"image": "x", "needs": {"gpu.count": ">=1"}}},
        )
    )
    assert [cell.id for cell in plan.cells] == [
        "t[runtime=plain,machine=cpu]",
        "t[runtime=plain,machine=quiet]",
        "t[runtime=torch,machine=a100]",
    ]
    assert excluded(plan) == {
        "plain/a100": "driver too old",
        "torch/cpu": "runtime torch needs gpu.count >=1, machine cpu has 0",
        "torch/quiet": "runtime torch needs gpu.count >=1, machine quiet has 0",
    }
    assert plan.counts["combinations"] == 6


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ({"memory": ">=16Gi"}, "trial t needs memory >=16Gi, machine cpu has 8Gi"),
        ({"cpu": ">4"}, "trial t needs cpu >4, machine cpu has 4"),
        ({"gpu.model": ["A100", "H100"]}, "trial t needs gpu.model one of A100, H100, machine cpu has no GPU"),
        ({"gpu.memory": ">=40Gi"}, "trial t needs gpu.memory >=40Gi, machine cpu has no GPU"),
        ({"features.ipu": ">=1"}, "trial t needs features.ipu >=1, machine cpu has 0"),
    ],
)
def test_a_lacking_capability_is_told_in_plain_words(suite_of: Make, needs: Any, why: str) -> None:
    machines = {**GPUS, "ipu": {"features": {"ipu": 4}}}
    assert excluded(expand(suite_of({"machine": "all", "needs": needs}, machines=machines)))["cpu"] == why


def test_a_machine_that_does_not_say_is_not_taken_for_enough(suite_of: Make) -> None:
    plan = expand(suite_of({"machine": "quiet", "needs": {"memory": ">=1Gi"}}, machines=GPUS))
    assert excluded(plan) == {"quiet": "trial t needs memory >=1Gi, machine quiet does not declare memory"}


def test_values_that_are_maps_have_needs_of_their_own(suite_of: Make) -> None:
    config = [{"name": "one", "shards": 1}, {"name": "two", "shards": 2, "needs": {"gpu.count": ">=2"}}]
    plan = expand(suite_of({"machine": "a100", "matrix": {"config": config}}, machines=GPUS))
    assert [cell.values["config"] for cell in plan.cells] == [{"name": "one", "shards": 1}]
    assert excluded(plan) == {"a100/two": "config two needs gpu.count >=2, machine a100 has 1"}


def test_zipped_axes_go_together_and_repeat_is_an_axis(suite_of: Make) -> None:
    plan = expand(suite_of({"zip": {"a": [1, 2], "b": ["x", "y"]}, "matrix": {"c": [True]}, "repeat": 2}))
    assert [cell.axes for cell in plan.cells] == [
        {"c": "true", "a": "1", "b": "x", "repeat": "1"},
        {"c": "true", "a": "1", "b": "x", "repeat": "2"},
        {"c": "true", "a": "2", "b": "y", "repeat": "1"},
        {"c": "true", "a": "2", "b": "y", "repeat": "2"},
    ]


def test_a_trial_without_axes_is_one_cell_on_this_machine(suite_of: Make) -> None:
    (cell,) = expand(suite_of({})).cells
    assert (cell.id, cell.machine_name, cell.target, cell.runtime) == ("t", "here", "here", None)


def test_rules_mean_labels_globs_lists_numbers_and_parts_of_maps(suite_of: Make) -> None:
    trial = {
        "matrix": {"n": [1, 2, 3], "c": [{"name": "a", "d": 1}, {"name": "b", "d": 2}]},
        "exclude": [
            {"n": 1, "c": {"d": 2}, "why": "p"},
            {"n": [2], "c": ["a"], "why": "q"},
            {"n": "3", "c": "?", "why": "r"},
        ],
    }
    assert excluded(expand(suite_of(trial))) == {"1/b": "p", "2/a": "q", "3/a": "r", "3/b": "r"}


def test_a_cell_has_the_xfails_that_are_meant_for_it_with_its_values_in_them(suite_of: Make) -> None:
    xfail = [{"m": "x", "why": "one"}, {"step": "run go ${m}", "why": "all"}]
    plan = expand(suite_of({"matrix": {"m": ["x", "y"]}, "run": ["go ${m}"], "xfail": xfail}))
    assert [[(rule.step, rule.why) for rule in cell.xfails] for cell in plan.cells] == [
        [(None, "one"), ("run go x", "all")],
        [("run go y", "all")],
    ]
    assert plan.cells[0].xfails[1].covers("run go x")
    assert not plan.cells[0].xfails[1].covers("run go y")


def test_the_environment_of_a_cell_is_the_suites_the_runtimes_and_the_trials(suite_of: Make) -> None:
    suite = suite_of(
        {"runtime": "r", "env": {"C": "trial", "D": {"secret": "KEY"}}},
        runtimes={"r": {"env": {"B": "runtime", "C": "runtime"}}},
        env={"A": "suite", "B": "suite", "C": "suite"},
    )
    env = expand(suite).cells[0].env
    assert {name: env[name] for name in "ABC"} == {"A": "suite", "B": "runtime", "C": "trial"}
    assert env["D"].secret == "KEY"  # type: ignore[union-attr]


BASE: dict[str, Any] = {"runtime": "all", "machine": "all", "matrix": {"n": [1, 2]}, "run": ["go"]}
MACHINES: dict[str, Any] = {"a": {"cpu": 1}, "b": {"cpu": 2}}
RUNTIMES: dict[str, Any] = {"r": {"python": "3.11"}, "s": {"image": "x"}}


@pytest.mark.parametrize(
    ("trial", "machines", "runtimes"),
    [
        ({"matrix": {"n": [0, 1, 2, 3]}}, {}, {}),
        ({}, {"c": {"cpu": 3}}, {"u": {}}),
        ({"tags": ["x"], "estimate": "5m", "retries": 3, "timeout": {"run": "1m"}}, {}, {}),
        ({"exclude": [{"n": 1, "machine": "a", "why": "x"}], "xfail": [{"why": "y"}], "needs": {"cpu": ">=1"}}, {}, {}),
        ({}, {"a": {"cpu": 1, "price": 5, "tags": ["p"], "parallel": 3}}, {"r": {"python": "3.11", "tags": ["q"]}}),
    ],
    ids=["more values", "more machines and runtimes", "limits", "rules", "prices and tags"],
)
def test_a_cell_keeps_its_hash_when_what_is_around_it_changes(
    suite_of: Make, trial: Any, machines: Any, runtimes: Any
) -> None:
    before = hashes(expand(suite_of(BASE, machines=MACHINES, runtimes=RUNTIMES)))
    after = hashes(
        expand(suite_of({**BASE, **trial}, machines={**MACHINES, **machines}, runtimes={**RUNTIMES, **runtimes}))
    )
    common = before.keys() & after.keys()
    assert len(common) >= 6
    assert {name: after[name] for name in common} == {name: before[name] for name in common}


@pytest.mark.parametrize(
    ("trial", "machine", "runtime", "env"),
    [
        ({"run": ["go on"]}, {}, {}, {}),
        ({"env": {"A": "1"}}, {}, {}, {}),
        ({}, {"a": {"cpu": 2}}, {}, {}),
        ({}, {}, {"r": {"python": "3.12"}}, {}),
        ({}, {}, {}, {"A": "1"}),
    ],
)
def test_a_cell_gets_another_hash_when_its_content_changes(
    suite_of: Make, trial: Any, machine: Any, runtime: Any, env: Any
) -> None:
    name = "t[runtime=r,machine=a,n=1]"
    before = hashes(expand(suite_of(BASE, machines=MACHINES, runtimes=RUNTIMES)))
    after = hashes(
        expand(suite_of({**BASE, **trial}, machines={**MACHINES, **machine}, runtimes={**RUNTIMES, **runtime}, env=env))
    )
    assert before[name] != after[name]


def test_hashes_are_those_that_histories_already_have(suite_of: Make) -> None:
    plan = expand(suite_of(BASE, machines=MACHINES, runtimes=RUNTIMES))
    assert hashes(plan)["t[runtime=r,machine=a,n=1]"] == "a595a167"


def test_hashes_of_a_plan_are_unique_and_the_same_whatever_is_selected(
    suite_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_of({"matrix": {"a": list(range(30)), "b": list(range(20))}})
    assert {len(found) for found in hashes(expand(suite)).values()} == {8}
    monkeypatch.setattr(sys.modules[expand.__module__], "_HEX", 3)  # of 600 cells many share their first three digits
    plan = expand(suite)
    found = hashes(plan)
    assert len(set(found.values())) == 600
    some = expand(suite, Selection(select=("a=7",)))
    assert {cell.id: cell.hash for cell in some.cells}.items() <= found.items()


def test_without_repeats_placeholders_and_rules_of_the_axis_mean_its_first_number(suite_of: Make) -> None:
    trial = {"repeat": 2, "run": ["work ${repeat}"], "env": {"N": "${repeat}"}, "benchmark": "b ${repeat}"}
    (cell,) = expand(suite_of({**trial, "xfail": [{"repeat": 1, "why": "cold"}]}).repeated(1)).cells
    assert (cell.id, cell.spec.run, cell.env, cell.benchmark) == ("t", ("work 1",), {"N": "1"}, "b 1")
    assert [one.why for one in cell.xfails] == ["cold"]
    (kept,) = expand(suite_of({**trial, "exclude": [{"repeat": 2, "why": "x"}]}).repeated(1)).cells
    assert kept.id == "t"
    assert not expand(suite_of({**trial, "exclude": [{"repeat": 1, "why": "x"}]}).repeated(1)).cells


@pytest.mark.parametrize(
    ("trial", "count"),
    [
        ({"matrix": {name: list(range(100)) for name in ("a", "b", "c", "d")}}, "100,000,000"),
        ({"matrix": {"a": [1]}, "repeat": 10**7}, "10,000,000"),
        ({"zip": [{name: list(range(4000)) for name in group} for group in ("ab", "cd")]}, "16,000,000"),
    ],
)
def test_too_many_cells_are_refused_with_the_count_before_any_is_made(suite_of: Make, trial: Any, count: str) -> None:
    with pytest.raises(PlanError) as caught:
        expand(suite_of(trial))
    assert f"expands to {count} combinations (t: {count}; limit 100,000)" in str(caught.value)


def test_the_limit_of_cells_can_be_set(suite_of: Make) -> None:
    with pytest.raises(PlanError, match=r"3 combinations .*limit 2"):
        expand(suite_of({"matrix": {"a": [1, 2, 3]}}, max_cells=2))
    assert len(expand(suite_of({"matrix": {"a": [1, 2, 3]}}, max_cells=3)).cells) == 3


def test_the_json_form_has_what_other_programs_read(suite_of: Make) -> None:
    plan = expand(suite_of({"machine": "all", "needs": {"cpu": 4}, "estimate": "30m"}, machines=GPUS, name="n"))
    data = json.loads(json.dumps(plan.as_json()))
    assert data["version"] == 1
    assert data["cells"][0]["id"] == "t[machine=cpu]"
    assert data["cells"][0]["axes"] == {"machine": "cpu"}
    assert len(data["cells"][0]["hash"]) == 8
    assert {combination["axes"]["machine"]: combination["cause"] for combination in data["holes"]} == {
        "a100": "needs",
        "quiet": "needs",
    }
    assert all(combination["why"] for combination in data["holes"])
    assert data["counts"] == {"combinations": 3, "cells": 1, "holes": 2, "holes_needs": 2, "unknown_estimates": 0}
    assert (data["hours"], data["price"]) == (0.5, 0)


def test_a_plan_of_some_of_its_cells_sums_only_those(suite_of: Make) -> None:
    plan = expand(suite_of({"matrix": {"n": [1, 2, 3]}, "estimate": "1h"}))
    assert plan.of(plan.cells[:1]).hours == 1


def test_a_trial_that_needs_no_machine_names_its_target(suite_of: Make) -> None:
    targets = {"cluster": {"kind": "local"}}
    (cell,) = expand(suite_of({"target": "cluster"}, targets=targets)).cells
    assert (cell.id, cell.target, cell.machine_name) == ("t", "cluster", "")
    (elsewhere,) = expand(suite_of({"target": "here"}, targets=targets)).cells
    assert elsewhere.hash != cell.hash


def test_a_trial_with_an_unknown_target_or_with_machines_beside_it_is_refused(suite_of: Make) -> None:
    with pytest.raises(SuiteError, match="unknown target 'clustr'"):
        suite_of({"target": "clustr"}, targets={"cluster": {"kind": "local"}})
    with pytest.raises(SuiteError, match="set `target` or `machine`, not both"):
        suite_of({"target": "here", "machine": "all"}, machines=GPUS)


def test_a_benchmark_may_be_named_by_one_axis_of_a_zip(suite_of: Make) -> None:
    zipped = {"bench": ["a", "b"], "args": ["x=1", "x=2"]}
    plan = expand(suite_of({"zip": zipped, "benchmark": "${bench}"}))
    assert [cell.benchmark for cell in plan.cells] == ["a", "b"]
    for trial in ({"zip": zipped, "matrix": {"n": [1, 2]}}, {"matrix": zipped}):
        with pytest.raises(SuiteError, match=r"cells that differ in '(n|args)' would share one entry"):
            suite_of({**trial, "benchmark": "${bench}"})
