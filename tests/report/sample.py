"""Runs to report on, as an engine leaves them: results and a run folder, with everything that can happen in one."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings

from seatrial.job import (
    AttemptResult,
    CellResult,
    Excluded,
    Exit,
    Finding,
    Observation,
    ObservedStep,
    Outcome,
    Place,
    RunResults,
    Sample,
    Stage,
    StageTime,
    Verdict,
)

# For properties of any text: how long an example takes says nothing here, the machine may be busy.
untimed = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, database=None)

STARTED_S = 1_767_225_600.0
MIB = 1024 * 1024

HOSTILE = (
    "<script>alert('x')</script> | `code` ``` <!-- --> &amp; ]]> @everyone #1 \x1b[31mred\x1b[0m \x1b]0;title\x07 "
    "\x00\x08\u202enur\ufffe \U0001f6a2 漢字 {{ 7*7 }} {% raw %} '\"><img src=x onerror=alert(1)>"
)

TRACEBACK = """ImportError: libgfortran.so.5: cannot open shared object file: No such file or directory
  File "/env/lib/python3.11/site-packages/scipy/__init__.py", line 132, in <module>
    from scipy._lib._ccallback import LowLevelCallable
  File "/env/lib/python3.11/site-packages/scipy/_lib/_ccallback.py", line 1, in <module>
    from . import _ccallback_c
