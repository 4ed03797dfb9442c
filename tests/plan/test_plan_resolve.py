"""Every `${…}` is filled when a suite is expanded."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from seatrial.plan import PlanError, expand
from seatrial.plan.resolve import Resolver
from seatrial.suite import Fill, Model, Suite
from seatrial.suite.values import Reason

Make = Callable[..., Suite]
VALUES: dict[str, Any] = {"model": "llama", "n": 3, "on": True, "config": {"dtype": "f16", "deep": {"x": 1}}}
LABELS = {**{name: str(value) for name, value in VALUES.items()}, "config": "f16"}


class Inner(Model):
    text: str = ""
    pattern: Annotated[str, Fill.PATTERN] = ""


class Entry(Model):
    text: Any = None
    typed: Annotated[Any, Fill.TYPED] = None
    inner: dict[str, Inner] = Field({})
    several: tuple[Inner, ...] = ()
    why: Reason = "for a reason"


def filled(**data: Any) -> Any:
    return Resolver("entry", Entry.model_validate(data), data, frozenset()).resolve(LABELS, VALUES).model


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("run ${model} ${n} ${on}", "run llama 3 true"),
        ("${config.dtype}/${config.deep.x}", "f16/1"),
        ("${config}", "f16"),
        ("$${HOME} $HOME ${n}", "${HOME} $HOME 3"),
        ("$$${n}", "$${n}"),
        (["${n}", {"k${n}": "${n}"}], ["3", {"k${n}": "3"}]),
        (["${n}"], ["3"]),
        (7, 7),
    ],
)
def test_values_are_put_into_every_string(text: Any, becomes: Any) -> None:
    assert filled(text=text).text == becomes


def test_a_placeholder_alone_keeps_its_type_where_types_count() -> None:
    written = {"a": "${n}", "b": "${on}", "c": "x${n}", "d": "${config}"}
    assert filled(typed=written).typed == {"a": 3, "b": True, "c": "x3", "d": VALUES["config"]}


def test_in_a_pattern_values_stand_for_themselves_wherever_it_is() -> None:
    values = {**VALUES, "model": "a.b"}
    data = {"inner": {"k": {"text": "${model}", "pattern": "^${model}$"}}, "several": [{"pattern": "${config.dtype}+"}]}
    resolver = Resolver("entry", Entry.model_validate(data), data, frozenset())
    made = resolver.resolve({**LABELS, "model": "a.b"}, values).model
    assert made.inner["k"] == Inner(text="a.b", pattern="^a\\.b$")
    assert made.several == (Inner(pattern="f16+"),)


def test_reasons_are_left_as_they_are() -> None:
    assert filled(why="see ${ticket}").why == "see ${ticket}"


def test_cells_with_equal_values_share_one_spec(suite_of: Make) -> None:
    plan = expand(suite_of({"matrix": {"a": [1, 2], "b": [1, 2, 3]}, "run": ["echo ${a}"]}))
    assert len({id(cell.spec) for cell in plan.cells}) == 2
    assert [cell.spec.run for cell in plan.cells] == [("echo 1",)] * 3 + [("echo 2",)] * 3
    assert {cell.fields["run"] for cell in plan.cells} == {'["echo ${a}"]'}


def test_values_with_which_a_trial_makes_no_sense_are_refused(suite_of: Make) -> None:
    suite = suite_of({"matrix": {"name": ["a", None]}, "text": "${name}"})
    with pytest.raises(PlanError, match=r"trials\.t\.text: .* \(with name=null\)"):
        expand(suite)
