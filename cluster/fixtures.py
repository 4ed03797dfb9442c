"""Fixtures of pytest for whoever tests on a cluster: one of each sort for a whole test run, shared by its workers.

In a conftest: `from cluster.fixtures import cluster, real_cluster`. The last worker takes it down; what a killed test
run left is taken down by the next one. Where this machine cannot have one, the tests are skipped with the reason."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import pytest

from cluster.cluster import Cluster, down, up
from cluster.errors import Unavailable
from cluster.places import lock_file

FAKE_NODES, GPUS = 20, 8


class Wanted(TypedDict, total=False):
    fake_nodes: int
    gpus: int
    kubelet: bool


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane with 20 fake nodes of 8 GPUs, without taints. Label what you make: others use it too."""
    with shared("fake", Wanted(fake_nodes=FAKE_NODES, gpus=GPUS)) as made:
        yield made


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    """One with a real node, whose pods are processes of this machine; images as in cluster.image."""
    with shared("real", Wanted(kubelet=True)) as made:
        yield made


@contextmanager
def shared(sort: str, wanted: Wanted) -> Iterator[Cluster]:
    place = Path(tempfile.gettempdir()) / f"seatrial-test-clusters-{os.getuid()}"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    name = f"{sort}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    with lock_file(place / "lock"):
        _take_down_unused(place)
        users = os.open(place / f"{name}.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)
    try:
        try:
            made = up(name, place=place / "clusters", **wanted)
        except Unavailable as error:
            pytest.skip(f"no cluster here: {error.what}")
        yield made
    finally:
        with lock_file(place / "lock"):
            os.close(users)
            _take_down_unused(place)


def _take_down_unused(place: Path) -> None:
    """A worker that was killed no longer holds its lock, so no count can be wrong."""
    for path in place.glob("*.users"):
        users = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            down(path.stem, place=place / "clusters")
            path.unlink()
        finally:
            os.close(users)
