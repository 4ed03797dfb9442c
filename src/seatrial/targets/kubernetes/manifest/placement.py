"""Where a pod may run and which resources it gets: node labels, hosts to avoid, CPUs, memory, GPUs."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seatrial.job import NEAR, Job, all_products, count, products_of, tpu_labels
from seatrial.kubernetes import Manifest, pod_metadata
from seatrial.targets.kubernetes.options import GpuModel, KubernetesOptions
from seatrial.targets.protocol import refused


def cpu_quantity(cores: float) -> str:
    """Kubernetes notation: whole cores, or thousandths, at least one."""
    thousandths = max(1, math.ceil(round(cores * 1000, 3)))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def size_quantity(size_bytes: int) -> str:
    """Kubernetes notation, with the largest unit that is exact."""
    for unit, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def seconds(duration_s: float) -> int:
    """Whole seconds for the server: rounded up, within the range of a 32-bit integer."""
    return min(max(1, math.ceil(duration_s)), (1 << 31) - 1)


HOSTNAME = "kubernetes.io/hostname"
_TPU = "cloud.google.com/gke-tpu"  # the beginning of labels
_MAY_TELL = re.compile(r"gpu|accelerator|instance-type")  # names of labels
_MOST_LABELS = 12
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def resources(job: Job, options: KubernetesOptions) -> Manifest:
    """As much as the cell's machine declares. Requests equal limits, so that metrics are comparable."""
    wanted: dict[str, str] = {}
    if job.resources.cpu is not None:
        wanted["cpu"] = cpu_quantity(job.resources.cpu)
    if job.resources.memory_bytes is not None:
        wanted["memory"] = size_quantity(job.resources.memory_bytes)
    if job.resources.gpu.count:
        wanted[_gpu(job, options).resource or options.gpu_resource] = str(job.resources.gpu.count)
    if (tpu := job.resources.tpu) is not None:
        wanted["google.com/tpu"] = str(tpu.host_chips)
    if (other := job.resources.accelerator) is not None:
        wanted[other.resource] = str(other.count)
    return {"requests": dict(wanted), "limits": wanted} if wanted else {}


def node_selector(job: Job, options: KubernetesOptions) -> dict[str, str]:
    """Node labels from the machine, its GPU model and the target. Raises TargetError (REFUSED) if they conflict."""
    sources = [
        ("the machine's `select`", job.resources.select),
        ("the target's `select`", options.select),
        _gpu_labels(job, options),
        ("the machine's `tpu`", _tpu_labels(job, options)),
    ]
    chosen: dict[str, tuple[str, str]] = {}
    for source, labels in sources:
        for key, value in labels.items():
            other = chosen.setdefault(key, (value, source))
            if other[0] != value:
                raise refused(
                    f"conflicting node labels for {job.title}: {other[1]} has {key}={other[0]}, {source} has "
                    f"{key}={value}; remove one of them"
                )
    return {key: value for key, (value, _) in sorted(chosen.items())}


def affinity(job: Job, options: KubernetesOptions) -> Manifest:
    """Requires the GPU model. Prefers other hosts than those to avoid, but allows them if nothing else is free."""
    made: Manifest = {}
    if (terms := gpu_terms(job, options)) is not None:
        refuse_unmatched(job, terms, [])
        made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    hosts = sorted({host.strip() for avoided in job.avoid for host in avoided.split(",")} - {""})
    if hosts:
        term = {"matchExpressions": [_expression(HOSTNAME, "NotIn", *hosts)]}
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 100, "preference": term}]
    return {"nodeAffinity": made} if made else {}


def gpu_terms(job: Job, options: KubernetesOptions) -> list[Manifest] | None:
    """Terms for the nodes with the GPU model, by the labels that clusters have: a node must match one of them. Empty if
    the model is unknown; None if any node will do, or the suite itself says which."""
    gpu = job.resources.gpu
    if not gpu.count or gpu.model is None or gpu.model in options.gpu_models:
        return None
    if options.gpu_label is not None or job.resources.select:
        return None
    return [{"matchExpressions": expressions} for expressions in _gpu_expressions(gpu.model, gpu.memory_bytes)]


def _gpu_expressions(model: str, memory_bytes: int | None) -> Iterator[list[Manifest]]:
    """Where the product does not tell the memory, a label of its own must."""
    products, wanted = products_of(model), (memory_bytes or 0) / 2**30
    margin, sizes = wanted * NEAR, {one.memory_gib for one in products if one.memory_gib}
    if wanted and sizes and all(abs(size - wanted) > margin for size in sizes):
        return
    for label, memory_label in dict.fromkeys((one.label, one.memory_label) for one in products):
        mine = [one for one in products if one.label == label]
        sure = [one.value for one in mine if not wanted or abs(one.memory_gib - wanted) <= margin]
        unsure = [one.value for one in mine if wanted and not one.memory_gib]
        if sure:
            yield [_expression(label, "In", *sure)]
        if unsure and memory_label:
            more, less = (str(round((wanted + sign * margin) * 1024)) for sign in (-1, 1))
            expressions = [_expression(label, "In", *unsure), _expression(memory_label, "Gt", more)]
            yield [*expressions, _expression(memory_label, "Lt", less)]


