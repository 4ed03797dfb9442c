"""A suite from tgis-tester's config.yaml: a serving trial for each configuration of each model, with the same cases."""

import os
import re
from pathlib import Path
from typing import Any

from seatrial.kinds.serving.config_rules import ResourceSpec, ServerConfig
from seatrial.migrate import Imported, literal, suite_name, unique_name
from seatrial.migrate.tgis_tester.config import TesterFile, gigabytes, minutes
from seatrial.migrate.tgis_tester.variables import (
    CERTIFICATES,
    common_variables,
    config_variables,
    display_name,
    precision,
)
from seatrial.suite.yaml.document import Indent, scalar
from seatrial.suite.yaml.document import block_text as block
from seatrial.suite.yaml.problem import printable

CLUSTER, SERVER = "cluster", "server"
LAUNCHER, VLLM = "exec text-generation-launcher", "exec python -m vllm_tgis_adapter"
EMBEDDINGS = "http://127.0.0.1:8090"
# Where the images write: their root file system is read-only.
_SCRATCH = {"home-tgis": "/home/tgis", "home-vllm": "/home/vllm", "tmp": "/tmp"}
_A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def suite_from_tester(file: TesterFile, beside: Path, command: str | None = None) -> Imported:
    """The suite as text, for the folder `beside`; `command` starts the server in its image."""
    made = _Suite(file, beside.absolute(), command)
    data = {
        "name": suite_name(file.path.stem, "tgis-tester"),
        "env": {name: literal(value) for name, value in made.variables.items()},
        "targets": made.targets,
        "machines": made.machines,
        "runtimes": {SERVER: {"image": literal(file.config.worker.image_uri)}},
    }
    lines = [
        f"# Made from {printable(os.path.relpath(file.path.absolute(), made.beside))} by `seatrial import`.",
        "# Variables are those of tgis-tester's defaults; a trial has those that are others.",
        *block(data, 0, Indent()),
        "x-serving: &serving",
        *block(made.common, 2, Indent()),
        "trials:",
    ]
    for name, trial in made.trials.items():
        lines += [f"  {scalar(name)}:", "    <<: *serving", *block(trial, 4, Indent())]
    return Imported("\n".join(lines) + "\n", made.lines, tuple(made.unknown()))


