"""A cluster that has Run:ai's custom resources, and an operator for a namespace of them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from cluster.cluster import Cluster
from kinds.scale.runai_operator import READY
from targets.kubernetes.on_cluster import namespace_of

DEFINITIONS = Path(__file__).parent / "runai" / "definitions.yaml"


def install(cluster: Cluster) -> None:
    """What is there already stays: it may be the real one."""
    for definition in yaml.safe_load_all(DEFINITIONS.read_text()):
        name = definition["metadata"]["name"]
        cluster.kubectl("create", "-f", "-", input=yaml.safe_dump(definition), check=False)
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=600s")


@contextmanager
def project_of(cluster: Cluster) -> Iterator[str]:
    """The name of a project whose namespace, `runai-PROJECT`, has an operator at work."""
    install(cluster)
    with namespace_of(cluster, prefix="runai-project") as namespace:
        operator = [sys.executable, "-m", "kinds.scale.runai_operator", str(cluster.kubeconfig), namespace]
        process = subprocess.Popen(
            operator, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == READY
            yield namespace.removeprefix("runai-")
        finally:
            process.communicate(timeout=600)
