"""Creates a suite from tgis-tester's config.yaml: a serving trial per model configuration, with the same cases."""

import os
from pathlib import Path
from string import Template
from typing import Any

from seatrial.kinds.serving.config_rules import ResourceSpec, ServerConfig
from seatrial.migrate import Imported, literal, suite_name, unique_name
from seatrial.migrate.tgis_tester.config import TesterFile
from seatrial.suite.yaml.document import Indent, scalar
from seatrial.suite.yaml.document import block_text as block
from seatrial.suite.yaml.problem import printable

CLUSTER, SERVER = "cluster", "server"
LAUNCHER, VLLM = "exec text-generation-launcher", "exec python -m vllm_tgis_adapter"
EMBEDDINGS = "http://127.0.0.1:8090"
CERTIFICATES = "/mnt/certs"
KUBECONFIG, TOKEN = "tgis-tester.kubeconfig", "TESTER_SERVICE_ACCOUNT_TOKEN"
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
# Configuration fields with a variable of the same name, in the order of the suite.
_SAME_NAME = (
    *("deployment_framework", "dtype_str", "num_shard", "max_concurrent_requests", "max_sequence_length"),
    *("max_batch_size", "max_new_tokens", "max_waiting_tokens", "flash_attention", "pt2_compile", "port", "grpc_port"),
    *("master_addr", "master_port", "cuda_process_memory_fraction", "revision", "max_batch_weight"),
    *("max_prefill_weight", "quantize", "load_format", "model_loader_extra_config"),
)
_SHORT = {"float16": "f16", "float32": "f32", "bfloat16": "bf16"}
# Folders that the images write to: their root file system is read-only.
_SCRATCH = {"home-tgis": "/home/tgis", "home-vllm": "/home/vllm", "tmp": "/tmp"}
_A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def suite_from_tester(
    file: TesterFile, folder: Path, command: str | None = None, image_tag: str | None = None
) -> Imported:
    """The suite as text, for a file in `folder`. `command` starts the server in its image."""
    made = _Suite(file, folder.absolute(), command)
    image = file.config.worker.image_uri
    named, _, tag = image.rpartition(":")  # a port of the registry is followed by a path
    untagged = image if not named or "/" in tag else named
    data = {
        "name": suite_name(file.path.stem, "tgis-tester"),
        "env": {name: literal(value) for name, value in made.variables.items()},
        "targets": made.targets,
        "machines": made.machines,
        "runtimes": {SERVER: {"image": literal(f"{untagged}:{image_tag}" if image_tag else image)}},
    }
    lines = [
        f"# Created from {printable(os.path.relpath(file.path.absolute(), made.folder))} by `seatrial import`.",
        "# `env` has tgis-tester's defaults; a trial lists only variables that differ.",
        *block(data, 0, Indent()),
        "x-serving: &serving",
        *block(made.common, 2, Indent()),
        "trials:",
    ]
    for name, trial in made.trials.items():
        lines += [f"  {scalar(name)}:", "    <<: *serving", *block(trial, 4, Indent())]
    unknown = made.unknown()
    if not image_tag:
        start = "another image tag" if untagged != image else "the image tag"
        unknown.append(f"{start}: use --image-tag here, or `seatrial run --set runtimes.{SERVER}.image={untagged}:TAG`")
    return Imported("\n".join(lines) + "\n", made.lines, tuple(unknown), files={KUBECONFIG: made.kubeconfig()})


