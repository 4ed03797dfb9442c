"""The Kubernetes target keeps the contract of every target, on a real node with real processes."""

import sys
from pathlib import Path

import pytest
from on_cluster import IMAGE

from cluster.cluster import Cluster
from seatrial.targets.kubernetes import kind
from targets.contract import Contract, Site

pytestmark = pytest.mark.cluster


@pytest.fixture
def site(real_cluster: Cluster, open_namespace: str, tmp_path: Path) -> Site:
    shared = tmp_path / "shared"
    for folder in (shared, *shared.parents[:3]):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    options = kind.options(
        kubeconfig=real_cluster.kubeconfig,
        namespace=open_namespace,
        image=IMAGE,
        pull="Never",
        volumes=[{"host": str(shared), "at": str(shared), "read_only": False}],
    )
    submitter = Path(__file__).with_name("submitter.py")
    return Site(
        lambda: kind.open("cluster", options),
        shared,
        [sys.executable, str(submitter), str(real_cluster.kubeconfig), open_namespace, str(shared)],
        most_log_bytes=24 << 20,
        long_s=5.0,
        hosts_apart=True,
        watcher_is_marked=True,
    )


class TestKubernetes(Contract):
    pass
