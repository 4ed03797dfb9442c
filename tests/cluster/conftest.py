"""Clusters for these tests, and what is left of them."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.build import KUBERNETES, built
from cluster.cluster import Cluster, down, up
from cluster.errors import Unavailable
from cluster.fixtures import addons_cluster, build_cluster, cluster, real_cluster

__all__ = ["addons_cluster", "cluster", "real_cluster"]


@pytest.fixture
def kubernetes() -> Path:
    """The built program, for tests that bring up clusters of their own."""
    if lack := build_cluster():
        pytest.skip(f"no cluster here: {lack}")
    return built(KUBERNETES)


@pytest.fixture
def place(tmp_path: Path, kubernetes: Path) -> Iterator[Path]:
    """Where a test brings up clusters of its own; all of them are down in the end."""
    where = tmp_path / "clusters"
    yield where
    for folder in where.glob("*") if where.is_dir() else []:
        down(folder.name, place=where)


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def bring_up(place: Path) -> Callable[..., Cluster]:
    def make(name: str, **options: object) -> Cluster:
        try:
            return up(name, place=place, **options)  # type: ignore[arg-type]
        except Unavailable as error:
            pytest.skip(f"no cluster here: {error.what}")

    return make


@pytest.fixture
def small_disk(tmp_path: Path, root: None) -> Iterator[Path]:
    """A file system of its own, to be filled."""
    where = tmp_path / "disk"
    where.mkdir()
    if os.system(f"mount -t tmpfs -o size=600m,mode=755 tmpfs '{where}'") != 0:
        pytest.skip("may not mount here")
    yield where
    for folder in where.glob("clusters/*"):
        down(folder.name, place=where / "clusters")
    os.system(f"umount '{where}'")
