"""The GPUs that a job saw, against those that its machine declares."""

from pathlib import Path
from typing import Any

import pytest

from seatrial import plugins
from seatrial.checks import check_gpu_model
from seatrial.engine.judge import judge_attempt
from seatrial.job import Exit, Gpu, Observation, Outcome, Place, Verdict
from seatrial.plan import expand
from seatrial.suite import load

A100, T4 = "NVIDIA A100-SXM4-40GB", "Tesla T4"


def messages(declared: Gpu, hardware: dict[str, Any]) -> list[str]:
    observation = Observation("job", 1, Place("here", "gpu"), Exit(Outcome.EXITED, 0), hardware=hardware)
    found = check_gpu_model(observation, declared)
    assert all((one.check, one.verdict, one.class_) == ("gpu model", Verdict.FAILED, "gpu") for one in found)
    return [one.message for one in found]


def test_another_gpu_than_the_declared_one_fails() -> None:
    assert messages(Gpu(1, "A100"), {"gpu": [T4]}) == ["GPU model Tesla T4 (A100 declared)"]
    assert messages(Gpu(1, "A100"), {"gpu": [A100]}) == []


def test_a_gpu_that_the_job_does_not_use_may_be_another() -> None:
    assert messages(Gpu(1, "A100"), {"gpu": [T4, A100]}) == []
    assert messages(Gpu(2, "A100"), {"gpu": [T4, A100]}) == ["GPU model Tesla T4 (A100 declared)"]


def test_the_host_with_another_gpu_is_named() -> None:
    hardware = {"gpu": [A100], "others": {"3": {"gpu": [T4]}, "4": {"cores": 2, "gpu": [A100]}}}
    assert messages(Gpu(1, "A100"), hardware) == ["GPU model Tesla T4 on host 3 (A100 declared)"]


@pytest.mark.parametrize(
    "declared", [Gpu(), Gpu(1), Gpu(0, "A100"), Gpu(1, "A100-1g.10gb")], ids=["none", "any", "count-0", "mig"]
)
def test_a_machine_that_declares_no_known_model_is_not_compared(declared: Gpu) -> None:
    assert messages(declared, {"gpu": [T4]}) == []


@pytest.mark.parametrize(
    "hardware", [{}, {"gpu": None}, {"gpu": "T4"}, {"gpu": [], "others": [1]}, {"others": {"1": 2}}]
)
def test_hardware_that_a_job_made_up_breaks_nothing(hardware: dict[str, Any]) -> None:
    assert messages(Gpu(1, "A100"), hardware) == []


@pytest.mark.parametrize("trial", ["kind: training, command: x", "kind: runtime, facts: false, run: [x]"])
def test_the_gpu_of_every_kind_of_trial_is_compared(tmp_path: Path, trial: str) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"machines: {{big: {{gpu: {{model: A100}}}}}}\ntrials: {{t: {{machine: big, {trial}}}}}\n")
    (cell,) = expand(load(suite, *plugins.models())).cells
    observation = Observation("job", 1, Place("here", "big"), Exit(Outcome.EXITED, 0), hardware={"gpu": [T4]})
    findings = judge_attempt(cell, plugins.kinds()[cell.kind], 1, {"job": observation}).judgement.findings
    assert "GPU model Tesla T4 (A100 declared)" in [one.message for one in findings if one.check == "gpu model"]
