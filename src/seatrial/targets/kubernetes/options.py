"""What a suite may say of a Kubernetes target. What is not here, `template` can say."""

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


def _matching(pattern: str, problem: str) -> AfterValidator:
    """A text that fits; `problem` is what the message says of others."""
    compiled = re.compile(pattern, re.DOTALL)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"{text!r} {problem}")
        return text

    return AfterValidator(check)


def _folder(text: str) -> str:
    if not text.startswith("/") or text == "/" or ":" in text or ".." in text.split("/"):
        raise ValueError(f"{text!r} is not a folder: an absolute path, not / itself, without .. and :")
    return text.rstrip("/")


def parse_cpu(value: Any) -> float:
    """Cores of `0.5`, `"2"`, `"50m"`."""
    cores = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        cores = float(value)
    elif isinstance(value, str) and (found := _CPU.fullmatch(value.strip())):
        cores = float(found[1]) / (1000 if found[2] else 1)
    if not 0.001 <= cores <= 1e6:
        raise ValueError(f"{value!r} is not a number of cores; write 2, 0.5 or thousandths (50m)")
    return cores


def _number_or(pattern: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": pattern}]}
    )


_StrictText = Annotated[str, Field(strict=True)]
NonEmptyText = Annotated[_StrictText, _matching(r"(?=.*\S)[^\0]*", "is empty, or has a NUL in it")]
ObjectName = Annotated[
    _StrictText,
    _matching(rf"(?=.{{1,253}}$){_SUBDOMAIN}", "cannot be the name of an object: lower case letters, digits, - and ."),
]
Namespace = Annotated[
    _StrictText, _matching(_DNS_LABEL, "cannot be a namespace: at most 63 lower case letters, digits and -")
]
LabelKey = Annotated[
    _StrictText,
    _matching(
        rf"(?:{_SUBDOMAIN}/)?{_LABEL_PART}",
        "cannot be a label: write name or domain/name, as in `kubectl get nodes --show-labels`",
    ),
]
LabelValue = Annotated[
    _StrictText, _matching(f"(?:{_LABEL_PART})?", "cannot be a label's value: at most 63 letters, digits, -, _ and .")
]
Labels = dict[LabelKey, LabelValue]
ResourceName = Annotated[
    _StrictText,
    _matching(
        f"{_SUBDOMAIN}/{_LABEL_PART}",
        "is not the name of a GPU resource: nvidia.com/gpu, nvidia.com/mig-1g.10gb, amd.com/gpu",
    ),
]
VariableName = Annotated[
    _StrictText,
    _matching(r"[A-Za-z_][A-Za-z0-9_]*", "cannot be the name of a variable: letters, digits and _, and no digit first"),
]
Folder = Annotated[_StrictText, AfterValidator(_folder)]
DurationValue = Annotated[float, BeforeValidator(parse_duration), _number_or(DURATION_PATTERN)]
SizeValue = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "examples": ["16Gi"]})
]
Cpu = Annotated[float, BeforeValidator(parse_cpu), _number_or(_CPU_PATTERN)]

USER = 1000  # of a pod under `restricted`, unless `user` is written
SHARED_MEMORY = "/dev/shm"
# From a keeper that leaves to the end of a pod in which others go on. A kubelet measures volumes every one to two
# minutes, compares them with their limits every ten seconds, and may be ending other pods.
NODE_ENDS_POD_S = 180.0
LEAST_KEEP_GPU_S = NODE_ENDS_POD_S + 30.0


