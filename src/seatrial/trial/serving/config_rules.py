"""Configurations of TGIS servers on an axis `config`: the rules that tgis-tester has for them, all at once."""

from typing import Any

from pydantic import ValidationError

from seatrial.suite import Cell
from seatrial.suite.tgis_tester.config import ModelConfig
from seatrial.suite.tgis_tester.rules import config_problems
from seatrial.suite.yaml.explain import dotted, explain

AXIS = "config"


def cell_problems(cell: Cell) -> list[str]:
    """What is wrong with the configuration of a cell on its machine; nothing where the axis has no map."""
    config = cell.values.get(AXIS)
    gpu = cell.machine.gpu.count if cell.machine.gpu else None
    return problems_of({**config, "resources": {"gpu": gpu}}) if isinstance(config, dict) else []


def problems_of(config: dict[str, Any]) -> list[str]:
    """`dtype` is another word for `dtype_str`; a type that is not stated is the right one. Fields that no rule knows
    are the user's own."""
    fitting = "float16" if config["resources"]["gpu"] else "float32"
    known = {"dtype_str": fitting} | {"dtype_str" if name == "dtype" else name: one for name, one in config.items()}
    try:
        model = ModelConfig.model_validate({name: known[name] for name in known if name in ModelConfig.model_fields})
    except ValidationError as error:
        return [f"{dotted(loc)}: {message}" for loc, _, message in explain(error, ModelConfig, lambda _: None)]
    return [why for _, why in config_problems(model)]
