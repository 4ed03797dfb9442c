"""Clusters without a real node: what they are, that several live side by side, and that nothing is left of them."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from leftovers import left_of
from sockets import LOOPBACK, listening

from cluster.bring_up import wanted_parts
from cluster.cluster import Cluster, clusters, down, up
from cluster.errors import ClusterError, Different, PartFailed, PortTaken
from cluster.folder import Folder
from world import EVERY

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]


def _command(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster", *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def test_fake_nodes_have_gpus_and_pods_on_them_run(cluster: Cluster) -> None:
    listed = json.loads(cluster.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    nodes = [node for node in listed if node["metadata"]["name"].startswith("fake-")]  # a test may have added its own
    assert len(nodes) == 20
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"8"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "gpu-"},
        "spec": {
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
        },
    }
    made = cluster.request("POST", "/api/v1/namespaces/default/pods", pod)["metadata"]["name"]
    cluster.kubectl("wait", f"pod/{made}", "--for=condition=Ready", "--timeout=600s")
    cluster.kubectl("delete", "pod", made)


def test_rights_are_given_by_rbac_alone(cluster: Cluster) -> None:
    said = cluster.kubectl(
        "auth", "can-i", "list", "secrets", "--as=system:serviceaccount:default:default", check=False
    )
    assert said.stdout.strip() == "no"
    token = cluster.kubectl("create", "token", "default").stdout.strip()
    refused = cluster.kubectl(
        "get", "secrets", f"--token={token}", f"--kubeconfig={_without_user(cluster)}", check=False
    )
    assert "Forbidden" in refused.stderr
    nobody = cluster.kubectl("get", "secrets", f"--kubeconfig={_without_user(cluster)}", "--token=x", check=False)
    assert "Unauthorized" in nobody.stderr


def _without_user(cluster: Cluster) -> Path:
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {}}]
    path = cluster.folder / "no-user"
    path.write_text(json.dumps(config))
    return path


def test_every_request_is_in_the_audit_log_with_its_time(cluster: Cluster) -> None:
    name = f"audited-{time.time_ns()}"
    cluster.kubectl("create", "configmap", name)
    until = time.monotonic() + 600
    while time.monotonic() < until:
        lines = [json.loads(line) for line in cluster.audit_log.read_text().splitlines() if name in line]
        if found := [line for line in lines if line["verb"] == "create"]:
            break
    assert found[0]["user"]["username"] == "admin"
    assert found[0]["requestReceivedTimestamp"].count(".") == 1


def test_it_listens_on_loopback_only_and_its_files_are_the_users_alone(cluster: Cluster) -> None:
    assert cluster.url.startswith("https://127.0.0.1:")
    assert listening(cluster.parts().values()) == {LOOPBACK}
    assert cluster.folder.stat().st_mode & 0o077 == 0
    assert cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_up_again_finds_it_and_other_wishes_are_refused(cluster: Cluster) -> None:
    before = cluster.parts()
    place = cluster.folder.parent
    assert up(cluster.name, place=place) == cluster
    assert up(cluster.name, fake_nodes=20, gpus=8, place=place) == cluster
    assert cluster.parts() == before
    for nodes, gpus, port in ((5, 8, 0), (20, 4, 0), (0, 0, 1025)):
        with pytest.raises(Different, match="first: python -m cluster down"):
            up(cluster.name, fake_nodes=nodes, gpus=gpus, port=port, place=place)
    assert [one.name for one in clusters(place) if one == cluster] == [cluster.name]


def test_two_come_up_at_once_and_do_not_know_each_other(place: Path) -> None:
    both = {name: _start(place, name) for name in ("one", "two")}
    for name, process in both.items():
        out, error = process.communicate(timeout=600)
        assert process.returncode == 0, error
        assert out == f"{place.resolve()}/{name}/kubeconfig\n"
    one, two = clusters(place)
    assert not set(Folder(one.folder).read().ports.values()) & set(Folder(two.folder).read().ports.values())  # type: ignore[union-attr]
    one.kubectl("create", "namespace", "only-one")
    assert "only-one" not in two.kubectl("get", "namespaces").stdout
    refused = two.kubectl("get", "nodes", f"--kubeconfig={_other_server(one, two)}", check=False)
    assert refused.returncode != 0, "each trusts its own authority only"
    listed = json.loads(_command("list", "--json", "--dir", place).stdout)
    assert [(entry["name"], entry["ready"]) for entry in listed] == [("one", True), ("two", True)]
    _proves_data_and_rights_stay_after_a_crash(one)
    for cluster in (one, two):
        assert _command("down", "--dir", place, cluster.name).stdout == f"{cluster.name} is down\n"
        assert left_of(cluster.folder) == []
    again = _command("down", "--dir", place, "one")
    assert (again.returncode, again.stdout) == (0, "there is no cluster one\n")


def _start(place: Path, name: str, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cluster", "up", "--dir", str(place), name, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _other_server(one: Cluster, two: Cluster) -> Path:
    config = json.loads(one.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = two.url
    path = one.folder / "other-server"
    path.write_text(json.dumps(config))
    return path


def _proves_data_and_rights_stay_after_a_crash(cluster: Cluster) -> None:
    for part in ("apiserver", "etcd"):
        cluster.kill(part)
    assert {"apiserver", "etcd"} <= set(cluster.missing())
    listed = _command("list", "--dir", cluster.folder.parent)
    assert "damaged, without" in listed.stdout
    back = up(cluster.name, place=cluster.folder.parent)
    assert back == cluster
    assert back.ready()
    assert "only-one" in cluster.kubectl("get", "namespaces").stdout


def test_a_port_that_is_taken_is_named_and_nothing_is_left(place: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            up("busy", port=port, place=place)
    assert left_of(place / "busy") == []


def test_a_part_that_cannot_start_is_told_with_its_last_lines_and_nothing_is_left(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.control_plane.SERVICE_NETWORK", "not a network")
    # On a busy machine it has ended before it was seen to run.
    with pytest.raises(PartFailed, match=r"apiserver (ended|did not start)") as failed:
        up("broken", place=place)
    assert "not a valid cidr" in str(failed.value)
    assert left_of(place / "broken") == []


def test_a_disk_that_is_full_is_told_before_and_during(
    small_disk: Path, kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small_disk / "clusters"
    place.mkdir()
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 560 << 20)
    with pytest.raises(ClusterError, match="MiB of disk"):
        up("full", place=place)
    monkeypatch.setattr("cluster.bring_up.NEEDS_BYTES", 0)
    with pytest.raises((ClusterError, OSError), match=r"(?i)no space left"):
        up("full", place=place)
    assert left_of(place / "full") == []


@pytest.mark.parametrize("seed", range(40 if EVERY else 3))
def test_killed_at_any_instant_and_taken_down_nothing_is_left(place: Path, seed: int) -> None:
    instants = random.Random(seed)
    process = _start(place, "killed")
    time.sleep(instants.uniform(0.1, 8.0))
    process.send_signal(signal.SIGKILL if seed % 3 else signal.SIGTERM)
    process.communicate(timeout=600)
    if seed % 3 == 0 and process.returncode == 130:
        assert left_of(place / "killed") == [], "asked to end, it cleans up by itself"
    down("killed", place=place)
    assert left_of(place / "killed") == []


def test_one_that_was_killed_half_way_comes_up_in_the_next_try(place: Path) -> None:
    process = _start(place, "again")
    while not (place / "again" / "logs" / "apiserver.log").exists() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    made = up("again", place=place)
    assert made.ready()
    shutil.rmtree(made.folder)  # as somebody may do who does not know better
    assert down("again", place=place), "found without its folder"
    assert left_of(made.folder) == []


def test_what_is_mounted_in_the_folder_is_not_deleted_with_it(place: Path, root: None) -> None:
    folder = place.resolve() / "mounted"
    inside = folder / "precious"
    inside.mkdir(parents=True)
    if os.system(f"mount -t tmpfs tmpfs '{inside}'") != 0:
        pytest.skip("may not mount here")
    try:
        (inside / "file").write_text("keep")
        with pytest.raises(ClusterError, match="umount"):
            down("mounted", place=place)
        assert (inside / "file").read_text() == "keep"
    finally:
        os.system(f"umount '{inside}'")


def test_missing_parts_are_known_by_what_was_asked_for(bring_up: Callable[..., Cluster]) -> None:
    with bring_up("few") as few:
        assert sorted(few.parts()) == sorted(wanted_parts(few.options))
        grown = up("few", fake_nodes=3, gpus=2, place=few.folder.parent)
        assert "kwok" in grown.parts()
        assert len(grown.kubectl("get", "nodes", "-o", "name").stdout.split()) == 3
        _proves_that_a_fake_node_can_be_made_to_fail(grown)
        grown.restart("scheduler")
        assert grown.ready()
        with pytest.raises(ClusterError, match="no real node"):
            grown.connect_node(False)
        with pytest.raises(ClusterError, match="no part 'kubelet'"):
            grown.kill("kubelet")
    assert left_of(few.folder) == []
    with contextlib.suppress(ClusterError):
        few.kubectl("get", "nodes")
        pytest.fail("a cluster that is down answers")


def _proves_that_a_fake_node_can_be_made_to_fail(cluster: Cluster) -> None:
    """Nobody says that it is ready again: the node controller takes it as it would a real one."""
    gone = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}}
    cluster.kubectl("patch", "node", "fake-0", "--subresource=status", "--patch", json.dumps(gone))
    until = time.monotonic() + 600
    while "node.kubernetes.io/not-ready" not in cluster.kubectl("get", "node", "fake-0", "-o", "json").stdout:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert "NotReady" in cluster.kubectl("get", "nodes").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["up", "Bad_Name"], "cannot be the name"),
        (["up", "x", "--gpus", "8"], "--fake-nodes"),
        (["up", "x", "--fake-nodes", "-1"], "fake nodes"),
        (["up", "x", "--port", "80"], "1024"),
        (["down"], "no cluster was named"),
        (["kubectl", "none", "get", "nodes"], "there is no cluster none"),
        (["load", "none", "image.tar"], "there is no cluster none"),
    ],
)
def test_wrong_words_are_answered_with_what_to_do(args: list[str], says: str, tmp_path: Path) -> None:
    said = _command(args[0], "--dir", tmp_path, *args[1:])
    assert said.returncode == 1
    assert says in said.stderr
    assert "Traceback" not in said.stderr
    assert list(tmp_path.iterdir()) == []
