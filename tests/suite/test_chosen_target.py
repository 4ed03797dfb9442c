"""`--target`: what it may be, what is wrong with it, and what becomes of a suite."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from seatrial.suite import Model, Suite, SuiteError, TrialModel, choose_target, from_data

SUITE = {
    "targets": {"cluster": {"kind": "far", "parallel": 2}},
    "machines": {"big": {"target": "cluster", "cpu": 8, "select": {"pool": "a"}}, "small": {"cpu": 1}},
    "trials": {"t": {"kind": "probe", "matrix": {"machine": "all"}, "run": ["true"]}},
}


class Probe(TrialModel):
    kind: Literal["probe"]
    run: tuple[str, ...] = ()


class Options(Model):
    parallel: int | None = None


class Placed(Model):
    parallel: int | None = Field(None, strict=True)
    namespace: str | None = Field(None, strict=True)
    env: dict[str, str] = Field({})


MORE: Any = {"local": Options, "far": Options, "placed": Placed}


def suite() -> Suite:
    return from_data(SUITE, "/", {"probe": Probe}, MORE)


def chosen(text: str) -> Any:
    return choose_target(text, suite().targets, MORE)


def problem(text: str) -> str:
    with pytest.raises(SuiteError) as caught:
        chosen(text)
    return str(caught.value)


def test_a_target_of_the_suite_is_taken_as_the_suite_has_it() -> None:
    moved = chosen("cluster")
    assert (moved.name, moved.entry.kind, moved.entry.options.parallel) == ("cluster", "far", 2)
    assert moved.data is None


def test_a_kind_alone_has_its_defaults() -> None:
    assert (chosen("placed").name, chosen("placed").entry.options) == ("placed", Placed())


def test_options_are_read_as_in_yaml_and_text_stays_text() -> None:
    moved = chosen("placed:namespace=007,parallel=40")
    assert moved.entry.options == Placed(namespace="007", parallel=40)
    assert chosen("placed:namespace=12").entry.options.namespace == "12"
    assert chosen("placed:env={A: x, B: y},parallel=1").entry.options == Placed(env={"A": "x", "B": "y"}, parallel=1)


def test_the_name_tells_places_apart_and_nothing_else() -> None:
    assert chosen("placed:namespace=a,parallel=4").name == chosen("placed:parallel=9,namespace=a").name
    assert chosen("placed:namespace=a").name != chosen("placed:namespace=b").name
    assert chosen("placed:parallel=4").name == "placed"


ENTRY = "{kind: placed, namespace: a}"


@pytest.mark.parametrize("text", [ENTRY, f"staging: {ENTRY}", f"targets: {{staging: {ENTRY}}}"])
def test_a_file_holds_one_entry_with_or_without_its_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "staging.yaml").write_text(text)
    moved = chosen(str(tmp_path / "staging.yaml"))
    assert (moved.name, moved.entry.options.namespace) == ("staging", "a")


def test_what_is_wrong_in_a_file_is_told_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("kind: placed\nnamespce: a\n")
    assert f"{path}:2:1: unknown field 'namespce'; did you mean 'namespace'?" in problem(str(path))
    path.write_text("kind: place\n")
    assert f"{path}:1:7: unknown kind 'place'; did you mean 'placed'?" in problem(str(path))
    path.write_text("a: {kind: placed}\nb: {kind: placed}\n")
    assert "expected one target" in problem(str(path))
    path.write_text("[1, 2\n")
    assert str(path) in problem(str(path))
    assert "No such file" in problem(str(tmp_path / "nothing.yaml"))


def test_unknown_names_are_errors_with_the_nearest() -> None:
    assert "did you mean 'cluster'?" in problem("clustre")
    assert "did you mean 'placed'?" in problem("plased:namespace=a")
    assert "known: cluster, here" in problem("x")
    assert "unknown field 'namespac'; did you mean 'namespace'?" in problem("placed:namespac=a")
    assert "use placed:KEY=VALUE" in problem("placed:namespace")
    assert "duplicate option `namespace`" in problem("placed:namespace=a,namespace=b")


def test_machines_keep_their_shapes_and_leave_what_another_target_finds_them_by() -> None:
    on = suite().on(chosen("placed"))
    assert {name: (one.target, one.cpu, dict(one.select)) for name, one in on.machines.items()} == {
        "big": ("placed", 8, {}),
        "small": ("placed", 1, {}),
    }
    assert on.machine("here").target == "placed"
    same = suite().on(chosen("cluster"))
    assert same.machines["big"] == suite().machines["big"]
