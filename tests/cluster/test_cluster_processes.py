"""Processes of a cluster are found by their mark, and no other process is ever touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import processes
from cluster.errors import PartFailed
from cluster.processes import Process


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path.resolve()
    processes.stop_all(tmp_path.resolve())


def test_a_part_outlives_who_started_it_and_is_found_by_anybody(folder: Path) -> None:
    pid = processes.start(folder, "one", ["sleep", "300"], folder / "log")
    looked = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from cluster import processes; print(processes.parts(processes.Path({str(folder)!r})))",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert looked.stdout.strip() == f"{{'one': {pid}}}", looked.stderr
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/", "it keeps no folder of the caller busy"


def test_what_a_part_starts_is_the_clusters_but_not_the_part(folder: Path) -> None:
    pid = processes.start(folder, "one", ["sh", "-c", "sleep 300 & wait"], folder / "log")
    while len(found := processes.find(folder)) < 2:
        time.sleep(0.01)
    assert [one.pid for one in found if one.leader] == [pid]
    os.kill(pid, signal.SIGKILL)
    while "one" in processes.parts(folder):
        time.sleep(0.01)
    assert [one.part for one in processes.find(folder)] == ["one"], "the child still is the cluster's"
    processes.stop_all(folder)
    assert processes.find(folder) == []


def test_a_pid_that_became_another_process_is_not_killed(folder: Path) -> None:
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        processes.stop([Process(stranger.pid, "one", True, stranger.pid)], folder)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_cluster_whose_path_begins_alike_is_another(folder: Path) -> None:
    other = Path(f"{folder}-2")
    processes.start(other, "one", ["sleep", "300"], folder / "log")
    try:
        assert processes.find(folder) == []
        processes.stop_all(folder)
        assert list(processes.parts(other)) == ["one"]
    finally:
        processes.stop_all(other)


def test_one_that_minds_no_signal_is_killed_after_its_time(folder: Path) -> None:
    processes.start(folder, "one", ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], folder / "log")
    processes.stop(processes.find(folder), folder, grace_s=0.3)
    processes.stop_all(folder)
    assert processes.find(folder) == []


def test_one_that_does_not_start_is_told_with_its_log(folder: Path) -> None:
    with pytest.raises(PartFailed, match="no-such-program"):
        processes.start(folder, "one", ["no-such-program"], folder / "log")


def test_proxies_and_secrets_of_the_caller_stay_outside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    monkeypatch.setenv("SOME_TOKEN", "hush")
    pid = processes.start(folder, "one", ["sleep", "300"], folder / "log")
    environ = Path(f"/proc/{pid}/environ").read_text()
    assert "proxy.example" not in environ
    assert "hush" not in environ


def test_one_that_may_watch_no_more_files_is_told_with_what_to_do() -> None:
    assert "sysctl fs.inotify" in str(PartFailed("kubelet", "ended", ["E1116 inotify_init: too many open files"]))
    assert PartFailed("kubelet", "ended", ["something else"]).do == ""