"""


def attempt(number: int = 1, verdict: Verdict = Verdict.PASSED, **changes: Any) -> AttemptResult:
    values: dict[str, Any] = {
        "place": Place("here", "small", "node-1"),
        "stages": [
            StageTime(Stage.CREATED, STARTED_S, "engine"),
            StageTime(Stage.STARTED, STARTED_S + 1, "agent", 0.01),
        ],
        "exit": Exit(Outcome.EXITED, 0),
        "seconds": 4.2,
    } | changes
    return AttemptResult(number=number, verdict=verdict, **values)


def cell(hash_: str, runtime: str, machine: str, verdict: Verdict, *findings: Finding, **changes: Any) -> CellResult:
    trial = changes.pop("trial", "generic")
    values: dict[str, Any] = {"attempts": [attempt(verdict=verdict, place=Place("here", machine, "node-1"))]} | changes
    return CellResult(
        id=f"{trial}[runtime={runtime},machine={machine}]",
        hash=hash_,
        axes={"runtime": runtime, "machine": machine},
        verdict=verdict,
        trial=trial,
        kind="runtime",
        findings=list(findings),
        **values,
    )


def passed(step: str) -> Finding:
    return Finding(step, step.split()[0], Verdict.PASSED, message="as it should")


def small() -> RunResults:
    """A run with one of everything."""
    fine = [passed("facts"), passed("command git"), passed("import numpy"), passed("run python -V")]
    cells = [
        cell("69b56f04", "base", "small", Verdict.PASSED, *fine),
        cell(
            "a1b2c3d4",
            "base",
            "large",
            Verdict.FAILED,
            passed("facts"),
            passed("command git"),
            Finding(
                "command cmake",
                "command",
                Verdict.FAILED,
                "absent",
                "cmake is not on the PATH of this runtime",
                "PATH=/env/bin:/usr/local/bin:/usr/bin:/bin",
            ),
            Finding(
                "import scipy", "import", Verdict.FAILED, "crashed", "scipy is installed but does not import", TRACEBACK
            ),
            passed("notebook train.ipynb fresh"),
            Finding(
                "notebook train.ipynb rerun",
                "notebook",
                Verdict.FAILED,
                "error",
                "cell 3 of 5 raised NameError, only when it is run again in the same kernel",
                "NameError: name 'optimizer' is not defined\n---> 12 loss = step(optimizer, batch)",
            ),
            passed("notebook train.ipynb restart"),
            Finding("notebook big.ipynb fresh", "notebook", Verdict.SKIPPED, message="needs the command nvidia-smi"),
        ),
        cell(
            "0badc0de",
            "pytorch",
            "small",
            Verdict.XFAIL,
            *fine,
            Finding(
                "notebook memory.ipynb fresh",
                "notebook",
                Verdict.XFAIL,
                "memory",
                "the kernel was killed: out of memory at 512 MiB (issue 41: the sample needs 2 GiB)",
                "cell 2: data = numpy.ones((20000, 20000))",
            ),
        ),
        cell(
            "feedf00d",
            "pytorch",
            "large",
            Verdict.PASSED,
            *fine,
            flaky=True,
            attempts=[
                attempt(
                    1,
                    Verdict.INFRA,
                    place=Place("cluster", "large", "gpu-node-17"),
                    exit=Exit(Outcome.INFRA, message="the node was drained while the job ran"),
                    seconds=31.0,
                ),
                attempt(2, place=Place("cluster", "large", "gpu-node-04"), seconds=12.4),
            ],
        ),
        cell(
            "deadbeef",
            "tensorflow",
            "small",
            Verdict.INFRA,
            attempts=[
                attempt(
                    n,
                    Verdict.INFRA,
                    exit=Exit(Outcome.INFRA, message="no space left on device while the environment was built"),
                    seconds=None,
                )
                for n in (1, 2)
            ],
        ),
        cell(
            "7e577e57",
            "tensorflow",
            "large",
            Verdict.TIMEOUT,
            passed("facts"),
            Finding(
                "run python slow.py",
                "run",
                Verdict.TIMEOUT,
                "timeout",
                "it was still running after 20 min",
                "epoch 3/10 ... loss 0.4311",
            ),
            attempts=[attempt(verdict=Verdict.TIMEOUT, exit=Exit(Outcome.TIMEOUT), seconds=1203.0)],
        ),
        cell(
            "5ca1ab1e",
            "jax",
            "small",
            Verdict.XPASS,
            passed("facts"),
            Finding(
                "import flax", "import", Verdict.XPASS, message="it imports, although issue 52 says that it cannot"
            ),
        ),
        cell(
            "c0ffee00", "jax", "large", Verdict.SKIPPED, attempts=[], why="stopped after 5 failures (--max-failures 5)"
        ),
        cell(
            "babb1e00",
            HOSTILE[:60],
            "small",
            Verdict.FAILED,
            Finding(HOSTILE, HOSTILE, Verdict.FAILED, "x", HOSTILE, HOSTILE),
        ),
    ]
    excluded = [
        Excluded("generic", {"runtime": "pytorch", "machine": "tiny"}, "driver too old until 2026-12"),
        Excluded("generic", {"runtime": "tensorflow", "machine": "tiny"}, "needs gpu.count >=1, the machine has 0"),
        Excluded("generic", {"runtime": "jax", "machine": "tiny"}, "needs gpu.count >=1, the machine has 0"),
    ]
    return results("nightly", Verdict.FAILED, cells, excluded, run="20260101-000000-7f3a")


def results(
    suite: str, verdict: Verdict, cells: list[CellResult], excluded: list[Excluded], run: str = "r1"
) -> RunResults:
    counts: dict[str, int] = {}
    for one in cells:
        counts[one.verdict.value] = counts.get(one.verdict.value, 0) + 1
    counts["flaky"] = sum(one.flaky for one in cells)
    return RunResults(
        version=1,
        run=run,
        suite=suite,
        verdict=verdict,
        cells=cells,
        excluded=excluded,
        suite_path="examples/my suite.yaml",
        started_s=STARTED_S,
        seconds=1311.7,
        counts=counts,
        seatrial="0.1.0",
    )


def green(cells: int = 200) -> RunResults:
    """Many simple cells that all passed: one step each."""
    made = [
        cell(f"{n:08x}", f"runtime-{n // 10}", f"machine-{n % 10}", Verdict.PASSED, passed("run true"))
        for n in range(cells)
    ]
    return results("simple", Verdict.PASSED, made, [])


def large() -> RunResults:
    """1,000 cells, 40 runtimes on 25 machines, a tenth of them bad, and 40 excluded combinations."""
    verdicts = (Verdict.FAILED, Verdict.INFRA, Verdict.TIMEOUT, Verdict.XPASS, Verdict.INVALID)
    made = []
    for n in range(1000):
        verdict = verdicts[n // 10 % 5] if n % 10 == 7 else Verdict.PASSED
        made.append(
            cell(
                f"{n:08x}",
                f"runtime-{n // 25}",
                f"machine-{n % 25}",
                verdict,
                passed("facts"),
                passed("import numpy"),
                Finding(
                    "run check",
                    "run",
                    verdict,
                    message=f"cell {n}",
                    evidence=TRACEBACK if verdict != Verdict.PASSED else "",
                ),
            )
        )
    excluded = [
        Excluded("generic", {"runtime": f"runtime-{n}", "machine": "tpu"}, "no image for it") for n in range(40)
    ]
    return results("everything", Verdict.FAILED, made, excluded)


def observation(one: CellResult) -> Observation:
    """What was seen of a cell's last attempt: a step for each finding, samples for all of it."""
    steps: list[ObservedStep] = []
    now_s = 0.2
    names = dict.fromkeys(
        finding.step.rsplit(" ", 1)[0] if _is_pass(finding.step) else finding.step for finding in one.findings
    )
    for name in names:
        notebook = name.startswith("notebook ")
        took_s = 6.0 if notebook else 0.7
        samples = [
            Sample(
                now_s + i * took_s / 12,
                int((120 + 90 * math.sin(i / 3) + 40 * len(steps)) * MIB),
                0.04 * (i + 12 * len(steps)),
            )
            for i in range(13)
        ]
        steps.append(
            ObservedStep(
                name,
                "notebook" if notebook else name.split()[0],
                {"path": name.removeprefix("notebook ")} if notebook else {},
                now_s,
                now_s + took_s,
                Outcome.EXITED,
                0,
                cpu_s=took_s * 0.8,
                peak_memory_bytes=max(sample.memory_bytes or 0 for sample in samples),
                notes=notebook_notes() if notebook else [],
                samples=samples,
            )
        )
        now_s += took_s
    last = one.attempts[-1]
    return Observation(one.hash, last.number, last.place, last.exit, last.stages, steps=steps)


