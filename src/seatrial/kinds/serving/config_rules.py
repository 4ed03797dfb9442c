"""Configurations of TGIS servers (axis `config`): fields with tgis-tester's defaults, and rules."""

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from seatrial.suite import Cell
from seatrial.suite.yaml.problem import dotted, explain

MIG = {"mig_1g_10gb": "mig-1g.10gb", "mig_2g_20gb": "mig-2g.20gb", "mig_3g_40gb": "mig-3g.40gb"}


class TesterModel(BaseModel):
    """Ignores unknown fields, as tgis-tester does."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True, protected_namespaces=())


Whole = Annotated[int, Field(strict=True, ge=0)]
_Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
# tgis-tester's README still has `hf_custom_tp`, which its code replaced by `tgis_native`.
_HUGGING_FACE = Literal["hf_transformers", "hf_accelerate", "hf_optimum_bt", "hf_optimum_ort"]
Framework = Annotated[
    _HUGGING_FACE | Literal["tgis_native", "ibm_fms", "gpt_megatron"],
    BeforeValidator(lambda value: "tgis_native" if value == "hf_custom_tp" else value),
]


class MigSlices(TesterModel):
    mig_1g_10gb: Whole = 0
    mig_2g_20gb: Whole = 0
    mig_3g_40gb: Whole = 0


class ResourceSpec(TesterModel):
    request_cpu: Whole = 2
    request_memory_gb: Whole = 4
    limit_cpu: Whole = 4
    limit_memory_gb: Whole = 96
    gpu: MigSlices | Whole | None = 1

    @property
    def gpus(self) -> int:
        """Whole GPUs; MIG slices do not count."""
        return self.gpu if isinstance(self.gpu, int) else 0

    @property
    def mig(self) -> tuple[str, int] | None:
        """Kubernetes name and count of the MIG slices."""
        if not isinstance(self.gpu, MigSlices):
            return None
        return next(((MIG[name], count) for name, count in self.gpu if count), None)

    @property
    def cpu_only(self) -> bool:
        return not self.gpus and self.mig is None


class ServerConfig(TesterModel):
    revision: str | None = None
    deployment_framework: Framework = "tgis_native"
    dtype_str: Literal["float16", "float32", "bfloat16"] = "float16"
    num_shard: Whole = 1
    port: _Port = 5001
    grpc_port: _Port = 8001
    master_addr: str = "localhost"
    master_port: _Port = 29500
    cuda_process_memory_fraction: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    max_batch_size: Whole = 8
    max_concurrent_requests: Whole = 96
    max_sequence_length: Whole = 2048
    max_new_tokens: Whole = 1024
    max_waiting_tokens: Whole = 10
    max_batch_weight: Whole | None = None
    max_prefill_weight: Whole | None = None
    output_special_tokens: bool = False
    flash_attention: bool = False
    pt2_compile: bool = False
    quantize: Literal["gptq"] | None = None
    resources: ResourceSpec = ResourceSpec.model_construct()
    gpu_memory_utilization: Annotated[float, Field(ge=0, le=1)] = 0.85
    enable_lora: bool = False
    load_format: str | None = None
    model_loader_extra_config: str | None = None
    merge_onnx_graphs: bool | None = None
    estimate_memory: bool | None = None


def config_problems(config: ServerConfig) -> Iterator[tuple[str, str]]:
    """Yields the field and the reason of each broken rule."""
    framework, resources = config.deployment_framework, config.resources
    if config.flash_attention:
        if resources.cpu_only:
            yield "flash_attention", "flash attention needs a GPU (`resources.gpu` has none)"
        if config.dtype_str not in ("float16", "bfloat16"):
            yield "flash_attention", f"flash attention needs float16 or bfloat16; `dtype_str` is {config.dtype_str}"
        if framework != "tgis_native":
            yield "flash_attention", f"flash attention needs framework tgis_native, not {framework}"
    if config.pt2_compile and framework != "hf_transformers":
        yield "pt2_compile", f"compiling with PyTorch 2 needs framework hf_transformers, not {framework}"
    if config.quantize is not None and framework != "tgis_native":
        yield "quantize", f"{config.quantize} needs framework tgis_native, not {framework}"
    if resources.cpu_only and config.dtype_str != "float32":
        yield "dtype_str", f"without a GPU `dtype_str` must be float32, not {config.dtype_str}"
    if config.num_shard > 1:
        if resources.mig is not None:
            yield "num_shard", f"{config.num_shard} shards need whole GPUs, not MIG slices"
        elif resources.gpus != config.num_shard:
            yield "num_shard", f"{config.num_shard} shards need as many GPUs; `resources.gpu` is {resources.gpus}"
    for one, other in combinations(("port", "grpc_port", "master_port"), 2):
        if getattr(config, one) == getattr(config, other):
            yield other, f"`{one}` and `{other}` must differ; both are {getattr(config, one)}"
    for unit, what in (("cpu", "CPUs"), ("memory_gb", "GB")):
        asked, limit = getattr(resources, f"request_{unit}"), getattr(resources, f"limit_{unit}")
        if asked > limit:
            why = f"`request_{unit}` is above `limit_{unit}` ({asked} > {limit} {what}); Kubernetes rejects such a pod"
            yield f"resources.request_{unit}", why
    fraction = config.cuda_process_memory_fraction
    if fraction > 1.0:
        yield "cuda_process_memory_fraction", f"memory fraction {fraction:g} (limit 1.0)"


AXIS = "config"


def cell_problems(cell: Cell) -> list[str]:
    """Broken rules of a cell's configuration on its machine; none if the axis value is not a map. `dtype` is another
    name for `dtype_str`, which defaults to a valid type. Fields without a rule are ignored."""
    config = cell.values.get(AXIS)
    if not isinstance(config, dict):
        return []
    gpus = cell.machine.gpu.count if cell.machine.gpu else None
    known: dict[str, object] = {"dtype_str": "float16" if gpus else "float32"}
    known |= {"dtype_str" if name == "dtype" else name: one for name, one in config.items()}
    known |= {"resources": {"gpu": gpus}}
    try:
        model = ServerConfig.model_validate({name: known[name] for name in known if name in ServerConfig.model_fields})
    except ValidationError as error:
        return [f"{dotted(loc)}: {message}" for loc, _, message in explain(error, ServerConfig, lambda _: None)]
    return [why for _, why in config_problems(model)]