class _Suite:
    def __init__(self, file: TesterFile, beside: Path, command: str | None) -> None:
        self.beside = beside
        self.targets: dict[str, dict[str, Any]] = {}
        self.machines: dict[str, dict[str, Any]] = {}
        self.trials: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, int] = {}
        self._file, self._config = file, file.config
        self._vllm = "vllm" in file.config.worker.image_uri
        self._command = command or (VLLM if self._vllm else LAUNCHER)
        self._shapes: dict[tuple[ResourceSpec, bool], str] = {}
        self._requests: dict[tuple[int, int], str] = {}
        plain = ServerConfig()
        self.variables = common_variables(file.config.worker) | config_variables("", plain)
        del self.variables["MODEL_NAME"]
        self.common = self._common(plain)
        for test, spec in enumerate(file.config.tests):
            for number, config in enumerate(spec.configs):
                short = spec.model.rstrip("/").rpartition("/")[2]
                title = re.sub(r"[()]", "", display_name(config)).replace("|", "-")
                name = unique_name(f"{short}.{title}", self.trials, "model")
                self.trials[name] = self._trial(spec.model, config, spec.cases)
                mark, _ = file.source.find(("tests", test, "configs", number))
                self.lines[name] = mark.line

    def _common(self, config: ServerConfig) -> dict[str, Any]:
        """What trials have in common, where their configuration has the default for it."""
        worker, runner = self._config.worker, self._config.runner
        return {
            "kind": "serving",
            "runtime": SERVER,
            "server": self._server(config),
            **({"stream": True} if runner.generate_stream else {}),
            "compare": {"rule": runner.evaluation_strategy, "precision": precision(config), **self._embeddings()},
            "concurrency": max(1, config.max_concurrent_requests),
            "timeout": {"queue": minutes(worker.scheduled_timeout_secs)},
        }

    def _embeddings(self) -> dict[str, Any]:
        if self._config.runner.evaluation_strategy != "embeddings_similarity":
            return {}
        return {"embeddings": {"url": EMBEDDINGS, "model": "sentence-transformers/all-MiniLM-L6-v2"}}

    def _server(self, config: ServerConfig) -> dict[str, Any]:
        ready = {"within": minutes(self._config.worker.ready_timeout_secs)}
        ca = self._config.runner.ca_cert_path
        return {
            "command": literal(self._server_command(config)),
            "protocol": "tgis",
            "port": config.grpc_port,
            "ready": ready if self._vllm else {"http": f":{config.port}/health", **ready},
            "tls": {"ca": literal(self._relative(ca))} if ca else {},
        }

    def _trial(self, model: str, config: ServerConfig, cases: tuple[str, ...]) -> dict[str, Any]:
        """What is another than in common, and what each has of its own."""
        trial: dict[str, Any] = {"machine": self._machine(config), "model": literal(model)}
        trial["cases"] = [literal(self._relative(path)) for path in cases]
        trial |= {name: value for name, value in self._common(config).items() if value != self.common[name]}
        trial |= {"shards": config.num_shard} if config.num_shard > 1 else {}
        if config.flash_attention:
            trial["skip"] = [{"has": "prefix", "why": "flash attention takes no prompt prefixes"}]
        variables = config_variables(model, config)
        trial["env"] = {name: literal(value) for name, value in variables.items() if value != self.variables.get(name)}
        return trial

    def _server_command(self, config: ServerConfig) -> str:
        if not self._vllm:
            return self._command
        keys = f"--ssl-keyfile {CERTIFICATES}/tls.key --ssl-certfile {CERTIFICATES}/tls.crt"
        return f"{self._command} {keys} --gpu-memory-utilization {config.gpu_memory_utilization:g}"

    def _relative(self, path: str) -> str:
        """Their relative paths begin two levels above the config."""
        return os.path.relpath(self._file.directory / path, self.beside)

    def _machine(self, config: ServerConfig) -> str:
        resources = config.resources
        a100 = config.flash_attention or self._vllm
        if (resources, a100) in self._shapes:
            return self._shapes[resources, a100]
        shape: dict[str, Any] = {"target": self._target(resources)}
        if resources.gpus:
            shape["gpu"] = {"count": resources.gpus}
        elif resources.mig is not None:
            shape["gpu"] = {"count": resources.mig[1], "model": resources.mig[0]}
        shape |= {"cpu": resources.limit_cpu, "memory": gigabytes(resources.limit_memory_gb)}
        shape |= {"select": _A100} if a100 and not resources.cpu_only else {}
        size = f"gpu{resources.gpus}" if resources.gpus else resources.mig[0] if resources.mig else "cpu"
        name = unique_name(f"{size}{'-a100' if a100 else ''}", self.machines, "machine")
        self.machines[name] = shape
        self._shapes[resources, a100] = name
        return name

    def _target(self, resources: ResourceSpec) -> str:
        """One for each amount that is asked for: a machine has what is allowed."""
        asked = (resources.request_cpu, resources.request_memory_gb)
        if asked not in self._requests:
            name = unique_name(CLUSTER, self.targets, CLUSTER)
            self._requests[asked] = name
            self.targets[name] = self._cluster(*asked)
        name = self._requests[asked]
        if resources.mig is not None:
            model = resources.mig[0]
            self.targets[name].setdefault("gpu_models", {})[model] = {"resource": f"nvidia.com/{model}"}
        return name

    def _cluster(self, cpu: int, memory_gb: int) -> dict[str, Any]:
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

    def unknown(self) -> list[str]:
        config = self._config
        cluster, worker = config.cluster, config.worker
        lines = [
            f"how the cluster is reached: a context of your kubeconfig for {cluster.api_endpoint} with the account "
            f"{cluster.service_account_name}; `context` of the targets names it, and no token is written into a suite",
            f"what starts the server in its image: `{self._command}` (or give --command)",
        ]
        if ":" not in worker.image_uri.rpartition("/")[2]:
            lines.append("the tag of the image, which tgis-tester takes from --image-tag: `runtimes.server.image`")
        if len(self.targets) > 1:
            lines.append(
                f"at most {worker.max_parallel_workers} servers at once over all targets: `seatrial run --parallel "
                f"{worker.max_parallel_workers}`; a target knows only its own"
            )
        if self._embeddings():
            lines.append(f"what embeds texts: tgis-tester does itself; here an endpoint at {EMBEDDINGS}, or another")
        lines.append(f"that results go to the bucket {config.runner.object_store_bucket}: copy the run folder there")
        if config.runner.validate_models:
            lines.append("`validate_models`: whether the cache has a model shows when its server starts")
        return lines
