"""What a job of several hosts left, in the folder of its attempt. The target is data: what each host has."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent.masking.files import mask_files
from seatrial.agent.masking.mask import Mask
from seatrial.engine.collect import clear_scratch, collect, file_names, observe, read_all
from seatrial.job import Exit, Job, Outcome, Place, Step
from seatrial.job.reading import MOST_LINE_BYTES
from seatrial.targets import TargetError

JOB = Job(
    name="name",
    run="run",
    cell="cell",
    attempt=1,
    title="title",
    steps=(Step("train", "command", {"hosts": 2}),),
    hosts=2,
)


class Folder:
    """`fetch` as the contract has it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        source = self._path / path
        if not source.exists():
            return False
        if source.is_dir():
            shutil.copytree(source, into)
        else:
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)
        return True


def left(folder: Path, code: int | None, text: str) -> None:
    """What the agent of one host leaves."""
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "mine").write_text(text)
    records: list[dict[str, Any]] = [
        {"event": "begin", "at_s": 1.0, "wall_s": 1000.0, "hardware": {}},
        {"event": "step", "step": 0, "at_s": 2.0},
    ]
    if code is not None:
        records.append({"event": "done", "step": 0, "at_s": 3.0, "outcome": "exited", "code": code, "output": text})
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, records)))


async def test_hosts_with_places_of_their_own_are_collected_each_and_read_as_one(tmp_path: Path) -> None:
    left(tmp_path / "job", 0, "zero")
    left(tmp_path / "job/hosts/1", 3, "one")
    (tmp_path / "job/log.txt").write_text("[0] zero\n[1] one\n")
    into = tmp_path / "cells/hash/1"
    target: Any = Folder(tmp_path / "job")
    assert await collect(target, "far://job", JOB, into)
    assert file_names(into / "files") == ["hosts/0/mine", "hosts/1/mine"]
    assert (into / "files/hosts/1/mine").read_text() == "one"
    assert (into / "log.txt").read_text() == "[0] zero\n[1] one\n"
    (step,) = read_all(JOB, into, True).steps
    assert (step.outcome, step.code) == (Outcome.EXITED, 3)


async def test_hosts_that_are_processes_of_one_place_leave_what_one_leaves(tmp_path: Path) -> None:
    left(tmp_path / "job", 0, "both")
    into = tmp_path / "attempt"
    target: Any = Folder(tmp_path / "job")
    assert not await collect(target, "far://job", JOB, into)
    assert file_names(into / "files") == ["mine"]
    assert read_all(JOB, into, False).steps[0].code == 0


async def test_a_host_of_three_that_left_nothing_is_not_taken_for_one_that_passed(tmp_path: Path) -> None:
    left(tmp_path / "job", 0, "zero")
    left(tmp_path / "job/hosts/2", 0, "two")
    into = tmp_path / "attempt"
    target: Any = Folder(tmp_path / "job")
    three = Job(name="name", run="run", cell="cell", attempt=1, title="title", steps=JOB.steps, hosts=3)
    assert await collect(target, "far://job", three, into)
    assert read_all(three, into, True).steps[0].outcome is None


async def test_what_cannot_be_fetched_of_one_host_is_an_error_of_the_whole(tmp_path: Path) -> None:
    class Broken(Folder):
        async def fetch(self, handle: str, path: str, into: Path) -> bool:
            if path == "hosts/1/files":
                raise TargetError("the pod is gone")
            return await super().fetch(handle, path, into)

    left(tmp_path / "job", 0, "zero")
    left(tmp_path / "job/hosts/1", 0, "one")
    target: Any = Broken(tmp_path / "job")
    with pytest.raises(TargetError, match="the pod is gone"):
        await collect(target, "far://job", JOB, tmp_path / "attempt")


async def test_a_secret_is_masked_across_the_pieces_of_a_record_that_is_too_long(tmp_path: Path) -> None:
    secret = "s3cret-of-the-run"
    left(tmp_path / "job", 0, f"has {secret}")
    with open(tmp_path / "job/records.jsonl", "a") as file:
        file.write("\n" + "x" * (MOST_LINE_BYTES - 5) + secret + "y" * (MOST_LINE_BYTES - 9) + secret + "\n")
        file.write("z" * (MOST_LINE_BYTES - 3) + secret)
    target: Any = Folder(tmp_path / "job")
    here, ended = Place("here", "m"), Exit(Outcome.EXITED, 0)
    await observe(target, "far://job", JOB, tmp_path / "attempt", here, ended, Mask([secret]), lambda point: None)
    kept = (tmp_path / "attempt/records.jsonl").read_text()
    assert (secret[:5] in kept, kept.count("•••")) == (False, 4)


def deep(folder: Path, levels: int, name: str) -> None:
    """Paths are too long to name from the top."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        at, above = os.open(name, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at), "w") as file:
        file.write("s3cret")
    os.close(at)


@pytest.fixture
def deep_files(tmp_path: Path) -> Iterator[Path]:
    """pytest itself cannot delete what is this deep."""
    yield tmp_path / "files"
    subprocess.run(["rm", "-rf", tmp_path / "files"], check=True)


def test_no_file_stays_unmasked_however_deep_it_is(deep_files: Path) -> None:
    files = deep_files
    (files / "near").mkdir(parents=True)
    (files / "near/file").write_text("a s3cret\n")
    (files / ("s3cret" + "n" * 240 + ".txt")).write_text("x")
    (files / "link").symlink_to("near/s3cret")
    (files / "shut").mkdir(0o000)
    deep(files / "near", 1200, "d")  # deeper than Python recurses
    deep(files / "near", 30, "n" * 200)  # longer than a path may be
    problems = mask_files(str(files), Mask(["s3cret"]))
    assert "was discarded because it may contain a secret: nested too deeply" in problems
    assert (files / "near/file").read_text() == "a •••\n"
    found = subprocess.run(["grep", "-rl", "s3cret", str(files)], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("", "")
    names = subprocess.run(["find", str(files)], capture_output=True, text=True, check=True).stdout
    assert "s3cret" not in names
    assert "/link" not in names
    assert names.count("/d") >= 1200


def test_what_a_killed_process_left_half_fetched_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    clear_scratch(tmp_path / "none")
    for name in ("..name.0.abc/archive", ".name.0/files/x", "hosts/1/.name.1/log.txt", "files/.hidden", "log.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".link").symlink_to(tmp_path / "files")
    clear_scratch(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["files/.hidden", "log.txt"]
