"""Copies of run folders elsewhere: whole or not at all, in spite of a storage that fails now and then."""

import os
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from seatrial.record import RecordError, RunFolder, UnknownRun
from seatrial.record.remote import begin_copy, copy_run, fetch_run, is_copied


class Faulty(LocalFileSystem):  # type: ignore[misc]
    """A real file system of which `faults` of each file's transfers fail first; `written` has the order."""

    protocol = "faulty"
    cachable = False
    faults = 0
    tried: ClassVar[dict[str, int]] = {}
    written: ClassVar[list[str]] = []

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        self._fail(rpath)
        super().put_file(lpath, rpath, **options)
        self.written.append(Path(rpath).name)

    def get_file(self, rpath: str, lpath: str, **options: Any) -> None:
        self._fail(rpath)
        super().get_file(rpath, lpath, **options)

    def _fail(self, path: str) -> None:
        self.tried[path] = self.tried.get(path, 0) + 1
        if self.tried[path] <= self.faults:
            raise ConnectionResetError("the connection was cut")


@pytest.fixture
def faulty() -> type[Faulty]:
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    Faulty.faults, Faulty.tried, Faulty.written = 0, {}, []
    return Faulty


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    path = tmp_path / "runs" / "r1"
    files = {
        "plan.json": "plan",
        "results.json": "results",
        "lock": "owner",
        "live.jsonl": "live",
        "cells/69b56f04/1/log.txt": "log",
        "cells/69b56f04/1/files/model.bin": "kept",
        "cells/69b56f04/1/server/files/asked": "kept too",
        "cells/69b56f04/1/server/log.txt": "log of the server",
    }
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (path / "cells/69b56f04/1/files/inside").symlink_to("model.bin")
    (path / "cells/69b56f04/1/files/outside").symlink_to("/etc/passwd")
    return RunFolder(path)


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


COPIED = {
    "plan.json",
    "results.json",
    "cells/69b56f04/1/log.txt",
    "cells/69b56f04/1/files/model.bin",
    "cells/69b56f04/1/files/inside",
    "cells/69b56f04/1/server/files/asked",
    "cells/69b56f04/1/server/log.txt",
}


def test_a_copy_has_what_the_folder_has_and_its_results_last(
    folder: RunFolder, tmp_path: Path, faulty: type[Faulty]
) -> None:
    out = f"faulty://{tmp_path}/out"
    assert not is_copied(folder, out)
    assert copy_run(folder, out) == f"{out}/r1"
    assert names(tmp_path / "out" / "r1") == COPIED
    assert faulty.written[-1] == "results.json"
    assert (tmp_path / "out/r1/cells/69b56f04/1/files/inside").read_text() == "kept"
    assert is_copied(folder, out)
    assert not is_copied(folder, f"{out}2")


def test_what_fails_now_and_then_is_tried_again(
    folder: RunFolder, tmp_path: Path, faulty: type[Faulty], waited: list[float]
) -> None:
    faulty.faults = 2
    copy_run(folder, f"faulty://{tmp_path}/out")
    assert names(tmp_path / "out" / "r1") == COPIED
    assert sorted(waited) == sorted([1.0, 4.0] * len(COPIED))
    faulty.tried = {}
    fetched = fetch_run(f"faulty://{tmp_path}/out/r1", tmp_path / "cache")
    assert fetched.results.read_text() == "results"


@pytest.mark.usefixtures("waited")
def test_what_fails_for_good_is_named_and_no_results_are_there(
    folder: RunFolder, tmp_path: Path, faulty: type[Faulty]
) -> None:
    faulty.faults = 100
    with pytest.raises(RecordError, match=r"6 of 6 files were not copied to .*ConnectionResetError: the connection"):
        copy_run(folder, f"faulty://{tmp_path}/out")
    assert not (tmp_path / "out/r1/results.json").exists()
    assert not is_copied(folder, f"faulty://{tmp_path}/out")
    with pytest.raises(RecordError, match="cannot write to faulty"):
        begin_copy(folder, f"faulty://{tmp_path}/out")


def test_a_run_is_fetched_without_kept_files_and_only_what_is_not_there(
    folder: RunFolder, tmp_path: Path, faulty: type[Faulty]
) -> None:
    address = copy_run(folder, f"faulty://{tmp_path}/out")
    fetched = fetch_run(address, tmp_path / "cache")
    assert fetched.run == "r1"
    assert names(fetched.path) == {name for name in COPIED if "/files/" not in name}
    faulty.tried = {}
    assert fetch_run(address, tmp_path / "cache").path == fetched.path
    assert faulty.tried == {}
    fetched.results.write_text("half")
    assert fetch_run(address, tmp_path / "cache").results.read_text() == "results"


def test_an_address_without_a_run_says_which_there_are(folder: RunFolder, tmp_path: Path) -> None:
    copy_run(folder, f"file://{tmp_path}/out")
    with pytest.raises(UnknownRun, match="add one of its runs to the URL: r1"):
        fetch_run(f"file://{tmp_path}/out", tmp_path / "cache")
    with pytest.raises(UnknownRun, match="run not found: "):
        fetch_run(f"file://{tmp_path}/none", tmp_path / "cache")


def test_a_copy_that_is_only_begun_is_not_read(folder: RunFolder, tmp_path: Path) -> None:
    begin_copy(folder, f"file://{tmp_path}/out")
    with pytest.raises(UnknownRun, match="has no results: the run is in progress or the copy is incomplete"):
        fetch_run(f"file://{tmp_path}/out/r1", tmp_path / "cache")


def test_what_cannot_be_used_at_all_says_what_to_install(folder: RunFolder) -> None:
    with pytest.raises(RecordError, match=r"run `.* -m uv pip install .* 's3fs>="):
        begin_copy(folder, "s3://bucket/runs")
    with pytest.raises(RecordError, match="nonsense"):
        begin_copy(folder, "nonsense://x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_what_may_not_be_written_is_not_tried_again(folder: RunFolder, tmp_path: Path, waited: list[float]) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(RecordError, match="PermissionError"):
        begin_copy(folder, f"file://{tmp_path}/out")
    assert waited == []
