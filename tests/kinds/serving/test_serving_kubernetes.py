"""llama.cpp in a pod, asked by a driver on this machine through the API server: its answers are right, and when the
driver is killed or the pod deleted no answer is lost, none is asked for again, and nothing is left in either place."""

import importlib.util
import random
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
import seatrial_image
from certificates import authority, certificate
from llama import CASES, SERVER, model
from many_cases import (
    AT_A_TIME,
    DRIVER,
    VICTIMS,
    answered_so_far,
    assert_all_accounted_for,
    assert_all_answered,
    kill,
    write_cases,
)

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from engine.asking import WAIT_S, until
from engine.cluster_world import SHARED, ClusterWorld, cluster_world
from seatrial.job import Verdict
from targets.kubernetes.on_cluster import namespace_of
from world import EVERY, World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]
FEW = 30
SHARES = 23 if EVERY else 1  # of all kills at failpoints: two or three minutes each
TLS_FRONT = Path(__file__).with_name("tls_front.py")
AT_ONCE = 3  # most of the time is spent waiting for the cluster


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        spec = importlib.util.find_spec("xllamacpp")
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, made.shared / "xllamacpp")
        copy_libraries(next(Path(spec.origin).parent.glob("*.so")), made.shared / "lib")
        shutil.copy(SERVER / "serve.py", made.shared)
        shutil.copy(model("f32"), made.shared)
        yield made


