"""Where the Kubernetes target is tested: a namespace of its own on the real node, or on fake ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from on_cluster import RESTRICTED, namespace_of

from cluster.cluster import Cluster
from cluster.fixtures import cluster, real_cluster

__all__ = ["cluster", "real_cluster"]


@pytest.fixture
def namespace(real_cluster: Cluster) -> Iterator[str]:
    """On the real node; only what the restricted standard allows runs in it."""
    with namespace_of(real_cluster, RESTRICTED) as name:
        yield name


@pytest.fixture
def open_namespace(real_cluster: Cluster) -> Iterator[str]:
    """On the real node; pods may mount folders of this machine."""
    with namespace_of(real_cluster) as name:
        yield name


@pytest.fixture
def fake_namespace(cluster: Cluster) -> Iterator[str]:
    with namespace_of(cluster) as name:
        yield name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of those on a cluster may have to build Kubernetes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.timeout(1800))
