"""A world with a scale trial, in a namespace of its own on the cluster of the module."""

from collections.abc import Iterator

import pytest
from scale_world import ScaleWorld

from cluster.cluster import Cluster
from target.kubernetes.on_cluster import namespace_of
from world import World


@pytest.fixture
def scale(world: World, cluster: Cluster) -> Iterator[ScaleWorld]:
    with namespace_of(cluster) as namespace:
        made = ScaleWorld(world.folder, world.env)
        made.cluster, made.namespace = cluster, namespace
        yield made
