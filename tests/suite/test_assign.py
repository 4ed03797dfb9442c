"""`--set PATH=VALUE`: what a path may name, what becomes of the suite, and errors that point to the argument."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from seatrial.suite import Suite, SuiteError, load

SUITE = """\
x-shared: &shared {a: [1, 2], env: {DEEP: one}}
machines:
  a100.x2: {cpu: 2}
  small: {cpu: 1}
runtimes:
  base: {image: "base:1", needs: {gpu.count: 0}}
trials:
  one: {kind: probe, run: [echo a, echo b], matrix: {machine: [small]}, parameters: *shared}
  two: {kind: probe, run: [echo a], parameters: *shared}
include: [more.yaml]
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.yaml").write_text(SUITE)
    Path("more.yaml").write_text("trials: {third: {kind: probe, run: [echo c]}}")


def changed(kinds: Any, *overrides: str) -> Suite:
    return load("suite.yaml", *kinds, overrides=overrides)


def problem(kinds: Any, *overrides: str) -> str:
    with pytest.raises(SuiteError) as caught:
        changed(kinds, *overrides)
    return str(caught.value)


def test_every_kind_of_field_can_be_set_and_is_typed_as_in_yaml(kinds: Any) -> None:
    made = changed(
        kinds,
        "name=nightly",
        "max_cells=7",
        "machines.a100.x2.cpu=8",
        "machines.new={cpu: 3}",
        "runtimes.base.image=registry.example:5000/base:nightly@sha256:0=",
        "runtimes.base.needs.gpu.count=2",
        "env.A=x = y",
        "trials.one.run[1]=echo changed",
        "trials.one.matrix.machine[0]=a100.x2",
        "trials.two.timeout.run=5m",
        "trials.two.matrix.v=[1, two]",
        "trials.third.repeat=3",
    )
    assert (made.name, made.max_cells) == ("nightly", 7)
    assert [made.machines[name].cpu for name in ("a100.x2", "new")] == [8, 3]
    assert made.runtimes["base"].image == "registry.example:5000/base:nightly@sha256:0="
    assert made.runtimes["base"].needs["gpu.count"].text == "2"
    assert made.env == {"A": "x = y"}
    assert made.trials["one"].run == ("echo a", "echo changed")  # type: ignore[attr-defined]
    assert made.axes["one"][0].axes[0].values[0].label == "a100.x2"
    assert made.trials["two"].timeout.run_s == 300
    assert [value.value for value in made.axes["two"][0].axes[0].values] == [1, "two"]
    assert made.trials["third"].repeat == 3
    assert made.overrides[0] == "name=nightly"
    assert made.data["trials"]["two"]["timeout"] == {"run": "5m"}, "the plan stores this"


def test_the_last_of_two_arguments_wins(kinds: Any) -> None:
    made = changed(
        kinds, "trials.two.env={A: x, B: y}", "trials.two.env.A=z", "trials.two.repeat=2", "trials.two.repeat=4"
    )
    assert made.trials["two"].env == {"A": "z", "B": "y"}
    assert made.trials["two"].repeat == 4


