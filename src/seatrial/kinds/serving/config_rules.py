"""Configurations of TGIS servers on an axis `config`: the rules that tgis-tester has for them, all at once."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from seatrial.migrate.tgis_tester.config import ModelConfig
from seatrial.suite import Cell
from seatrial.suite.yaml.problem import dotted, explain

# Which configurations of a model server make sense: rules, each with the reason that a person is told.


HALF = ("float16", "bfloat16")


def config_problems(config: ModelConfig) -> list[tuple[str, str]]:
    """All that is wrong with a configuration: the field, and why."""
    return [*_flash(config), *_framework(config), *_devices(config), *_numbers(config)]


def _flash(config: ModelConfig) -> Iterator[tuple[str, str]]:
    if not config.flash_attention:
        return
    if config.resources.cpu_only:
        yield "flash_attention", "flash attention needs a GPU, and this configuration has none (`resources.gpu`)"
    if config.dtype_str not in HALF:
        yield "flash_attention", f"flash attention needs float16 or bfloat16; `dtype_str` is {config.dtype_str}"
    if config.deployment_framework != "tgis_native":
        yield "flash_attention", f"flash attention is of tgis_native; the framework is {config.deployment_framework}"


def _framework(config: ModelConfig) -> Iterator[tuple[str, str]]:
    framework = config.deployment_framework
    if config.pt2_compile and framework != "hf_transformers":
        yield "pt2_compile", f"compiling with PyTorch 2 is of hf_transformers; the framework is {framework}"
    if config.quantize is not None and framework != "tgis_native":
        yield "quantize", f"{config.quantize} is of tgis_native; the framework is {framework}"


def _devices(config: ModelConfig) -> Iterator[tuple[str, str]]:
    resources = config.resources
    if resources.cpu_only and config.dtype_str != "float32":
        yield "dtype_str", f"without a GPU the type is float32; `dtype_str` is {config.dtype_str}"
    if config.num_shard > 1:
        if resources.mig is not None:
            yield "num_shard", f"{config.num_shard} shards need whole GPUs, and these are slices of one (MIG)"
        elif resources.gpus != config.num_shard:
            yield "num_shard", f"{config.num_shard} shards need as many GPUs; `resources.gpu` is {resources.gpus}"


def _numbers(config: ModelConfig) -> Iterator[tuple[str, str]]:
    for one, other in combinations(("port", "grpc_port", "master_port"), 2):
        if getattr(config, one) == getattr(config, other):
            yield other, f"`{one}` and `{other}` are both {getattr(config, one)}; each needs its own"
    if config.cuda_process_memory_fraction > 1.0:
        fraction = config.cuda_process_memory_fraction
        yield "cuda_process_memory_fraction", f"a fraction of memory is at most 1.0; this is {fraction:g}"


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
