"""tgis-tester's config.yaml: its models, with its defaults, and the reading of a file."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from seatrial.suite.yaml.problem import KeyPath, Problem, SuiteError, dotted, explain
from seatrial.suite.yaml.source import Source, read_source

MIG = {"mig_1g_10gb": "mig-1g.10gb", "mig_2g_20gb": "mig-2g.20gb", "mig_3g_40gb": "mig-3g.40gb"}


class TesterModel(BaseModel):
    """They ignore what they do not know; so does this, and says so."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True, protected_namespaces=())


_Whole = Annotated[int, Field(strict=True, ge=0)]
_Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
# What their README calls it still, and their code does not know any more.
_HUGGING_FACE = Literal["hf_transformers", "hf_accelerate", "hf_optimum_bt", "hf_optimum_ort"]
Framework = Annotated[
    _HUGGING_FACE | Literal["tgis_native", "ibm_fms", "gpt_megatron"],
    BeforeValidator(lambda value: "tgis_native" if value == "hf_custom_tp" else value),
]


class MigSlices(TesterModel):
    mig_1g_10gb: _Whole = 0
    mig_2g_20gb: _Whole = 0
    mig_3g_40gb: _Whole = 0


class ResourceSpec(TesterModel):
    request_cpu: _Whole = 2
    request_memory_gb: _Whole = 4
    limit_cpu: _Whole = 4
    limit_memory_gb: _Whole = 96
    gpu: MigSlices | _Whole | None = 1

    @property
    def gpus(self) -> int:
        """Whole ones; slices of one are none."""
        return self.gpu if isinstance(self.gpu, int) else 0

    @property
    def mig(self) -> tuple[str, int] | None:
        """The name of the slices, as Kubernetes has it, and how many."""
        if not isinstance(self.gpu, MigSlices):
            return None
        return next(((MIG[name], count) for name, count in self.gpu if count), None)

    @property
    def cpu_only(self) -> bool:
        return not self.gpus and self.mig is None


class ModelConfig(TesterModel):
    revision: str | None = None
    deployment_framework: Framework = "tgis_native"
    dtype_str: Literal["float16", "float32", "bfloat16"] = "float16"
    num_shard: _Whole = 1
    port: _Port = 5001
    grpc_port: _Port = 8001
    master_addr: str = "localhost"
    master_port: _Port = 29500
    cuda_process_memory_fraction: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    max_batch_size: _Whole = 8
    max_concurrent_requests: _Whole = 96
    max_sequence_length: _Whole = 2048
    max_new_tokens: _Whole = 1024
    max_waiting_tokens: _Whole = 10
    max_batch_weight: _Whole | None = None
    max_prefill_weight: _Whole | None = None
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


class Cluster(TesterModel):
    api_endpoint: str
    namespace: str
    service_account_name: str
    service_account_token: str | None = None


class VolumeClaim(TesterModel):
    name: str
    mount_path: str
    read_only: bool = False


class Worker(TesterModel):
    image_uri: str
    image_pull_secret: str | None = None
    tls_secret: str
    ready_timeout_secs: _Whole
    scheduled_timeout_secs: _Whole
    max_parallel_workers: Annotated[int, Field(strict=True, ge=1)]
    max_connection_retries: _Whole
    ingress_hostname: str
    pvcs: tuple[VolumeClaim, ...] = ()
    transformers_cache_path: str
    prefix_store_path: str = ""
    adapter_cache: str = ""


class RunnerConfig(TesterModel):
    ca_cert_path: str | None = None
    object_store_secret: str
    object_store_bucket: str
    object_store_endpoint: str
    object_store_region: str
    validate_models: bool = False
    generate_stream: bool = False
    evaluation_strategy: Literal["approx_equality", "exact_text_match", "embeddings_similarity"] = "approx_equality"
    save_passed_test_results: bool = False


class TestedModel(TesterModel):
    model: str
    configs: tuple[ModelConfig, ...]
    cases: tuple[str, ...]


class TesterConfig(TesterModel):
    cluster: Cluster
    worker: Worker
    runner: RunnerConfig
    tests: Annotated[tuple[TestedModel, ...], Field(min_length=1)]


class TesterFile(msgspec.Struct, frozen=True):
    """A config that was read; `directory` is where its relative paths begin: two levels above the file."""

    path: Path
    directory: Path
    config: TesterConfig
    source: Source
    ignored: tuple[str, ...] = ()  # fields that mean nothing, with their places


def read_tester_config(path: Path) -> TesterFile:
    """Raises SuiteError with every problem of the file, those of the rules for configurations included."""
    from seatrial.kinds.serving.config_rules import config_problems

    source = read_source(path)
    problems = list(source.problems)
    config: TesterConfig | None = None
    try:
        config = TesterConfig.model_validate(source.data)
    except ValidationError as error:
        for loc, key, message in explain(error, TesterConfig, lambda loc: source.find(loc)[1]):
            problems.append(_problem(source, loc, message, key))
    for where, one in _model_configs(source.data):
        problems += [_problem(source, (*where, field), why) for field, why in config_problems(one)]
    if problems or config is None:
        raise SuiteError(problems)
    ignored = tuple(_unknown(source, TesterConfig, source.data, ()))
    return TesterFile(path, path.absolute().parent.parent, config, source, ignored)


def _model_configs(data: Any) -> Iterator[tuple[KeyPath, ModelConfig]]:
    """Those that can be read, whatever is wrong with the others."""
    for test, spec in _items(data, "tests"):
        for number, one in _items(spec, "configs"):
            with contextlib.suppress(ValidationError):
                yield ("tests", test, "configs", number), ModelConfig.model_validate(one)


def _items(data: Any, name: str) -> Iterable[tuple[int, Any]]:
    found = data.get(name) if isinstance(data, dict) else None
    return enumerate(found if isinstance(found, list) else ())


def _problem(source: Source, path: KeyPath, message: str, key: bool = False) -> Problem:
    mark, _ = source.find(path, key)
    return Problem(message, mark, dotted(path))


def _unknown(source: Source, model: type[BaseModel], data: Any, path: KeyPath) -> list[str]:
    """What the file says and nobody reads."""
    found: list[str] = []
    for name, value in data.items() if isinstance(data, dict) else ():
        field = model.model_fields.get(name)
        if field is None:
            mark, _ = source.find((*path, name), key=True)
            found.append(f"{mark.file}:{mark.line}:{mark.column}: `{name}` means nothing here, nor to tgis-tester")
            continue
        inner = _inner_model(field.annotation)
        if inner is None:
            continue
        items: list[tuple[KeyPath, Any]] = [((*path, name), value)]
        if isinstance(value, list):
            items = [((*path, name, index), item) for index, item in enumerate(value)]
        for place, item in items:
            found += _unknown(source, inner, item, place)
    return found


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(inner) for inner in getattr(annotation, "__args__", ()))
    return next((one for one in found if one is not None), None)


def minutes(seconds: int) -> str:
    """As a suite writes a time."""
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"


def gigabytes(number: int) -> str:
    """Theirs are decimal; a suite's are binary."""
    return f"{math.floor(number * 1000**3 / 1024**2)}Mi"
