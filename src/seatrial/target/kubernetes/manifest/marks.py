"""Labels and annotations on whatever is made: on objects, and on the pods that they describe."""

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.target.kubernetes.options import KubernetesOptions

QUEUE = "kueue.x-k8s.io/queue-name"  # Kueue's own label


def marked(made: dict[str, Any], options: KubernetesOptions) -> dict[str, Any]:
    """With the target's own labels and annotations; those that Seatrial needs stand over them. Changes `made`."""
    if options.labels or options.annotations:
        for metadata in (made["metadata"], *pod_metadata(made.get("spec"))):
            label(metadata, options.labels, "labels")
            label(metadata, options.annotations, "annotations")
    return made


def label(metadata: dict[str, Any], added: Mapping[str, str], field: str = "labels") -> None:
    """What is there stays."""
    if added:
        metadata[field] = {**added, **(metadata.get(field) or {})}


def pod_metadata(spec: Any) -> Iterator[dict[str, Any]]:
    """Of each pod template, however deep: of a Job in a JobSet, of the replicas of a training job."""
    if isinstance(spec, list):
        for one in spec:
            yield from pod_metadata(one)
    elif isinstance(spec, dict):
        for key, value in spec.items():
            if key == "template" and isinstance(value, dict) and "containers" in (value.get("spec") or {}):
                yield value.setdefault("metadata", {})
            else:
                yield from pod_metadata(value)