class _Suite:
    def __init__(self, file: TesterFile, folder: Path, command: str | None) -> None:
        self.folder = folder
        self.targets: dict[str, dict[str, Any]] = {}
        self.machines: dict[str, dict[str, object]] = {}
        self.trials: dict[str, dict[str, object]] = {}
        self.lines: dict[str, int] = {}
        self._file, self._config = file, file.config
        self._vllm = "vllm" in file.config.worker.image_uri
        self._embeds = file.config.runner.evaluation_strategy == "embeddings_similarity"
        self._command = command or (VLLM if self._vllm else LAUNCHER)
        self._shapes: dict[tuple[ResourceSpec, bool], str] = {}
        self._requests: dict[tuple[int, int], str] = {}
        plain = ServerConfig()
        worker = file.config.worker
        self.variables = {
            **COMMON,
            "TRANSFORMERS_CACHE": worker.transformers_cache_path,
            "HF_HUB_CACHE": worker.transformers_cache_path,
            "PREFIX_STORE_PATH": worker.prefix_store_path,
            "ADAPTER_CACHE": worker.adapter_cache,
            **_config_variables("", plain),
        }
        del self.variables["MODEL_NAME"]
        self.common = self._common(plain)
        for test, spec in enumerate(file.config.tests):
            for number, config in enumerate(spec.configs):
                short = spec.model.rstrip("/").rpartition("/")[2]
                name = unique_name(f"{short}.{_display_name(config)}", self.trials, "model")
                self.trials[name] = self._trial(spec.model, config, spec.cases)
                self.lines[name] = file.source.find(("tests", test, "configs", number))[0].line

    def _common(self, config: ServerConfig) -> dict[str, object]:
        """The fields of a trial with this configuration that most trials share."""
        worker, runner = self._config.worker, self._config.runner
        command = self._command
        ready = {"within": _duration(worker.ready_timeout_secs)}
        if self._vllm:
            keys = f"--ssl-keyfile {CERTIFICATES}/tls.key --ssl-certfile {CERTIFICATES}/tls.crt"
            command += f" {keys} --gpu-memory-utilization {config.gpu_memory_utilization:g}"
        else:
            ready = {"http": f":{config.port}/health", **ready}
        embeddings = {"url": EMBEDDINGS, "model": "sentence-transformers/all-MiniLM-L6-v2"}
        compare = {"rule": runner.evaluation_strategy, "precision": _SHORT[config.dtype_str]}
        return {
            "kind": "serving",
            "runtime": SERVER,
            "server": {
                "command": literal(command),
                "protocol": "tgis",
                "port": config.grpc_port,
                "ready": ready,
                "tls": {"ca": literal(self._relative(runner.ca_cert_path))} if runner.ca_cert_path else {},
            },
            **({} if runner.generate_stream else {"stream": False}),
            "batching": False,
            "compare": compare | ({"embeddings": embeddings} if self._embeds else {}),
            "concurrency": max(1, config.max_concurrent_requests),
            "timeout": {"queue": _duration(worker.scheduled_timeout_secs)},
        }

    def _trial(self, model: str, config: ServerConfig, cases: tuple[str, ...]) -> dict[str, object]:
        """The fields of a trial that differ from the common ones."""
        trial: dict[str, object] = {"machine": self._machine(config), "model": literal(model)}
        trial["cases"] = [literal(self._relative(path)) for path in cases]
        trial |= {name: value for name, value in self._common(config).items() if value != self.common[name]}
        trial |= {"shards": config.num_shard} if config.num_shard > 1 else {}
        if config.flash_attention:
            trial["skip"] = [{"has": "prefix", "why": "flash attention does not support prompt prefixes"}]
        variables = _config_variables(model, config)
        trial["env"] = {name: literal(value) for name, value in variables.items() if value != self.variables.get(name)}
        return trial

    def _relative(self, path: str) -> str:
        return os.path.relpath(self._file.local(path), self.folder)

    def _machine(self, config: ServerConfig) -> str:
        resources = config.resources
        a100 = config.flash_attention or self._vllm
        if (resources, a100) in self._shapes:
            return self._shapes[resources, a100]
        shape: dict[str, object] = {"target": self._target(resources)}
        if resources.gpus:
            shape["gpu"] = {"count": resources.gpus}
        elif resources.mig is not None:
            shape["gpu"] = {"count": resources.mig[1], "model": resources.mig[0]}
        # tgis-tester's gigabytes are decimal; a suite's are binary.
        shape |= {"cpu": resources.limit_cpu, "memory": f"{resources.limit_memory_gb * 1000**3 // 1024**2}Mi"}
        shape |= {"select": _A100} if a100 and not resources.cpu_only else {}
        size = f"gpu{resources.gpus}" if resources.gpus else resources.mig[0] if resources.mig else "cpu"
        name = unique_name(f"{size}{'-a100' if a100 else ''}", self.machines, "machine")
        self.machines[name] = shape
        self._shapes[resources, a100] = name
        return name

    def _target(self, resources: ResourceSpec) -> str:
        """One target per resource request; the machine has the limits."""
        asked = (resources.request_cpu, resources.request_memory_gb)
        if asked not in self._requests:
            self._requests[asked] = unique_name(CLUSTER, self.targets, CLUSTER)
            self.targets[self._requests[asked]] = self._cluster(*asked)
        name = self._requests[asked]
        if resources.mig is not None:
            model = resources.mig[0]
            self.targets[name].setdefault("gpu_models", {})[model] = {"resource": f"nvidia.com/{model}"}
        return name

    def _cluster(self, cpu: int, memory_gb: int) -> dict[str, object]:
        cluster, worker = self._config.cluster, self._config.worker
        volumes = [{"claim": one.name, "at": one.mount_path, "read_only": one.read_only} for one in worker.pvcs]
        volumes.append({"secret": worker.tls_secret, "at": CERTIFICATES})
        container = {
            "name": "trial",
            "resources": {"requests": {"cpu": str(cpu), "memory": f"{memory_gb}G"}},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in _SCRATCH.items()],
        }
        spec = {"containers": [container], "volumes": [{"name": name, "emptyDir": {}} for name in _SCRATCH]}
        return {
            "kind": "kubernetes",
            "kubeconfig": os.path.relpath(self.folder / KUBECONFIG),
            "namespace": cluster.namespace,
            **({"parallel": worker.max_parallel_workers} if worker.max_parallel_workers else {}),
            "pull": "Always",
            **({"pull_secrets": [worker.image_pull_secret]} if worker.image_pull_secret else {}),
            "volumes": volumes,
            "shared_memory": "1Gi",
            "endpoint": "route",
            "endpoint_host": f"{{job}}.{worker.ingress_hostname.partition(':')[0]}",
            "template": {"spec": spec},
        }

    def kubeconfig(self) -> str:
        """Access as tgis-tester has it: its account, with the token of its environment variable. Without the token."""
        cluster = self._config.cluster
        template = Template(Path(__file__).with_name("kubeconfig.yaml").read_text())
        return template.substitute(
            server=scalar(cluster.api_endpoint),
            account=scalar(cluster.service_account_name),
            namespace=scalar(cluster.namespace),
        )

    def unknown(self) -> list[str]:
        config = self._config
        cluster, worker = config.cluster, config.worker
        lines = [
            f"the token of the account {cluster.service_account_name}: set {TOKEN}, which {KUBECONFIG} reads; or set "
            f"`context` of the targets to a kubeconfig context of your own for {cluster.api_endpoint}",
            f"the CA of the API server, which tgis-tester does not verify: add `certificate-authority` to {KUBECONFIG} "
            "unless this machine trusts it",
            f"the command that starts the server in its image: assumed `{self._command}` (or use --command)",
        ]
        if len(self.targets) > 1:
            lines.append(
                f"the limit of {worker.max_parallel_workers} servers over all targets: run `seatrial run --parallel "
                f"{worker.max_parallel_workers}`; each target limits only its own"
            )
        if self._embeds:
            lines.append(f"the embeddings endpoint: assumed {EMBEDDINGS}; tgis-tester embeds texts itself")
        lines.append(f"upload of results to the bucket {config.runner.object_store_bucket}: copy the run folder there")
        if config.runner.validate_models:
            lines.append("`validate_models`: a model missing from the cache shows only when its server starts")
        return lines