class OptionsModel(BaseModel):
    """What all options share. Built when first used: a suite without a cluster does not wait for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Toleration(OptionsModel):
    """As Kubernetes writes it."""

    key: LabelKey | None = Field(None, description="The taint's key; without it every taint.")
    operator: Literal["Equal", "Exists"] | None = Field(None, description="Without it Equal.")
    value: LabelValue | None = Field(None, description="The taint's value, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Without it every effect."
    )
    tolerationSeconds: int | None = Field(
        None, strict=True, ge=0, description="How long a NoExecute taint is borne; without it for ever."
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError("`operator: Exists` asks for no `value`")
        if self.key is None and self.operator != "Exists":
            raise ValueError("without `key` only `operator: Exists` has a meaning: it bears every taint")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("`tolerationSeconds` is for `effect: NoExecute`")
        return self


class Volume(OptionsModel):
    """Something that is there already, and where the trial finds it: exactly one of claim, host, config and secret."""

    claim: ObjectName | None = Field(None, description="Name of a PersistentVolumeClaim.")
    host: Folder | None = Field(None, description="Path on the node; `restricted` namespaces refuse it.")
    config: ObjectName | None = Field(None, description="Name of a ConfigMap.")
    secret: ObjectName | None = Field(None, description="Name of a Secret.")
    at: Folder = Field(description="Where the trial finds it.")
    path: NonEmptyText | None = Field(None, description="A part of it alone: relative, without `..`.")
    read_only: bool = Field(True, strict=True, description="False: the trial may write there (claim and host only).")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        given = [name for name in ("claim", "host", "config", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of claim, host, config and secret; this has {' and '.join(given) or 'none'}")
        if given[0] in ("config", "secret") and not self.read_only:
            raise ValueError(f"a {given[0]} cannot be written to; leave `read_only` out")
        if self.path is not None and (self.path.startswith("/") or ".." in self.path.split("/")):
            raise ValueError(f"`path` {self.path!r} is relative to what is mounted, without `..`")
        return self


class GpuModel(OptionsModel):
    """How one model of GPU is asked for."""

    resource: ResourceName | None = Field(
        None, description="Name of the resource; for MIG such as nvidia.com/mig-1g.10gb. Without it `gpu_resource`."
    )
    select: Labels = Field({}, description="Labels of the nodes that have it.")


class Keeper(OptionsModel):
    """The small container that keeps a pod's files until they are collected."""

    cpu: Cpu = Field(0.05, description="Cores that are asked for.")
    cpu_limit: Cpu = Field(1.0, description="Cores that are allowed; the same as `cpu` makes Guaranteed pods.")
    memory_bytes: SizeValue = Field(64 << 20, alias="memory", description="Memory, asked for and allowed.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.cpu_limit < self.cpu:
            raise ValueError(f"`cpu_limit` {self.cpu_limit:g} is less than `cpu` {self.cpu:g}")
        return self


def _home(path: Path) -> Path:
    return Path(os.path.expanduser(path))


def _keep_gpu(keep_s: float) -> float:
    if keep_s < LEAST_KEEP_GPU_S:
        raise ValueError(
            f"{keep_s:g} s cannot be promised: a node needs up to {NODE_ENDS_POD_S:g} s to end a pod in which another "
            f"container still runs; write {LEAST_KEEP_GPU_S:g} or more"
        )
    return keep_s


def _template(template: dict[str, Any]) -> dict[str, Any]:
    unknown = [key for key in template if key not in ("metadata", "spec")]
    if unknown:
        raise ValueError(
            f"a template is a part of a pod template: `metadata` (labels, annotations) and `spec` (as of a Pod), not "
            f"{', '.join(map(repr, unknown))}"
        )
    return template


class KubernetesOptions(OptionsModel):
    context: NonEmptyText | None = Field(None, description="Context of the kubeconfig; without it the current one.")
    kubeconfig: Annotated[Path, AfterValidator(_home)] | None = Field(
        None, description="File; without it as kubectl: $KUBECONFIG, ~/.kube/config."
    )
    namespace: Namespace | None = Field(None, description="Where everything is made; without it the context's.")
    parallel: int | None = Field(
        None, strict=True, ge=1, description="How many cells are on the cluster at once; 50 unless written."
    )
    workload: Literal["job", "jobset"] = Field(
        "job", description="What a job is on the cluster: a Job, or a JobSet, which must be installed there."
    )
    queue: ObjectName | None = Field(None, description="Kueue's LocalQueue through which jobs start.")

    image: NonEmptyText | None = Field(None, description="Image of runtimes that name none.")
    pull: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When images are pulled; without it as Kubernetes does by the image's tag."
    )
    pull_secrets: tuple[ObjectName, ...] = Field((), description="Secrets with which images are pulled.")
    env: dict[VariableName, Annotated[str, Field(strict=True)]] = Field(
        {}, description="Variables of all jobs; those of suite, runtime and trial come before them."
    )
    service_account: ObjectName | None = Field(
        None, description="The account of the token that pods get; without it the namespace's default, and no token."
    )
    user: int | None = Field(
        USER,
        strict=True,
        ge=0,
        description="Number of the user in pods; null: the image's own, or the cluster's choice.",
    )
    security: Literal["restricted", "none"] = Field(
        "restricted",
        description="restricted: as the pod security standard of that name asks. none: as the image and cluster do.",
    )

    labels: Labels = Field({}, description="Labels of everything that is made: a team, a cost centre.")
    annotations: dict[LabelKey, Annotated[str, Field(strict=True)]] = Field(
        {}, description="Annotations of everything that is made."
    )
    select: Labels = Field({}, description="Labels of the nodes for all jobs; machines add their own.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints of nodes that pods bear.")
    priority: ObjectName | None = Field(None, description="Name of a PriorityClass.")
    gpu_resource: ResourceName = Field("nvidia.com/gpu", description="Resource by which GPUs are asked for.")
    gpu_label: LabelKey | None = Field(
        None, description="Label of nodes whose value is the machine's `gpu.model`; without it `select` decides."
    )
    gpu_models: dict[NonEmptyText, GpuModel] = Field(
        {}, description="Models that are asked for in another way, by the machine's `gpu.model`: MIG, other labels."
    )

    volumes: tuple[Volume, ...] = Field((), description="Claims and other volumes that jobs find.")
    files_size_bytes: SizeValue | None = Field(
        None, alias="files_size", description="Most that a job's files may take."
    )
    fetch_bytes: SizeValue = Field(
        10 << 30, alias="fetch_size", description="Most that is fetched of the files that a job keeps."
    )
    fetch_files: int = Field(10_000, strict=True, ge=0, description="The same, as a number of files.")
    shared_memory_bytes: SizeValue | None = Field(
        None, alias="shared_memory", description="Size of /dev/shm; counts as memory of the pod."
    )
    keeper: Keeper = Field(default_factory=Keeper, description="Resources of the container that keeps the files.")
    keep_s: DurationValue = Field(3600.0, alias="keep", description="How long what was not collected stays.")
    keep_gpu_s: Annotated[DurationValue, AfterValidator(_keep_gpu)] = Field(
        480.0,
        alias="keep_gpu",
        description="GPUs of a job that nobody collects are free again within this; its files stay for 3m less.",
    )
    deadline_s: DurationValue = Field(
        86400.0, alias="deadline", description="The cluster's own bound for jobs without a limit for queue or run."
    )

    endpoint: Literal["port-forward", "service", "ingress", "route"] = Field(
        "port-forward", description="How a job's port is reached; service: from inside the cluster."
    )
    endpoint_host: NonEmptyText | None = Field(
        None, description="Host name of an ingress or route, with {job} in it: {job}.apps.example.com."
    )
    endpoint_class: ObjectName | None = Field(None, description="Name of an IngressClass.")
    endpoint_tls: Annotated[bool, Field(strict=True)] | ObjectName = Field(
        False,
        description="An ingress or route speaks TLS: true, by its controller's certificate; a name, by that Secret's.",
    )

    template: Annotated[dict[str, Any], AfterValidator(_template)] = Field(
        {}, description="Whatever else pods need: merged into their template, {metadata, spec}."
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.security == "restricted" and self.user == 0:
            raise ValueError("`user: 0` is root, which `security: restricted` forbids; write `security: none` as well")
        taken = [SHARED_MEMORY] if self.shared_memory_bytes else []
        for volume in self.volumes:
            for other in (*taken, PLACE):
                if volume.at == other or volume.at.startswith(f"{PLACE}/"):
                    raise ValueError(f"a volume cannot be at {volume.at}: something else is there already")
            taken.append(volume.at)
        outside = self.endpoint in ("ingress", "route")
        if outside and self.endpoint_host is None:
            raise ValueError(f"`endpoint: {self.endpoint}` needs `endpoint_host`, such as {{job}}.apps.example.com")
        for field in ("endpoint_host", "endpoint_tls"):
            if getattr(self, field) and not outside:
                raise ValueError(f"`{field}` is for `endpoint: ingress` or `route`")
        if self.endpoint_host is not None and "{job}" not in self.endpoint_host:
            raise ValueError(f"`endpoint_host` {self.endpoint_host!r} has no {{job}} in it: all jobs would share it")
        if self.endpoint_class is not None and self.endpoint != "ingress":
            raise ValueError("`endpoint_class` is for `endpoint: ingress`")
        return self

    @property
    def other_containers(self) -> tuple[str, ...]:
        """The names of those that `template` adds to ours."""
        spec = self.template.get("spec") or {}
        added = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        return tuple(one["name"] for one in added if one["name"] not in (TRIAL, KEEPER) and "$patch" not in one)

    @property
    def run_as(self) -> int | None:
        """The user of pods. Without security only one that was asked for: images may count on their own."""
        return self.user if self.security == "restricted" or "user" in self.model_fields_set else None
