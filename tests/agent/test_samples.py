"""Samples are of a step's own window, and metrics are true to what the step did."""

import os
import sys
from pathlib import Path

import pytest
from supervised import Supervised


def test_every_step_has_samples_within_its_own_window(job: Supervised) -> None:
    job.run("until test $(grep -c '\"sample\"' ../records.jsonl) -ge 2; do sleep 0.05; done", "true")
    for step in (0, 1):
        (begun,) = [r["at_s"] for r in job.records("step") if r["step"] == step]
        (done,) = [r["at_s"] for r in job.records("done") if r["step"] == step]
        times = [r["at_s"] for r in job.records("sample") if r["step"] == step]
        assert times
        assert all(begun <= at_s <= done for at_s in times)
    assert len([r for r in job.records("sample") if r["step"] == 0]) >= 3


def test_cpu_time_is_that_of_the_step_and_its_children(job: Supervised) -> None:
    burn = "import time\\nwhile time.process_time() < 0.4: pass"
    job.run(f'sh -c "{sys.executable} -S -c \\"$(printf \'{burn}\')\\""', "sleep 0.1")
    first, second = (record["cpu_s"] for record in job.records("done"))
    assert 0.35 < first < 2.0
    assert second < 0.2


def test_the_peak_of_memory_is_seen_even_between_samples(job: Supervised) -> None:
    job.run(f"{sys.executable} -S -c \"b = b'x' * (100 << 20)\"", "true")
    first, second = (record["peak_memory_bytes"] for record in job.records("done"))
    assert 100 << 20 < first < 150 << 20
    assert second < 40 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a control group")
def test_the_cache_of_files_is_not_memory_of_the_step(job: Supervised) -> None:
    job.run("head -c 80000000 /dev/zero > big; cat big > /dev/null; sleep 0.3")
    assert job.records("done")[0]["peak_memory_bytes"] < 40 << 20


def test_gpus_are_sampled_where_nvidia_smi_is(job: Supervised, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "0, 93, 1024"\necho "1, [N/A], 16"\n')
    program.chmod(0o755)
    job.run(
        "until grep -q utilization ../records.jsonl; do sleep 0.05; done",
        env={"PATH": f"{program.parent}:{os.environ['PATH']}"},
    )
    gpus = [record["gpu"] for record in job.records("sample") if record.get("gpu")]
    assert gpus[0] == [
        {"index": 0, "utilization": 93.0, "memory_bytes": 1 << 30},
        {"index": 1, "utilization": None, "memory_bytes": 16 << 20},
    ]
    asked = (tmp_path / "asked").read_text().splitlines()[0].split()
    assert asked == ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]


@pytest.mark.parametrize(
    "script",
    ["exit 9", "sleep 1300", "cat /dev/zero", "echo garbage; printf '\\377\\n'", "echo '0, inf, inf'; echo '²³, 1, 1'"],
)
def test_a_broken_nvidia_smi_harms_nothing(job: Supervised, tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec 2>/dev/null\n{script}\n")
    program.chmod(0o755)
    end = job.run("sleep 0.3", "echo said", env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert (end["outcome"], end["left"]) == ("exited", 0)
    assert job.records("done")[1]["output"] == "said\n"
