"""A world with a scale trial, in a namespace of its own on the cluster of the module."""

from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster
from kinds.scale.scale_world import ScaleWorld, scale_world
from world import World


@pytest.fixture
def scale(world: World, cluster: Cluster) -> Iterator[ScaleWorld]:
    with scale_world(world, cluster) as made:
        yield made
