"""Fixtures of the client's tests: a stub that can be told to misbehave, and real clusters for the truth."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_stub import Stub, serving

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.fixtures import cluster, real_cluster

__all__ = ["cluster", "real_cluster"]


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with serving(Stub()) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of those on a cluster may have to build Kubernetes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.timeout(1800))
