"""Names, folders, locks and ports of clusters."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cluster import ports
from cluster.cluster import clusters, down
from cluster.errors import ClusterError, PortTaken
from cluster.folder import Folder, Options, Record
from cluster.places import cluster_folder, lock_file, lock_folder


@pytest.mark.parametrize("name", ["", "..", "a/b", "Big", "-a", "a-", "a" * 41, "a b", "a\n"])
def test_a_name_that_could_not_be_a_folder_or_a_context_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot be the name"):
        cluster_folder(name, tmp_path)


def test_one_at_a_time_works_on_a_cluster(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with lock_folder(tmp_path / "a", 600, make=True):
            order.append("second")

    with lock_folder(tmp_path / "a", 600, make=True):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_who_waited_for_a_cluster_that_was_removed_gets_the_new_folder(tmp_path: Path) -> None:
    got = []

    def second() -> None:
        with lock_folder(tmp_path / "a", 600, make=True):
            got.append((tmp_path / "a").stat().st_ino)

    with lock_folder(tmp_path / "a", 600, make=True):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        (tmp_path / "a").rmdir()
    thread.join()
    assert got == [(tmp_path / "a").stat().st_ino]


def test_who_waits_for_a_lock_of_another_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with lock_file(tmp_path / "lock", lambda: said.append("free")):
        waiting = threading.Event()

        def wait() -> None:
            with lock_file(tmp_path / "lock", waiting.set):
                said.append("taken")

        other = threading.Thread(target=wait)
        other.start()
        assert waiting.wait(600)
        assert said == []
    other.join(600)
    assert said == ["taken"]


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from cluster.places import lock_folder\n"
        "with lock_folder(Path(sys.argv[1]), 1, True): print('held', flush=True); time.sleep(3600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "a"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ClusterError, match="another process"), lock_folder(tmp_path / "a", 0.1, make=False):
            pass
        holder.kill()
    with lock_folder(tmp_path / "a", 600, make=False) as there:
        assert there


def test_ports_of_a_cluster_are_free_and_nobody_elses(tmp_path: Path) -> None:
    first = ports.choose(tmp_path, "127.0.0.1")
    assert len(set(first.values())) == len(ports.NAMES)
    other = Folder(tmp_path / "other")
    other.make()
    other.write(Record(Options(), first, "", {}))
    for _ in range(20):
        assert not set(ports.choose(tmp_path, "127.0.0.1").values()) & set(first.values())
    with pytest.raises(PortTaken):
        ports.choose(tmp_path, "127.0.0.1", first["api"])


def test_a_port_that_a_program_listens_on_is_taken(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("0.0.0.0", 0))
        busy.listen()
        with pytest.raises(PortTaken, match=r"--port"):
            ports.choose(tmp_path, "127.0.0.1", busy.getsockname()[1])


def test_what_is_written_of_a_cluster_can_be_read_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a")
    folder.make()
    assert folder.read() is None
    record = Record(Options(3, 8, True, 0), {"api": 20001}, "10.200.1.0/24", {"kubernetes": "/k"})
    folder.write(record)
    assert folder.read() == record


@pytest.mark.parametrize(
    "text", ["", "{}", "not json", '{"version": 99}', '{"version": 1, "options": {"nodes": 1}}', "[]"]
)
def test_what_cannot_be_understood_is_no_trap(text: str, tmp_path: Path) -> None:
    """It is not taken for nothing, others are not disturbed, and it can be taken down."""
    folder = Folder(tmp_path / "a")
    folder.make()
    (folder.path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"python -m cluster down --dir \S+ a"):
        folder.read()
    ports.choose(tmp_path, "127.0.0.1")
    assert clusters(tmp_path) == []
    assert down("a", place=tmp_path)
    assert not folder.path.exists()