def _is_pass(step: str) -> bool:
    return step.startswith("notebook ") and step.endswith((" fresh", " rerun", " restart"))


def notebook_notes() -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = []
    sources = [
        "import numpy as np",
        "data = np.random.rand(4000, 4000)",
        "loss = step(optimizer, batch)",
        "!nvidia-smi",
        "plot()",
    ]
    for name in ("fresh", "rerun", "restart"):
        notes.append({"note": "pass", "pass": name})
        for number, source in enumerate(sources):
            failed = name == "rerun" and number == 2
            if name == "rerun" and number > 2:
                break
            notes.append(
                {
                    "note": "cell",
                    "pass": name,
                    "cell": number,
                    "state": "failed" if failed else "skipped" if number == 3 else "passed",
                    "class": "error" if failed else "",
                    "seconds": (0.4, 1.9, 0.1, 0.0, 0.3)[number],
                    "cpu_s": 0.2,
                    "peak_memory_bytes": (90 + 60 * number) * MIB,
                    "gpu_peak_memory_bytes": None,
                    "error": "NameError: name 'optimizer' is not defined" if failed else "",
                    "source": source,
                }
            )
        ended = (
            {"state": "failed", "class": "error", "message": "cell 2 raised NameError"}
            if name == "rerun"
            else {"state": "passed"}
        )
        notes.append({"note": "passed-over", "pass": name, "seconds": 2.7, **ended})
    return notes


def notebook(*outputs: dict[str, Any], source: str = "print('hello')") -> dict[str, Any]:
    """An executed notebook with one code cell that gave these outputs."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [
            {
                "id": "a",
                "cell_type": "markdown",
                "metadata": {},
                "source": ["# Train\n", "A *small* model. | a | b |\n"],
            },
            {
                "id": "b",
                "cell_type": "code",
                "metadata": {},
                "execution_count": 1,
                "source": source,
                "outputs": list(outputs),
            },
        ],
    }


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

RICH_OUTPUTS: tuple[dict[str, Any], ...] = (
    {"output_type": "stream", "name": "stdout", "text": ["epoch 1: loss 0.52\n", "epoch 2: loss 0.47\n"]},
    {"output_type": "stream", "name": "stderr", "text": "warning: \x1b[33mslow\x1b[0m data\n"},
    {"output_type": "display_data", "metadata": {}, "data": {"image/png": PNG, "text/plain": "<Metric>"}},
    {
        "output_type": "execute_result",
        "execution_count": 1,
        "metadata": {},
        "data": {
            "text/html": "<table><tr><td>1</td></tr></table><script>alert(1)</script>",
            "text/plain": "   a\n0  1",
        },
    },
    {
        "output_type": "error",
        "ename": "NameError",
        "evalue": "name 'x' is not defined",
        "traceback": ["\x1b[0;31mNameError\x1b[0m: name '\x1b[1mx\x1b[22m' is not defined"],
    },
)


def write_run(folder: Path, run: RunResults, notebooks: bool = False, observations: bool = True) -> Path:
    """The folder as an engine leaves it before the reports are written."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_bytes(msgspec.json.encode(run))
    for one in run.cells:
        for tried in one.attempts:
            place = folder / "cells" / one.hash / str(tried.number)
            place.mkdir(parents=True)
            (place / "log.txt").write_text("".join(f"line {n}\n" for n in range(5)) + "the end of the log\n")
            if observations and tried is one.attempts[-1]:
                (place / "observation.json").write_bytes(msgspec.json.encode(observation(one)))
        if notebooks and any(finding.step.startswith("notebook train") for finding in one.findings):
            kept = folder / "cells" / one.hash / "1" / "files" / "notebooks"
            kept.mkdir(parents=True)
            for name in ("fresh", "rerun", "restart"):
                (kept / f"train.{name}.ipynb").write_text(json.dumps(notebook(*RICH_OUTPUTS)))
    return folder
