"""What `doctor` says of this machine: each thing that may be missing, missing."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from seatrial.targets import Diagnostic, DiagnosticLevel
from seatrial.targets.local import doctor
from seatrial.targets.local import programs as processes


async def examined(state: Path, cache: Path | None = None) -> dict[str, Diagnostic]:
    return {one.what.partition(",")[0]: one for one in await doctor.examine_machine(state, cache or state, None)}


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


async def test_a_folder_that_is_not_there_yet_is_fine_and_is_not_made(tmp_path: Path) -> None:
    seen = await examined(tmp_path / "a/b")
    assert seen["job folder"].level is DiagnosticLevel.OK
    assert "GiB free" in seen["job folder"].why
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_cannot_be_written_to_is_a_problem_with_a_way_out(tmp_path: Path) -> None:
    seen = await examined(Path("/proc/self/seatrial"), tmp_path)
    assert seen["job folder"].level is DiagnosticLevel.PROBLEM
    assert "cannot write to" in seen["job folder"].why
    assert "SEATRIAL_STATE" in seen["job folder"].fix
    assert seen["environment folder"].level is DiagnosticLevel.OK


@pytest.mark.parametrize(
    ("least", "level"), [("LITTLE_BYTES", DiagnosticLevel.WARNING), ("TOO_LITTLE_BYTES", DiagnosticLevel.PROBLEM)]
)
async def test_little_room_is_told(
    tmp_path: Path, least: str, level: DiagnosticLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, least, 1 << 60)
    assert (await examined(tmp_path))["job folder"].level is level


async def test_a_machine_without_python_and_containers_says_what_cannot_be_run(bare: Path, tmp_path: Path) -> None:
    seen = await examined(tmp_path)
    assert seen["system Python"].level is DiagnosticLevel.WARNING
    assert seen["containers"].level is DiagnosticLevel.WARNING
    assert "podman is not installed" in seen["containers"].why
    assert seen["GPUs"] == Diagnostic(DiagnosticLevel.OK, "GPUs", "none (nvidia-smi not found)")


async def test_programs_that_fail_are_told_with_their_own_words(bare: Path, tmp_path: Path) -> None:
    program(bare, "nvidia-smi", "echo 'driver/library version mismatch' >&2; exit 18")
    program(bare, "python3", "exit 3")
    program(bare, "docker", "echo 'permission denied on the socket' >&2; exit 1")
    seen = await examined(tmp_path)
    assert seen["GPUs"].level is DiagnosticLevel.WARNING
    assert "driver/library version mismatch" in seen["GPUs"].why
    assert "exit code 3" in seen["system Python"].why
    assert "permission denied on the socket" in seen["containers"].why


async def test_an_engine_that_answers_and_starts_nothing_is_told_with_its_own_words(bare: Path, tmp_path: Path) -> None:
    said = f"echo $1 >> {tmp_path}/asked"
    program(bare, "podman", f"{said}; case $1 in run) echo 'crun: permission denied' >&2; exit 126;; esac")
    seen = await examined(tmp_path)
    assert seen["containers"].level is DiagnosticLevel.WARNING
    assert "podman cannot start a container: crun: permission denied" in seen["containers"].why
    assert "make `podman run` work" in seen["containers"].fix
    assert (tmp_path / "asked").read_text().split() == ["info", "import", "run", "rmi"]


async def test_one_that_does_not_answer_is_not_waited_for(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PATIENCE_S", 3.0)
    program(bare, "nvidia-smi", "while :; do :; done")
    seen = await examined(tmp_path)
    assert "no answer within 3 s" in seen["GPUs"].why


async def test_gpus_are_counted_and_named(bare: Path, tmp_path: Path) -> None:
    first, second = "NVIDIA A100-SXM4-40GB, 40960 MiB, 550.54", "NVIDIA A100, 40960 MiB, 550.54"
    program(bare, "nvidia-smi", f"echo '{first}'; echo '{second}'")
    seen = await examined(tmp_path)
    assert seen["GPUs"].why == f"2: {first}; {second}"


async def test_the_memory_limit_is_tried_with_the_agents_own_code_and_no_group_is_left(tmp_path: Path) -> None:
    seen = (await examined(tmp_path))["job memory limit"]
    assert seen.level is not DiagnosticLevel.PROBLEM, seen
    assert "control group" in seen.why
    made = [Path(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    doctors = [group for group in made if group.name.startswith("seatrial-doctor")]
    async with asyncio.timeout(120):  # another test may examine the machine just now
        while any(group.exists() for group in doctors):  # noqa: ASYNC110 - by other processes
            await asyncio.sleep(0.05)