def test_fields_that_share_an_anchor_are_changed_one_by_one(kinds: Any) -> None:
    made = changed(kinds, "trials.one.parameters.a[0]=9", "trials.one.parameters.env.DEEP=changed")
    assert made.trials["one"].parameters == {"a": [9, 2], "env": {"DEEP": "changed"}}  # type: ignore[attr-defined]
    assert made.trials["two"].parameters == {"a": [1, 2], "env": {"DEEP": "one"}}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("argument", "column", "message"),
    [
        ("trials.one.rum=x", 12, "unknown field 'rum'; did you mean 'run'?"),
        ("trials.one.rum.deep=x", 12, "unknown field 'rum'; did you mean 'run'?"),
        ("trails.one.run=x", 1, "unknown field 'trails'; did you mean 'trials'?"),
        ("trials.oen.run=x", 8, "unknown trial 'oen'; did you mean 'one'?"),
        ("runtimes.bas.image=x", 10, "unknown runtime 'bas'; did you mean 'base'?"),
        ("targets.far.parallel=1", 9, "unknown target 'far'; none are defined"),
        ("machines.small.cpu=many", 20, "got 'many'"),
        ("runtimes.base.python=3.10", 22, 'expected text, but YAML reads 3.10 as the number 3.1; write "3.10"'),
        ("trials.one.repeat=", 12, "got nothing (null)"),
        ("trials.one.matrix.machine[0]=smal", 30, "unknown machine 'smal'; did you mean 'small'?"),
        ("trials.one.matrix.v=[3.10]", 22, 'YAML reads 3.10 as the number 3.1; write "3.10", or 3.1'),
        ("trials.one.timeout={rnu: 5m}", 21, "unknown field 'rnu'; did you mean 'run'?"),
        ("trials.one.run[2]=x", 15, "'[2]' is not in `trials.one.run` (a list of 2)"),
        ("trials.one.run.first=x", 16, "'first' is not in `trials.one.run` (a list of 2)"),
        ("trials.one.run[-1]=x", 15, "'[-1]' is not in `trials.one.run` (a list of 2)"),
        ("trials.one.run[0]x=1", 15, "'[0]x' is not in `trials.one.run` (a list of 2)"),
        ("trials.one.env[0]=x", 15, "'[0]' is not in `trials.one.env` (a map)"),
        ("trials.one[0]=x", 11, "'[0]' is not in `trials.one` (a map)"),
        ("trials.one.=1", 8, "'one.' is not in `trials` (a map)"),
        ("runtimes.base.image.tag=x", 21, "in `runtimes.base.image` (neither a map nor a list)"),
        (".a=1", 1, "'.a' is not in the suite"),
        ("trials.one.repeat", 1, "expected PATH=VALUE"),
        ("=3", 1, "expected PATH=VALUE"),
        ("trials.one.repeat=]", 19, "invalid YAML"),
        ("trials.one.repeat=[[\x07]]", 1, "invalid YAML: character"),
        ("include=[other.yaml]", 1, "--set cannot change `include` and `x-` fields"),
        ("x-shared.a=1", 1, "--set cannot change `include` and `x-` fields"),
    ],
)
def test_an_error_points_to_its_place_in_the_argument(kinds: Any, argument: str, column: int, message: str) -> None:
    found = problem(kinds, argument)
    where, said = found.splitlines()[0].split(": ", 1)
    assert (where, message in said) == (f"--set:1:{column}", True), found
    assert found.splitlines()[2].rstrip("^") == f"      | {' ' * (column - 1)}"


def test_problems_of_arguments_and_of_the_file_are_reported_together(kinds: Any) -> None:
    Path("suite.yaml").write_text(SUITE.replace("cpu: 1", "cpuu: 1"))
    found = problem(kinds, "trials.one.rum=x", "trials.one.run[9]=x", "trials.two.repeat=0")
    assert found.endswith("4 problems")
    assert "suite.yaml:4:11: unknown field 'cpuu'" in found
    assert (
        dedent("""\
        --set:1:12: unknown field 'rum'; did you mean 'run'?
            1 | trials.one.rum=x
              |            ^^^
        """)
        in found
    )


def test_a_problem_of_a_field_beside_the_argument_stays_in_the_file(kinds: Any) -> None:
    found = problem(kinds, "trials.one.exclude=[{machine: big, why: x}]", "trials.one.matrix={machine: small}")
    assert found.startswith("--set:1:31: unknown value 'big' of axis 'machine'")
    Path("suite.yaml").write_text(SUITE.replace("[echo a],", "[echo a], repeat: x,"))
    assert problem(kinds, "trials.two.run=[b]").startswith("suite.yaml:9:")
