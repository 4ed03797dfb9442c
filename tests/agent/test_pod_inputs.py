"""Inputs come as one archive in parts. They are put into the work folder, and nothing is put anywhere else."""

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from pods import PodProcesses

from seatrial.agent.job_file import JobError
from seatrial.agent.pod.files import unpack

Member = tuple[str, bytes, str]  # type, content, link


def archive(members: Iterable[tuple[str, dict[str, object], bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, fields, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o644
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def parts(folder: Path, data: bytes, size: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, len(data), size)):
        (folder / f"part-{number:04d}").write_bytes(data[start : start + size])
    return folder


def refused(tmp_path: Path, members: Iterable[tuple[str, dict[str, object], bytes]]) -> JobError:
    (tmp_path / "work").mkdir(exist_ok=True)
    with pytest.raises(JobError) as raised:
        unpack(str(parts(tmp_path / "inputs", archive(members))), str(tmp_path / "work"))
    return raised.value


def test_files_folders_links_and_modes_are_there(pod: PodProcesses) -> None:
    members: list[tuple[str, dict[str, object], bytes]] = [
        ("./data", {"type": tarfile.DIRTYPE, "mode": 0o555}, b""),
        ("./data/big", {}, os.urandom(50_000)),
        ("run.sh", {"mode": 0o4755}, b"#!/bin/sh\necho ran\n"),
        ("deep/er/file", {}, b"deep"),
        ("link", {"type": tarfile.SYMTYPE, "linkname": "data/big"}, b""),
        ("same", {"type": tarfile.LNKTYPE, "linkname": "run.sh"}, b""),
        ("mounted", {"type": tarfile.SYMTYPE, "linkname": "/datasets"}, b""),
    ]
    parts(pod.root / "inputs", archive(members), 4096)
    (pod.root / "inputs/..data").mkdir()  # as Kubernetes has in such a volume
    end = pod.run("./run.sh && ./same && cat deep/er/file && cmp link data/big && readlink mounted", inputs=True)
    assert (end["outcome"], end["code"]) == ("exited", 0)
    assert pod.records("done")[0]["output"] == "ran\nran\ndeep/datasets\n"
    assert stat.S_IMODE((pod.root / "volume/work/run.sh").stat().st_mode) == 0o755


@pytest.fixture
def pod(tmp_path: Path, agent: Path) -> PodProcesses:
    return PodProcesses(tmp_path / "place", agent)


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/seatrial-test-out", "a/.."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path, [(name, {}, b"x")])
    assert error.outcome == "refused"
    assert "outside the work folder" in str(error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inputs", "work"]


@pytest.mark.parametrize("target", ["..", "/", "../outside"])
def test_nothing_is_written_through_a_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    error = refused(tmp_path, [("a", {"type": tarfile.SYMTYPE, "linkname": target}, b""), ("a/escaped", {}, b"x")])
    assert error.outcome == "refused"
    assert not list((tmp_path / "outside").iterdir())
    assert not (tmp_path / "escaped").exists()
    assert not Path("/escaped").exists()


def test_a_hard_link_to_what_is_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    error = refused(tmp_path, [("a", {"type": tarfile.LNKTYPE, "linkname": "../precious"}, b"")])
    assert error.outcome == "refused"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    assert "not a file, folder or link" in str(refused(tmp_path, [("null", {"type": kind, "devmajor": 1}, b"")]))


def test_the_later_of_two_files_of_a_name_is_meant(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    data = archive([("a", {"mode": 0o400}, b"first"), ("a", {}, b"second")])
    unpack(str(parts(tmp_path / "inputs", data)), str(tmp_path / "work"))
    assert (tmp_path / "work/a").read_text() == "second"


@pytest.mark.parametrize("broken", ["garbage", "cut", "flipped", "none"])
def test_what_is_no_archive_is_infra(pod: PodProcesses, broken: str) -> None:
    data = archive([("a", {}, os.urandom(20_000))])
    flipped = data[:10_000] + bytes(10) + data[10_010:]
    given = {"garbage": b"not an archive at all" * 50, "cut": data[:-5000], "flipped": flipped, "none": b""}[broken]
    parts(pod.root / "inputs", given, 4096)
    end = pod.run("echo never", inputs=True)
    assert (end["exit"], end["outcome"]) == (1, "infra")
    assert "job inputs" in end["message"]
    assert pod.records("step") == []
    assert pod.records("end")[0]["outcome"] == "infra"
