"""Suites for plans, with a kind as a plugin would bring it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from seatrial.suite import Model, Runtime, Suite, TrialModel, from_data


class Probe(TrialModel):
    kind: Literal["probe"]
    run: tuple[str, ...] = ()
    text: str = Field("x", min_length=1)

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        return tuple(f"run {command}" for command in self.run)


class Options(Model):
    parallel: int | None = None


@pytest.fixture
def suite_of(tmp_path: Path) -> Callable[..., Suite]:
    """A suite from its fields; `trial` is short for one trial named `t`."""

    def make(trial: dict[str, Any] | None = None, **fields: Any) -> Suite:
        data = {**fields}
        if trial is not None:
            data["trials"] = {"t": {"kind": "probe", **trial}}
        return from_data(data, tmp_path, {"probe": Probe}, {"local": Options})

    return make
