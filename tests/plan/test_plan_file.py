"""What is written with a run gives the same cells again, without the suite."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.job import decode
from seatrial.job.plan import PlanFile, RunOptions
from seatrial.plan import Plan, PlanError, expand
from seatrial.plan.file import read_cells, read_suite, to_file
from seatrial.plugins import models
from seatrial.suite import Cell, Gathered, Suite, choose_target, from_data, load, settings_of

Make = Callable[..., Suite]
ROOT = Path(__file__).parents[2]
COMPARED = {one.name for one in fields(Cell)} - {"spec", "xfails", "runtime", "runtime_filled", "contents"}
SUITE: dict[str, Any] = {
    "env": {"A": "1", "B": "2"},
    "secrets": {"TOKEN": {"env": "T"}},
    "machines": {"m": {"cpu": 2, "memory": "1Gi", "price": 2.0}, "n": {"cpu": 4, "select": {"pool": "a"}}},
    "runtimes": {
        "plain": {"python": "3.11", "packages": ["numpy"], "env": {"B": "r"}, "tags": ["r"]},
        "filled": {"interpreter": "python${minor}", "workspace": {"path": "."}, "needs": {"cpu": [2, 4]}},
    },
    "trials": {
        "t": {
            "kind": "runtime",
            "matrix": {"runtime": "all", "machine": "all", "minor": [3, {"name": "x", "deep": 1}]},
            "env": {"C": "${minor}", "D": {"secret": "TOKEN"}, "E": "$${HOME}"},
            "run": ["echo ${minor}", {"command": "true", "name": "fixed"}],
            "notebooks": [{"path": "${minor}.ipynb", "parameters": {"n": "${minor}"}}],
            "commands": ["git"],
            "timeout": {"run": "5m"},
            "retry_on": ["infra", "failed"],
            "repeat": 2,
            "xfail": [{"machine": "n", "step": "run echo ${minor}", "why": "known"}],
            "under_test": ["env.C"],
        },
        "off": {"kind": "runtime", "run": ["true"], "disabled": "for now", "matrix": {"n": [1, 2]}},
        "bare": {"kind": "runtime", "run": ["true"], "benchmark": "b"},
    },
}


def again(suite: Suite, plan: Plan) -> tuple[PlanFile, Plan]:
    file = decode(msgspec.json.encode(to_file(plan, suite, "r", RunOptions(retries=3))), PlanFile)
    return file, read_cells(file, models()[0])


def assert_same(plan: Plan, read: Plan) -> None:
    assert (read.suite, read.excluded, read.cost, read.labels) == (plan.suite, plan.excluded, plan.cost, plan.labels)
    for before, after in zip(plan.cells, read.cells, strict=True):
        for name in COMPARED:
            assert getattr(after, name) == getattr(before, name), (before.id, name)
        assert after.spec.content() | {"env": None} == before.spec.content() | {"env": None}
        assert (after.runtime and after.runtime.work()) == (before.runtime and before.runtime.work())
        assert [(one.step, one.why) for one in after.xfails] == [(one.step, one.why) for one in before.xfails]
        assert settings_of(after, {"cores": 4}) == settings_of(before, {"cores": 4})


def test_cells_are_the_same(tmp_path: Path) -> None:
    suite = from_data(SUITE, tmp_path, *models())
    plan = expand(suite)
    file, read = again(suite, plan)
    assert_same(plan, read)
    assert len(read.cells) == 17
    assert file.options == RunOptions(retries=3)
    assert read_suite(file, models()[1]).secrets == suite.secrets


@pytest.mark.parametrize("path", ["demo", "gradient", "scale", "serving", "training"])
def test_cells_of_every_example_are_the_same(path: str) -> None:
    suite = load(ROOT / "examples" / path / "suite.yaml", *models())
    kinds = models()[0]
    plan = expand(suite)
    assert {cell.kind for cell in plan.cells} <= set(kinds)
    assert_same(plan, again(suite, plan)[1])


def test_one_target_for_everything_is_applied_already(tmp_path: Path) -> None:
    suite = from_data(SUITE, tmp_path, *models())
    suite = suite.on(choose_target("local:parallel=3", suite.targets, models()[1]))
    plan = expand(suite)
    file, read = again(suite, plan)
    assert_same(plan, read)
    (name,) = {cell.target for cell in read.cells}
    kept = read_suite(file, models()[1])
    assert (kept.parallel(name), kept.target_override) == (3, "local:parallel=3")


def test_what_cells_share_is_written_once(suite_of: Make) -> None:
    suite = suite_of({"matrix": {"n": list(range(200))}, "run": ["echo ${n}", "true"], "text": "x" * 1000})
    plan = expand(suite)
    plan = plan.of(replace(cell, gathered=Gathered(missing=["y" * 1000])) for cell in plan.cells)
    written = msgspec.json.encode(to_file(plan, suite, "r", RunOptions()))
    assert len(written) / len(plan.cells) < 400


def test_a_plan_of_another_version_names_the_one_to_finish_it_with() -> None:
    file = PlanFile([], [], version=1, seatrial="0.2.0", run="r")
    with pytest.raises(PlanError, match=r"r was planned by Seatrial 0\.2\.0; finish it with that version"):
        read_suite(file, {})
