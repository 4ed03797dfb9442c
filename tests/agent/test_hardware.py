"""What a job ran on is in its first record."""

import os
from pathlib import Path

import pytest
from supervised import Supervised

from seatrial.agent.run import measure as seen


def test_the_first_record_says_what_it_runs_on(job: Supervised) -> None:
    cpu = max(os.sched_getaffinity(0))
    job.run("true", cpus=[cpu], memory_bytes=1 << 30)
    found = job.records("begin")[0]["hardware"]
    assert (found["cores"], found["memory_bytes"]) == (1, 1 << 30)
    assert found["cpu"]
    assert isinstance(found["gpu"], list)


def test_gpus_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, model in enumerate(["NVIDIA A100-SXM4-40GB", "NVIDIA H100 PCIe"]):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        (tmp_path / f"0000:0{number}:00.0/information").write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 42\nGPU UUID: \t GPU-{number}\n"
        )
    monkeypatch.setattr(seen, "GPU_FILES", str(tmp_path / "*/information"))
    assert seen.hardware()["gpu"] == ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 PCIe"]
    assert seen.hardware(gpus="1")["gpu"] == seen.hardware(gpus="GPU-1")["gpu"] == ["NVIDIA H100 PCIe"]
    assert seen.hardware(gpus="")["gpu"] == []


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC  7B12\nprocessor\t: 1\nmodel name\t: other\n", "AMD EPYC 7B12"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "0xd0c"),
        ("\xff\xfe", os.uname().machine),
        ("", os.uname().machine),
    ],
)
def test_a_processor_has_a_name_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, model: str
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(seen, "CPU_FILE", str(tmp_path / "cpuinfo"))
    assert seen.hardware()["cpu"] == model


def test_a_tpu_is_told_with_its_type_and_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"accel{number}").touch()
    monkeypatch.setattr(seen, "TPU_FILES", str(tmp_path / "accel[0-9]*"))
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-16")
    monkeypatch.setenv("TPU_TOPOLOGY", "4x4")
    assert seen.hardware()["tpu"] == {"type": "v5litepod-16", "topology": "4x4", "chips": 4}


def test_without_the_kernels_files_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPU_FILE", "MEMORY_FILE", "GPU_FILES", "TPU_FILES"):
        monkeypatch.setattr(seen, name, str(tmp_path / "none"))
    assert seen.hardware() == {
        "cpu": os.uname().machine, "cores": len(os.sched_getaffinity(0)), "memory_bytes": None, "gpu": [],
    }  # fmt: skip
