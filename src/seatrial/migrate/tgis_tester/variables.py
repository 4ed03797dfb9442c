"""The environment variables by which a server of TGIS, or of vLLM behind the same protocol, is configured."""

from collections.abc import Iterator

from seatrial.kinds.serving.config_rules import ServerConfig
from seatrial.migrate.tgis_tester.config import Worker

CERTIFICATES = "/mnt/certs"
# The same for every server.
COMMON = {
    "NCCL_ASYNC_ERROR_HANDLING": "1",
    "SAFETENSORS_FAST_GPU": "1",
    "PYTHONUNBUFFERED": "1",
    "NUMBA_CACHE_DIR": "/tmp",
    "VLLM_CONFIG_ROOT": "/tmp/",
    "TLS_CERT_PATH": f"{CERTIFICATES}/tls.crt",
    "TLS_KEY_PATH": f"{CERTIFICATES}/tls.key",
}
_SHORT = {"float16": "f16", "float32": "f32", "bfloat16": "bf16"}


def common_variables(worker: Worker) -> dict[str, str]:
    return {
        **COMMON,
        "TRANSFORMERS_CACHE": worker.transformers_cache_path,
        "HF_HUB_CACHE": worker.transformers_cache_path,
        "PREFIX_STORE_PATH": worker.prefix_store_path,
        "ADAPTER_CACHE": worker.adapter_cache,
    }


def config_variables(model: str, config: ServerConfig) -> dict[str, str]:
    """Of one configuration. `max_waiting_tokens`, `master_addr` and `master_port` too, which tgis-tester reads and
    never passes on."""
    return {
        "MODEL_NAME": model,
        "DEPLOYMENT_FRAMEWORK": config.deployment_framework,
        "DTYPE_STR": config.dtype_str,
        "NUM_SHARD": str(config.num_shard),
        "MAX_CONCURRENT_REQUESTS": str(config.max_concurrent_requests),
        "MAX_SEQUENCE_LENGTH": str(config.max_sequence_length),
        "MAX_BATCH_SIZE": str(config.max_batch_size),
        "MAX_NEW_TOKENS": str(config.max_new_tokens),
        "MAX_WAITING_TOKENS": str(config.max_waiting_tokens),
        "FLASH_ATTENTION": _flag(config.flash_attention),
        "PT2_COMPILE": _flag(config.pt2_compile),
        "PORT": str(config.port),
        "GRPC_PORT": str(config.grpc_port),
        "MASTER_ADDR": config.master_addr,
        "MASTER_PORT": str(config.master_port),
        "CUDA_PROCESS_MEMORY_FRACTION": f"{config.cuda_process_memory_fraction:g}",
        **dict(_sometimes(config)),
    }


def _sometimes(config: ServerConfig) -> Iterator[tuple[str, str]]:
    """Those that are there only when there is something to say."""
    stated = {
        "REVISION": config.revision,
        "MAX_BATCH_WEIGHT": config.max_batch_weight,
        "MAX_PREFILL_WEIGHT": config.max_prefill_weight,
        "QUANTIZE": config.quantize,
        "LOAD_FORMAT": config.load_format,
        "MODEL_LOADER_EXTRA_CONFIG": config.model_loader_extra_config,
    }
    yield from ((name, str(value)) for name, value in stated.items() if value is not None)
    if config.enable_lora:
        yield "ENABLE_LORA", "true"
    if config.estimate_memory is False:
        yield "ESTIMATE_MEMORY", "off"
    if config.output_special_tokens:
        yield "OUTPUT_SPECIAL_TOKENS", "true"
    if config.resources.cpu_only:
        yield "CUDA_VISIBLE_DEVICES", "-1"
    if config.deployment_framework == "hf_optimum_ort":
        yield "CUDA_PAD_TO_MULT_OF_8", "false"
        if config.merge_onnx_graphs is not None:
            yield "MERGE_ONNX_GRAPHS", _flag(config.merge_onnx_graphs)


def _flag(value: bool) -> str:
    return str(value).lower()


def display_name(config: ServerConfig) -> str:
    """As tgis-tester's tables call it."""
    parts = [
        config.deployment_framework,
        _SHORT[config.dtype_str],
        "merge" if config.merge_onnx_graphs else "",
        f"sharded({config.num_shard})" if config.num_shard > 1 else "",
        "cpu" if config.resources.cpu_only else "",
        "pt2c" if config.pt2_compile else "",
        "flash" if config.flash_attention else "",
        config.quantize or "",
    ]
    return "|".join(part for part in parts if part)


def precision(config: ServerConfig) -> str:
    return _SHORT[config.dtype_str]
