"""A kind and a target as plugins would bring them, so that suites can be loaded without the built-in ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from seatrial.suite import Model, Runtime, Suite, SuiteError, TrialModel, from_data, load


class Probe(TrialModel):
    kind: Literal["probe"]
    run: tuple[str, ...] = ()
    parameters: dict[str, Any] = Field({})

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        return tuple(f"run {command}" for command in self.run)


class Options(Model):
    parallel: int | None = None


KINDS = {"probe": Probe}
TARGETS = {"local": Options, "far": Options}
Problems = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def kinds() -> tuple[Any, Any]:
    return KINDS, TARGETS


@pytest.fixture
def suite_of(tmp_path: Path) -> Callable[[Any], Suite]:
    """A suite from the text of a file, or from data."""

    def make(written: Any) -> Suite:
        if not isinstance(written, str):
            return from_data(written, tmp_path, KINDS, TARGETS)
        path = tmp_path / "suite.yaml"
        path.write_text(written)
        return load(path, KINDS, TARGETS)

    return make


@pytest.fixture
def problems_of(tmp_path: Path) -> Problems:
    """What is wrong with a suite: (`suite.yaml:LINE:COLUMN`, message) for each problem."""

    def find(text: str | bytes, **others: str) -> list[tuple[str, str]]:
        path = tmp_path / "suite.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        for name, other in others.items():
            (tmp_path / f"{name}.yaml").write_text(other)
        with pytest.raises(SuiteError) as caught:
            load(path, KINDS, TARGETS)
        assert str(caught.value)
        return [(problem.where.removeprefix(f"{tmp_path}/"), problem.message) for problem in caught.value.problems]

    return find