def copy_libraries(of: Path, into: Path) -> None:
    """Those that the image, which has only what Python needs, may not have."""
    into.mkdir()
    listed = subprocess.run(["ldd", str(of)], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name, _, path = line.strip().partition(" => ")
        if path.startswith("/") and not name.startswith("libc.so"):
            shutil.copy(path.split(" ")[0], into / name)


LLAMA = f"python3 {SHARED}/serve.py {SHARED}/tiny-f32.gguf"
PLAIN = f'command: "exec {LLAMA}", ready: {{http: /health, within: 5m}}'


def trials(far: ClusterWorld, cases: str, fields: str = "", server: str = PLAIN) -> None:
    far.trials(f"""
  tiny:
    kind: serving
    model: tiny
    retries: 0
    matrix: {{runtime: python, machine: one}}
    env: {{PYTHONPATH: {SHARED}, LD_LIBRARY_PATH: {SHARED}/lib, HOST: 0.0.0.0}}
    server: {{{server}}}
    cases: [{cases}]
    concurrency: {AT_A_TIME}
    stream: false
    batching: false
    {fields}
""")


def many(far: ClusterWorld, count: int) -> None:
    trials(far, write_cases(far, count))


def test_a_server_in_a_pod_answers_as_it_does_here(far: ClusterWorld) -> None:
    trials(far, str(CASES))
    far.seatrial("run", "suite.yaml", check=0)
    (cell,) = far.results().cells
    assert cell.attempts[0].parts["server"].place.target == "cluster"
    assert sum(finding.step.startswith("case ") for finding in cell.findings) == 18
    assert far.left() == []
    far.gone()


def delete_pods(far: ClusterWorld) -> bool:
    """At once, as when their node goes; whether there were any."""
    return bool(far.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false").strip())


@pytest.mark.parametrize("seed", range(30 if EVERY else 3))  # a third for each of them
def test_a_kill_of_seatrial_driver_or_server_at_a_random_instant(far: ClusterWorld, seed: int) -> None:
    count, victim = 300, VICTIMS[seed % 3]
    instant = random.Random(seed).randrange(count)
    many(far, count)
    process = far.start("run", "suite.yaml")
    until(lambda: sum(answered_so_far(far)) >= instant or process.poll() is not None)
    if victim == "seatrial":
        process.kill()
        process.communicate()
        far.seatrial("attach", "last", check=0)
        assert_all_answered(far, count, kills=0)
    elif victim == "driver":
        killed = kill(far, DRIVER)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        assert_all_answered(far, count, kills=int(killed))
    else:
        delete_pods(far)
        process.communicate(timeout=WAIT_S)
        assert_all_accounted_for(far, count)
        (cell,) = far.results().cells
        assert cell.verdict in (Verdict.INFRA, Verdict.PASSED), cell.why
    far.gone()


@pytest.mark.parametrize("share", range(SHARES))
def test_seatrial_killed_at_each_point_alone_or_with_its_driver_or_server(far: ClusterWorld, share: int) -> None:
    many(far, FEW)
    log = far.folder / "points"
    far.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    names = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    running = len(names) - names[::-1].index("submit done")  # the driver is at work, and nobody has written that down
    removed = names.index("before judged") + 1  # all jobs are, and the object of the run is not
    chosen = [*((running, victim) for victim in VICTIMS), (removed, "seatrial")]
    with ThreadPoolExecutor(AT_ONCE) as executor:
        every = list(product(range(1, len(names) + 1), VICTIMS))[share::SHARES]
        for done in [executor.submit(kill_at, far, *one) for one in (every if EVERY else chosen)]:
            done.result()


def kill_at(far: ClusterWorld, point: int, victim: str) -> None:
    try:
        kill_and_attach(far, point, victim)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        error.add_note(f"at point {point} of Seatrial, with {victim}")
        raise


def kill_and_attach(far: ClusterWorld, point: int, victim: str) -> None:
    """In a folder and a namespace of its own: the points do not disturb each other."""
    folder = far.folder / f"point-{point}-{victim}"
    folder.mkdir()
    with namespace_of(far.cluster) as namespace:
        own = cluster_world(World(folder, {**far.env, "SEATRIAL_STATE": str(folder / "state")}), far.cluster, namespace)
        own.shared.rmdir()
        own.shared.symlink_to(far.shared)
        many(own, FEW)
        killed = own.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(point))
        assert killed.returncode == -9, f"{point}: {killed.stdout}{killed.stderr}"
        other = {"seatrial": lambda: False, "driver": lambda: kill(own, DRIVER), "server": lambda: delete_pods(own)}
        died = other[victim]()
        attached = own.seatrial("attach", "last")
        said = f"{point}, {victim}: exit {attached.returncode}\n{attached.stdout}{attached.stderr}"
        if victim == "server" and died:
            assert attached.returncode in (0, 3), said
            assert_all_accounted_for(own, FEW)
        else:
            assert attached.returncode == 0, said
            assert_all_answered(own, FEW, kills=int(died))
        own.gone()


def mutual_tls(far: ClusterWorld) -> str:
    """A server that wants a certificate of its clients, and the driver's own."""
    authority(far.folder)
    certificate(far.folder, "client")
    for path in (*certificate(far.folder, "server", "llm.example"), far.folder / "ca.pem", TLS_FRONT):
        shutil.copy(path, far.shared)
        (far.shared / path.name).chmod(0o644)
    front = f"exec python3 {SHARED}/tls_front.py 9000 {SHARED}/server.pem {SHARED}/server.key {SHARED}/ca.pem"
    tls = "{ca: ca.pem, cert: client.pem, key: client.key, name: llm.example}"
    return f'command: "SEATRIAL_PORT=9000 {LLAMA} & {front}", tls: {tls}'


def test_a_driver_beside_the_server_and_one_here_speak_mutual_tls_and_report_latency(
    far: ClusterWorld,
) -> None:
    far.cluster.load(seatrial_image.archive())
    server = mutual_tls(far)
    load = "{arrivals: {rate: 20/s}, requests: 20, lag: 1h, bounds: {ttft.p99: 1h, e2e.p50: 0.0001ms}}"
    found = {}
    for place in ("here", "cluster"):
        client = f"client: {{image: {seatrial_image.IMAGE}, memory: 512Mi}}" if place == "cluster" else ""
        trials(far, str(CASES), f"load: {load}\n    {client}", server)
        far.seatrial("run", "suite.yaml", check=1)
        (cell,) = far.results().cells
        assert cell.attempts[0].parts["driver"].place.target == place
        assert sum(finding.step.startswith("case ") for finding in cell.findings if finding.verdict.good) == 18
        by_check = {finding.check: finding for finding in cell.findings if finding.step == "load"}
        found[place] = by_check["way to the server"]
        assert 0 < found[place].data["adds_s"] <= found[place].data["adds_p99_s"]
        near = by_check["bound e2e.p50"]
        assert (near.verdict, near.class_) == (Verdict.INVALID, "way")
        assert "more than the bound 0.0001ms" in near.message
        far.gone()
    assert found["here"].message.startswith("port-forward through the API server: adds at least ")
    assert found["cluster"].message.startswith("straight, on target cluster: adds at least ")