def _expression(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator, "values": sorted(values)}


def refuse_unmatched(job: Job, terms: list[Manifest], nodes: Sequence[Mapping[str, str]]) -> None:
    """Raises TargetError (REFUSED) if no node can be known to have the job's GPU model: the model is unknown, or the
    nodes, given by their labels, have none of the labels that tell models. If other models are there, an autoscaler may
    add a node."""
    known = {one.label for one in all_products()}
    if terms and (not nodes or any(known & labels.keys() for labels in nodes)):
        return
    gpu = job.resources.gpu
    memory = f" with {size_quantity(gpu.memory_bytes)}" if gpu.memory_bytes else ""
    raise refused(
        f"cannot tell which nodes have GPU model {gpu.model}{memory}; {gpu_labels_text(nodes)}name their label in the "
        f"target: `gpu_models: {{{gpu.model}: {{select: {{LABEL: VALUE}}}}}}`, or allow every node with GPUs: "
        f"`gpu_models: {{{gpu.model}: {{}}}}`"
    )


def gpu_labels_text(nodes: Sequence[Mapping[str, str]]) -> str:
    """The labels that tell the GPUs of nodes: known ones, else those that may tell; empty if there are none."""
    known = {one.label for one in all_products()}
    for tells in (known.__contains__, _MAY_TELL.search):
        found = Counter(f"{key}={value}" for labels in nodes for key, value in labels.items() if tells(key))
        if found:
            listed = ", ".join(f"{text} ({count(number, 'node')})" for text, number in found.most_common(_MOST_LABELS))
            return f"labels of the nodes: {listed}{' and more' if len(found) > _MOST_LABELS else ''}; "
    return ""


def _gpu(job: Job, options: KubernetesOptions) -> GpuModel:
    return options.gpu_models.get(job.resources.gpu.model or "", GpuModel())


def _gpu_labels(job: Job, options: KubernetesOptions) -> tuple[str, dict[str, str]]:
    gpu = job.resources.gpu
    if not gpu.count or gpu.model is None:
        return "", {}
    own = _gpu(job, options)
    if own.select or own.resource or options.gpu_label is None:
        return f"`gpu_models.{gpu.model}.select`", own.select
    value = gpu.model.replace(" ", "-")  # as the device plugins do in their labels
    if not _LABEL_VALUE.fullmatch(value):
        raise refused(
            f"GPU model {gpu.model!r} is not a valid value of the label {options.gpu_label}; set its node labels in "
            f"the target: `gpu_models: {{{gpu.model!r}: {{select: {{...}}}}}}`"
        )
    return f"`gpu_label` for {gpu.model}", {options.gpu_label: value}


def _tpu_labels(job: Job, options: KubernetesOptions) -> dict[str, str]:
    """Raises TargetError (REFUSED) for a type without a label, and for hosts that cannot work together."""
    tpu = job.resources.tpu
    if tpu is None:
        return {}
    known = tpu_labels()
    if tpu.type not in known and not tpu.type.startswith("tpu"):
        raise refused(
            f"unknown TPU type {tpu.type!r}; use {', '.join(known)} or a value of the label {_TPU}-accelerator"
        )
    if job.hosts != tpu.hosts:
        raise refused(f"{count(job.hosts, 'host')} on a TPU with {tpu.hosts}; remove `hosts` from the trial")
    if tpu.hosts > 1 and options.workload != "jobset":  # a plain Job could mix hosts of different slices
        raise refused(f"a TPU with {tpu.hosts} hosts needs a JobSet; set `workload: jobset` in the target")
    return {f"{_TPU}-accelerator": known.get(tpu.type, tpu.type), f"{_TPU}-topology": tpu.topology}


QUEUE = "kueue.x-k8s.io/queue-name"  # label of Kueue


def marked(made: Manifest, options: KubernetesOptions) -> Manifest:
    """Adds the target's labels and annotations to an object and its pod templates; Seatrial's own take precedence.
    Changes `made`."""
    if options.labels or options.annotations:
        for metadata in (made["metadata"], *pod_metadata(made.get("spec"))):
            for field, added in (("labels", options.labels), ("annotations", options.annotations)):
                if added:
                    metadata[field] = {**added, **(metadata.get(field) or {})}
    return made
