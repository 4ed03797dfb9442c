"""Runs of the shape of a release test, as data: 299 with planted causes and exclusions, and one of 5,000 cells."""

import hashlib
from typing import Any

import sample

from seatrial.checks.causes import find_causes
from seatrial.job import (
    CellResult,
    Excluded,
    Exit,
    Finding,
    Moment,
    Outcome,
    Place,
    RunResults,
    Stage,
    StageTime,
    Verdict,
)
from seatrial.record.history import PastResult, RunPast
from seatrial.report.view.changes import with_news

NIGHTS = 18
STARTED_S = 1_794_818_040.0  # 16 Nov 2026 08:34 UTC
MACHINES = ("A100-40x1", "A100-80x8", "H100-80x1", "H100-80x8", "L4-24x1", "MI300x8")
RUNTIMES = ("torch-2.8-cu128", "torch-2.9-cu130", "jax-0.10-cuda", "tf-2.20-cuda", "torch-2.9-rocm7")
MODELS = (
    *("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen3-32b", "gemma-3-27b", "whisper-large-v3", "sdxl-turbo"),
    *("phi-4", "deepseek-v2-lite", "bert-large-uncased-whole-word-masking", "t5-xxl", "clip-vit-l14"),
    *("flux-schnell", "nemotron-4", "olmo-2-13b"),
)
DRIVER = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver"
)
DIVERGED = "AssertionError: output diverged at token 17: expected ' the' (0.412) got ' a' (0.409)"
LATE = "the job timed out: still running after 12 s"
STEPS = ("run nvidia-smi", "run load weights", "run generate")


def release() -> RunResults:
    """5 runtimes on 6 machines with 15 models: 299 cells and 151 excluded combinations."""
    cells, excluded = [], []
    for runtime in RUNTIMES:
        for model in MODELS:
            for machine in MACHINES:
                axes = {"runtime": runtime, "model": model, "machine": machine}
                why = _excluded_text(runtime, model, machine)
                if why:
                    excluded.append(Excluded("smoke", axes, why, "exclude"))
                else:
                    cells.append(_cell(axes, len(cells)))
    return with_news(_results("release-2026.11", cells, excluded), _past(cells))


def many(number: int = 5_000) -> RunResults:
    """As large as a run gets: 20 runtimes on 25 machines with 10 models, a hundredth of it bad."""
    cells = []
    for place in range(number):
        axes = {
            "runtime": f"runtime-{place % 20}",
            "model": f"model-{place // 20 % 10}",
            "machine": f"machine-{place // 200}",
        }
        cells.append(_cell(axes, place, DIVERGED if place % 100 == 7 else ""))
    return _results("everything", cells, [])


def _past(cells: list[CellResult]) -> RunPast:
    """Nights before it: as bad as it is, but for the driver, which was not too old then."""
    nights = [(f"release-2026.11-{night}", STARTED_S - (NIGHTS - night) * 86_400.0) for night in range(NIGHTS)]
    past = RunPast({}, {}, {})
    for number, cell in enumerate(cells):
        new = cell.attempts[-1].headline == DRIVER
        verdict = "passed" if new else cell.verdict.value
        past.cells[cell.id] = [
            PastResult(run, at_s, verdict, verdict == "passed" and (number * 7 + night) % 97 == 0)
            for night, (run, at_s) in enumerate(nights)
        ]
        if not cell.verdict.good and not new:
            past.streaks[cell.id, ""] = Moment(*nights[0])
    for cause in find_causes(cells):
        if cause.text != DRIVER:
            past.causes[cause.id] = (Moment(*nights[0]), Moment(*nights[-1]))
    return past


def _excluded_text(runtime: str, model: str, machine: str) -> str:
    if ("rocm" in runtime) != (machine == "MI300x8"):
        return "ROCm needs an AMD GPU" if "rocm" in runtime else "CUDA needs an NVIDIA GPU"
    if model in ("llama-3-70b", "mixtral-8x7b") and machine in ("L4-24x1", "A100-40x1"):
        return "weights do not fit into the GPU memory"
    return ""


