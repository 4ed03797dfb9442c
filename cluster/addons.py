"""Controllers that a cluster can have beside its own: which there are, and how they are had from their Go modules."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cluster.build import HERE, Program, built, quiet, source_folder
from cluster.errors import ClusterError
from cluster.folder import write_whole
from cluster.places import cache_place, lock_file

MANIFESTS = "manifests.json"


@dataclass(frozen=True)
class Addon:
    name: str
    source: str
    """The Go module that has its code and its manifests."""
    manifests: str
    """The folder in that module from which its users install it, by kustomize."""
    account: tuple[str, str]
    """Namespace and name of the service account that those manifests give its rights to."""
    minds: tuple[str, ...]
    """Which resources (as `plural.group`) it defines or is asked about here; the rest of its manifests is left out."""
    wrong: tuple[str, dict[str, Any]]
    """An object, and where it is posted, that its webhook refuses and nobody else: refused, so the webhook is asked."""
    flags: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        return Program(self.name, HERE / self.name, self.source)


def _wrong(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "wrong"}, "spec": spec}


def _pods(container: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container, "image": "none"}]}}


_JOBSET = Addon(
    "jobset",
    "sigs.k8s.io/jobset",
    "config/default",
    ("jobset-system", "jobset-controller-manager"),
    ("jobsets.jobset.x-k8s.io", "pods."),
    (
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        _wrong(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            replicatedJobs=[{"name": "some", "template": {"spec": {"template": _pods("c")}}}],
            successPolicy={"operator": "All", "targetReplicatedJobs": ["others"]},
        ),
    ),
)
_TRAINING_OPERATOR = Addon(
    "training-operator",
    "github.com/kubeflow/training-operator",
    "manifests/overlays/standalone",
    ("kubeflow", "training-operator"),
    ("pytorchjobs.kubeflow.org",),
    (
        "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
        _wrong("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs={"Master": {"template": _pods("not-pytorch")}}),
    ),
    (f"--waiting={HERE / 'training-operator' / 'waiting.yaml'}",),
)
_KUEUE = Addon(
    "kueue",
    "sigs.k8s.io/kueue",
    "config/default",
    ("kueue-system", "kueue-controller-manager"),
    ("*.kueue.x-k8s.io", "jobs.batch", "jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org"),
    (
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        _wrong(
            "kueue.x-k8s.io/v1beta2",
            "ClusterQueue",
            namespaceSelector={"matchExpressions": [{"key": "any", "operator": "Wrong"}]},
        ),
    ),
)
ADDONS = {addon.name: addon for addon in (_JOBSET, _TRAINING_OPERATOR, _KUEUE)}


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Those names, each once and in one order. ClusterError for one that there is not."""
    wanted = set(names)
    for name in sorted(wanted - set(ADDONS)):
        near = get_close_matches(name, ADDONS, 1)
        meant = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(ADDONS)}."
        raise ClusterError(f"there is no addon {name!r}.", meant)
    return tuple(name for name in ADDONS if name in wanted)


def had(addon: Addon, kubernetes: Path, say: Callable[[str], None] = quiet) -> Path:
    """Its program, with its manifests beside it; from the cache, or made now."""
    binary = built(addon.program, say)
    path = binary.with_name(MANIFESTS)
    if not path.exists():
        with lock_file(cache_place() / "lock"):
            folder = source_folder(addon.program, say) / addon.manifests
            write_whole(path, json.dumps(_kustomized(folder, kubernetes)))
    return binary


def manifests(binary: Path) -> list[dict[str, Any]]:
    """Everything that its users install."""
    return list(json.loads(binary.with_name(MANIFESTS).read_bytes()))


def _kustomized(folder: Path, kubernetes: Path) -> list[dict[str, Any]]:
    """Parsed once and kept as JSON: definitions are megabytes of YAML."""
    import yaml

    done = subprocess.run(
        [kubernetes, "kubectl", "kustomize", folder], capture_output=True, env={**os.environ, "KUBECONFIG": os.devnull}
    )
    if done.returncode != 0:
        raise ClusterError(f"kubectl kustomize {folder}: {done.stderr.decode(errors='replace').strip()}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(done.stdout, loader) if document]
