"""Fixtures of pytest for whoever tests on a cluster: one of each sort for a whole test run, shared by its workers.

In a conftest: `from cluster.fixtures import cluster, real_cluster, addons_cluster`. The last worker takes it down; what
a killed test run left is taken down by the next one. Where this machine cannot have one, or what it is made of does not
build, the tests are skipped with the reason."""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest

from cluster import build
from cluster.addons import ADDONS, had
from cluster.cluster import Cluster, down, up
from cluster.errors import BuildFailed, Unavailable
from cluster.places import lock_file

FAKE_NODES, GPUS = 20, 8
NODES_WITH_ADDONS = 5
SILENT_S = 120
QUEUE_WITHIN_S = 300.0
_KUEUE = "kueue.x-k8s.io/v1beta2"
_PROGRAMS = (build.KUBERNETES, build.PAUSE, build.KWOK)
_failures: dict[str, str] = {}
"""Why a program or addon cannot be had, empty when it can: what failed to build once is not built for every test."""


class Wanted(TypedDict, total=False):
    fake_nodes: int
    gpus: int
    kubelet: bool
    silent_s: int
    addons: tuple[str, ...]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane with 20 fake nodes of 8 GPUs, without taints. Label what you make: others use it too."""
    with shared("fake", Wanted(fake_nodes=FAKE_NODES, gpus=GPUS)) as made:
        yield made


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    """One with a real node, whose pods are processes of this machine; images as in cluster.image. So many tests at once
    may keep it from answering for a while: it is not taken for lost then."""
    with shared("real", Wanted(kubelet=True, silent_s=SILENT_S)) as made:
        yield made


@pytest.fixture(scope="session")
def addons_cluster() -> Iterator[Cluster]:
    """A control plane with 5 fake nodes of 8 GPUs, and of JobSet, Kueue and the training operator those that this
    machine can have: say `needs_addon(NAME)` first. What it lacks is built at the first use, which takes minutes."""
    addons = tuple(name for name in ADDONS if not why_no_addon(name))
    with shared("addons", Wanted(fake_nodes=NODES_WITH_ADDONS, gpus=GPUS, addons=addons)) as made:
        yield made


def needs_addon(name: str) -> None:
    """Skips the test where this machine cannot have that addon."""
    if lack := why_no_addon(name):
        pytest.skip(f"no {name} here: {lack}")


@contextmanager
def queue(cluster: Cluster, namespace: str, gpus: int) -> Iterator[str]:
    """The name of a LocalQueue of Kueue in that namespace, with so many GPUs and of the rest as much as one likes."""
    flavor, whole = f"{namespace}-flavor", f"{namespace}-queue"
    room = {"cpu": "1000", "memory": "100Ti", "nvidia.com/gpu": str(gpus)}
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in room.items()]
    group = {"coveredResources": list(room), "flavors": [{"name": flavor, "resources": quotas}]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    made = {
        "resourceflavors": _object("ResourceFlavor", flavor, {}),
        "clusterqueues": _object("ClusterQueue", whole, {"namespaceSelector": selector, "resourceGroups": [group]}),
        f"namespaces/{namespace}/localqueues": _object("LocalQueue", "trials", {"clusterQueue": whole}),
    }
    for where, body in made.items():
        cluster.request("POST", f"/apis/{_KUEUE}/{where}", body)
    try:
        _await_active(cluster, f"/apis/{_KUEUE}/namespaces/{namespace}/localqueues/trials")
        yield "trials"
    finally:
        for where, body in reversed(made.items()):
            cluster.request("DELETE", f"/apis/{_KUEUE}/{where}/{body['metadata']['name']}")


def _await_active(cluster: Cluster, queue: str) -> None:
    """What comes before Kueue knows a queue is told that there is none."""
    until = time.monotonic() + QUEUE_WITHIN_S
    while True:
        conditions = cluster.request("GET", queue).get("status", {}).get("conditions") or []
        if any(one["type"] == "Active" and one["status"] == "True" for one in conditions):
            return
        assert time.monotonic() < until, f"{queue} is not active after {QUEUE_WITHIN_S:.0f} s: {conditions}"
        time.sleep(0.05)


def _object(kind: str, name: str, spec: dict[str, object]) -> dict[str, Any]:
    return {"apiVersion": _KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}


def build_cluster(say: Callable[[str], None] = build.quiet) -> str:
    """Builds what clusters are made of, if it is not there. Gives why that cannot be had; empty when it can."""
    if "cluster" not in _failures:
        _failures["cluster"] = _why_not(lambda: [build.built(one, say) for one in _PROGRAMS], say)
    return _failures["cluster"]


def build_addons(say: Callable[[str], None] = build.quiet) -> None:
    for name in ADDONS:
        why_no_addon(name, say)


def why_no_addon(name: str, say: Callable[[str], None] = build.quiet) -> str:
    """Empty when it can be had; it is built if it is not there."""
    if name not in _failures:
        lack = build_cluster(say)
        _failures[name] = lack or _why_not(lambda: had(ADDONS[name], build.built(build.KUBERNETES), say), say)
    return _failures[name]


def _why_not(make: Callable[[], object], say: Callable[[str], None]) -> str:
    try:
        make()
    except (BuildFailed, Unavailable) as error:
        say(f"tests are skipped: {error}")
        return error.what
    return ""


@contextmanager
def shared(sort: str, wanted: Wanted) -> Iterator[Cluster]:
    if lack := build_cluster():
        pytest.skip(f"no cluster here: {lack}")
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