def _said(axes: dict[str, str], digest: int) -> tuple[Verdict, str]:
    runtime, model, machine = axes["runtime"], axes["model"], axes["machine"]
    if (runtime, machine) == ("torch-2.9-cu130", "A100-40x1"):
        return Verdict.FAILED, DRIVER
    if (runtime, model) == ("jax-0.10-cuda", "deepseek-v2-lite"):
        return Verdict.TIMEOUT, LATE
    if (runtime, model) in {("tf-2.20-cuda", "sdxl-turbo"), ("jax-0.10-cuda", "phi-4")}:
        return Verdict.XFAIL, "NotImplementedError: no port"
    if digest % 20 == 3:
        return Verdict.FAILED, DIVERGED
    return (Verdict.FAILED, "Segmentation fault") if digest % 41 == 5 else (Verdict.PASSED, "")


def _cell(axes: dict[str, str], place: int, planted: str | None = None) -> CellResult:
    digest = int(hashlib.sha256("".join(axes.values()).encode()).hexdigest(), 16)
    verdict, said = _said(axes, digest) if planted is None else (Verdict.FAILED if planted else Verdict.PASSED, planted)
    began, took = STARTED_S + place * 1.3, 3 + digest % 97 / 30
    stages = [
        StageTime(Stage.CREATED, began, "submitter"),
        StageTime(Stage.STARTED, began + 0.7, "supervisor", 0.01),
        StageTime(Stage.FINISHED, began + 0.7 + took, "supervisor", 0.01),
    ]
    findings = [sample.passed(step) for step in STEPS[:2]]
    evidence = f"{said}\nLoading shards: 100%\n{said}" if said else ""
    findings.append(Finding(STEPS[2], "exit", verdict, "exit" if said else "", said or "exit code 0", evidence))
    changes: dict[str, Any] = {
        "place": Place("here", axes["machine"], "vm"),
        "stages": stages,
        "seconds": took,
        "headline": said if not verdict.good else "",
        "exit": Exit(Outcome.EXITED, 1 if said else 0),
    }
    flaky = verdict is Verdict.PASSED and digest % 25 == 0
    tried = [sample.attempt(1, Verdict.FAILED, **(changes | {"headline": "ncclSystemError"}))] if flaky else []
    return CellResult(
        id=f"smoke[{','.join(f'{axis}={value}' for axis, value in axes.items())}]",
        hash=f"{digest % 2**32:08x}",
        axes=axes,
        verdict=verdict,
        trial="smoke",
        kind="runtime",
        flaky=flaky,
        attempts=[*tried, sample.attempt(len(tried) + 1, verdict, **changes)],
        findings=findings,
        metrics={"seconds": {"value": took, "unit": "s", "better": "lower"}},
    )


def _results(suite: str, cells: list[CellResult], excluded: list[Excluded]) -> RunResults:
    made = sample.results(suite, Verdict.FAILED, cells, excluded, run=f"{suite}-20261116-083400-a48f")
    return RunResults(
        **{name: getattr(made, name) for name in made.__struct_fields__}
        | {"causes": find_causes(cells), "started_s": STARTED_S}
    )


def long_log(lines: int = 100_000, error: int = 51_163) -> str:
    """Coloured lines of ranks, with one in the middle that says why, and a gap."""
    made = [
        f"2026-11-16T08:10:12 \x1b[33m[rank{n % 8}]\x1b[0m NCCL INFO Channel {n % 32:02d}/0 step {n}"
        for n in range(lines)
    ]
    made[error - 1] = (
        "\x1b[31m[rank3] torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\x1b[0m"
    )
    made[40_000 % lines] = "[seatrial: 4096 bytes left out here]"
    return "\n".join(made) + "\n"
