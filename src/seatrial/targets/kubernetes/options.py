"""Fields of a Kubernetes target in a suite. `template` covers everything else."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from seatrial.job.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size
from seatrial.targets.kubernetes.names import KEEPER, PLACE, TRIAL

_LABEL_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_CPU_PATTERN = r"^\d+(\.\d+)?m?$"


def _matching(pattern: str, what: str, use: str) -> AfterValidator:
    """Accepts text that matches; the error for other text is "invalid WHAT TEXT; use USE"."""
    compiled = re.compile(pattern, re.DOTALL)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"invalid {what} {text!r}; use {use}")
        return text

    return AfterValidator(check)


def _folder(text: str) -> str:
    if not text.startswith("/") or text == "/" or ":" in text or ".." in text.split("/"):
        raise ValueError(f"invalid folder {text!r}; use an absolute path other than /, without .. and :")
    return text.rstrip("/")


def parse_cpu(value: Any) -> float:
    """Number of cores from `0.5`, `"2"` or `"50m"`."""
    cores = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        cores = float(value)
    elif isinstance(value, str) and (found := _CPU.fullmatch(value.strip())):
        cores = float(found[1]) / (1000 if found[2] else 1)
    if not 0.001 <= cores <= 1e6:
        raise ValueError(f"invalid number of cores {value!r}; use 2, 0.5 or thousandths (50m)")
    return cores


def _number_or(pattern: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": pattern}]}
    )


NonEmptyText = Annotated[str, _matching(r"(?=.*\S)[^\0]*", "text", "text that is not blank and has no NUL")]
ObjectName = Annotated[
    str, _matching(rf"(?=.{{1,253}}$){_SUBDOMAIN}", "object name", "up to 253 lower case letters, digits, - and .")
]
Namespace = Annotated[str, _matching(_DNS_LABEL, "namespace", "up to 63 lower case letters, digits and -")]
_LABEL_USE = "NAME or DOMAIN/NAME, as in `kubectl get nodes --show-labels`"
LabelKey = Annotated[str, _matching(rf"(?:{_SUBDOMAIN}/)?{_LABEL_PART}", "label", _LABEL_USE)]
LabelValue = Annotated[str, _matching(f"(?:{_LABEL_PART})?", "label value", "up to 63 letters, digits, -, _ and .")]
Labels = dict[LabelKey, LabelValue]
_GPU_USE = "a name such as nvidia.com/gpu, nvidia.com/mig-1g.10gb or amd.com/gpu"
ResourceName = Annotated[str, _matching(f"{_SUBDOMAIN}/{_LABEL_PART}", "GPU resource", _GPU_USE)]
VariableName = Annotated[
    str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "variable name", "letters, digits and _, not starting with a digit")
]
Folder = Annotated[str, AfterValidator(_folder)]
DurationValue = Annotated[float, BeforeValidator(parse_duration), _number_or(DURATION_PATTERN)]
SizeValue = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["16Gi"]})
]
Cpu = Annotated[float, BeforeValidator(parse_cpu), _number_or(_CPU_PATTERN)]

USER = 1000  # default user of pods
SHARED_MEMORY = "/dev/shm"


class OptionsModel(BaseModel):
    """Base of all option models. Built on first use, so that suites without a cluster load faster."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Toleration(OptionsModel):
    """A toleration, as in Kubernetes."""

    key: LabelKey | None = Field(None, description="Key of the taint; for every taint: only `operator: Exists`.")
    operator: Literal["Equal", "Exists"] | None = Field(None, description="Default: Equal.")
    value: LabelValue | None = Field(None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Default: every effect."
    )
    tolerationSeconds: int | None = Field(
        None, strict=True, ge=0, description="How long a NoExecute taint is tolerated; default: forever."
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError("`value` cannot be combined with `operator: Exists`")
        if self.key is None and self.operator != "Exists":
            raise ValueError("a toleration without `key` needs `operator: Exists`; it tolerates every taint")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("`tolerationSeconds` applies only to `effect: NoExecute`")
        return self


class Volume(OptionsModel):
    """An existing volume and its mount path: exactly one of claim, host, config and secret."""

    claim: ObjectName | None = Field(None, description="Name of a PersistentVolumeClaim.")
    host: Folder | None = Field(None, description="Path on the node; `restricted` namespaces reject it.")
    config: ObjectName | None = Field(None, description="Name of a ConfigMap.")
    secret: ObjectName | None = Field(None, description="Name of a Secret.")
    at: Folder = Field(description="Mount path in the trial's container.")
    path: NonEmptyText | None = Field(None, description="Mount only this path in the volume: relative, without `..`.")
    read_only: bool = Field(True, strict=True, description="False lets the trial write to it (claim and host only).")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        given = [name for name in ("claim", "host", "config", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"set exactly one of claim, host, config, secret (found {' and '.join(given) or 'none'})")
        if given[0] in ("config", "secret") and not self.read_only:
            raise ValueError(f"a {given[0]} volume cannot be writable; remove `read_only`")
        if self.path is not None and (self.path.startswith("/") or ".." in self.path.split("/")):
            raise ValueError(f"invalid `path` {self.path!r}; use a path relative to the volume, without `..`")
        return self


class GpuModel(OptionsModel):
    """How one GPU model is requested."""

    resource: ResourceName | None = Field(
        None, description="Resource name, for MIG such as nvidia.com/mig-1g.10gb; default: `gpu_resource`."
    )
    select: Labels = Field({}, description="Labels of the nodes with this model.")


class Keeper(OptionsModel):
    """The small container that keeps a pod's files until they are collected."""

    cpu: Cpu = Field(0.05, description="CPU request.")
    cpu_limit: Cpu = Field(1.0, description="CPU limit; equal to `cpu` for pods of QoS class Guaranteed.")
    memory_bytes: SizeValue = Field(64 << 20, alias="memory", description="Memory request and limit.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.cpu_limit < self.cpu:
            raise ValueError(f"`cpu_limit` {self.cpu_limit:g} is less than `cpu` {self.cpu:g}")
        return self


def _template(template: dict[str, Any]) -> dict[str, Any]:
    unknown = ", ".join(repr(key) for key in template if key not in ("metadata", "spec"))
    if unknown:
        use = "`metadata` (labels, annotations) and `spec` (as in a Pod)"
        raise ValueError(f"unknown template field {unknown}; use {use}")
    return template


class KubernetesOptions(OptionsModel):
    context: NonEmptyText | None = Field(None, description="Context in the kubeconfig; default: the current one.")
    kubeconfig: Annotated[Path, AfterValidator(lambda path: Path(os.path.expanduser(path)))] | None = Field(
        None, description="Kubeconfig file; default: as for kubectl ($KUBECONFIG, ~/.kube/config)."
    )
    namespace: Namespace | None = Field(None, description="Namespace of all objects; default: that of the context.")
    parallel: int | None = Field(
        None, strict=True, ge=1, description="Maximum number of cells on the cluster at once; default: 50."
    )
    workload: Literal["job", "jobset"] = Field(
        "job", description="Kind of object for jobs: Job, or JobSet, which must be installed on the cluster."
    )
    queue: ObjectName | None = Field(None, description="Kueue LocalQueue that admits the jobs.")

    image: NonEmptyText | None = Field(None, description="Image for runtimes without `image`.")
    pull: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="Image pull policy; default: that of Kubernetes, which depends on the tag."
    )
    pull_secrets: tuple[ObjectName, ...] = Field((), description="Secrets for pulling images.")
    env: dict[VariableName, str] = Field(
        {}, description="Variables for all jobs; those of suite, runtime and trial override them."
    )
    service_account: ObjectName | None = Field(
        None,
        description="Service account of pods, with its token; default: the namespace's default one, without a token.",
    )
    user: int | None = Field(
        USER, strict=True, ge=0, description="User ID in pods; null: that of the image or chosen by the cluster."
    )
    security: Literal["restricted", "none"] = Field(
        "restricted",
        description="restricted: meet the restricted pod security standard. none: leave it to image and cluster.",
    )

    labels: Labels = Field({}, description="Labels for all objects, such as a team or a cost centre.")
    annotations: dict[LabelKey, str] = Field({}, description="Annotations for all objects.")
    select: Labels = Field({}, description="Node labels for all jobs; machines add their own.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that pods tolerate.")
    priority: ObjectName | None = Field(None, description="Name of a PriorityClass.")
    gpu_resource: ResourceName = Field("nvidia.com/gpu", description="Resource name of GPUs.")
    gpu_label: LabelKey | None = Field(
        None,
        description="Node label with the machine's `gpu.model` as its value; default: common labels.",
    )
    gpu_models: dict[NonEmptyText, GpuModel] = Field(
        {}, description="GPU models that need another resource or other node labels, by `gpu.model`; {}: any GPU node."
    )

    volumes: tuple[Volume, ...] = Field((), description="Volumes to mount in jobs.")
    files_size_bytes: SizeValue | None = Field(
        None, alias="files_size", description="Size limit of a job's files on the node; default: no limit."
    )
    fetch_bytes: SizeValue = Field(
        10 << 30, alias="fetch_size", description="Size limit for fetching a job's kept files."
    )
    fetch_files: int = Field(10_000, strict=True, ge=0, description="Maximum number of files to fetch from a job.")
    shared_memory_bytes: SizeValue | None = Field(
        None, alias="shared_memory", description="Size of /dev/shm; counts as memory of the pod."
    )
    keeper: Keeper = Field(default_factory=Keeper, description="Resources of the container that keeps the files.")
    keep_s: DurationValue = Field(
        3600.0, alias="keep", description="How long a finished job waits until its files are fetched."
    )
    keep_gpu_s: DurationValue = Field(
        300.0,
        alias="keep_gpu",
        description="How long a finished job with GPUs waits until its files are fetched; at most `keep`.",
    )
    deadline_s: DurationValue = Field(
        86400.0, alias="deadline", description="Replaces a missing `timeout.queue` or `timeout.run` on the cluster."
    )

    endpoint: Literal["port-forward", "service", "ingress", "route"] = Field(
        "port-forward", description="How to reach a job's port; service: only from inside the cluster."
    )
    endpoint_host: NonEmptyText | None = Field(
        None, description="Host name of an ingress or route; must contain {job}: {job}.apps.example.com."
    )
    endpoint_class: ObjectName | None = Field(None, description="Name of an IngressClass.")
    endpoint_tls: Annotated[bool, Field(strict=True)] | ObjectName = Field(
        False,
        description="TLS for an ingress or route; true: the controller's certificate; NAME: that of the Secret NAME.",
    )

    template: Annotated[dict[str, Any], AfterValidator(_template)] = Field(
        {}, description="Anything else that pods need: {metadata, spec}, merged into the pod template."
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.security == "restricted" and self.user == 0:
            raise ValueError("`user: 0` (root) cannot be combined with `security: restricted`; set `security: none`")
        taken = [PLACE, SHARED_MEMORY] if self.shared_memory_bytes else [PLACE]
        for volume in self.volumes:
            if volume.at in taken or volume.at.startswith(f"{PLACE}/"):
                raise ValueError(f"cannot mount a volume at {volume.at}: the path is already in use")
            taken.append(volume.at)
        outside = self.endpoint in ("ingress", "route")
        if outside and self.endpoint_host is None:
            raise ValueError(f"`endpoint: {self.endpoint}` needs `endpoint_host`, such as {{job}}.apps.example.com")
        for field in ("endpoint_host", "endpoint_tls"):
            if getattr(self, field) and not outside:
                raise ValueError(f"`{field}` applies only to `endpoint: ingress` or `route`")
        if self.endpoint_host is not None and "{job}" not in self.endpoint_host:
            raise ValueError(f"`endpoint_host` {self.endpoint_host!r} must contain {{job}}, or all jobs would share it")
        if self.endpoint_class is not None and self.endpoint != "ingress":
            raise ValueError("`endpoint_class` applies only to `endpoint: ingress`")
        return self

    @property
    def other_containers(self) -> tuple[str, ...]:
        """Names of containers that `template` adds."""
        spec = self.template.get("spec") or {}
        added = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        return tuple(one["name"] for one in added if one["name"] not in (TRIAL, KEEPER) and "$patch" not in one)

    @property
    def run_as(self) -> int | None:
        """User of pods. With `security: none` only an explicit `user` counts, because images may need their own."""
        return self.user if self.security == "restricted" or "user" in self.model_fields_set else None