def _config_variables(model: str, config: ServerConfig) -> dict[str, str]:
    """The variables of a configuration that have a value, including `max_waiting_tokens`, `master_addr` and
    `master_port`, which tgis-tester reads but never passes on."""
    onnx = config.deployment_framework == "hf_optimum_ort"
    variables = {
        "MODEL_NAME": model,
        **{field.upper(): getattr(config, field) for field in _SAME_NAME},
        "CUDA_PROCESS_MEMORY_FRACTION": f"{config.cuda_process_memory_fraction:g}",
        "ENABLE_LORA": config.enable_lora or None,
        "ESTIMATE_MEMORY": "off" if config.estimate_memory is False else None,
        "OUTPUT_SPECIAL_TOKENS": config.output_special_tokens or None,
        "CUDA_VISIBLE_DEVICES": "-1" if config.resources.cpu_only else None,
        "CUDA_PAD_TO_MULT_OF_8": "false" if onnx else None,
        "MERGE_ONNX_GRAPHS": config.merge_onnx_graphs if onnx else None,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in variables.items()
        if value is not None
    }


def _display_name(config: ServerConfig) -> str:
    """The name in tgis-tester's tables, without brackets and bars."""
    parts = [
        config.deployment_framework,
        _SHORT[config.dtype_str],
        "merge" if config.merge_onnx_graphs else "",
        f"sharded{config.num_shard}" if config.num_shard > 1 else "",
        "cpu" if config.resources.cpu_only else "",
        "pt2c" if config.pt2_compile else "",
        "flash" if config.flash_attention else "",
        config.quantize or "",
    ]
    return "-".join(part for part in parts if part)


def _duration(seconds: int) -> str:
    """A duration in suite syntax."""
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"
