"""A month of invented history: four suites, a change at a commit, a flaky cell, and a run of 299 cells in progress."""

import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from seatrial.checks import find_causes
from seatrial.job import AttemptResult, CellResult, Exit, Finding, Outcome, Place, RunResults, Stage, StageTime, Verdict
from seatrial.record import Journal, Ownership, RunFolder, write_whole
from seatrial.record.folder import summed_plan
from seatrial.record.history import open_history

DAY_S = 86_400.0
MODELS = ["llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen3-32b", "gemma-3-27b", "whisper-large-v3", "sdxl-turbo"]
MODELS += ["phi-4", "deepseek-v2-lite", "bert-large-uncased", "t5-xxl", "clip-vit-l14", "flux-schnell", "nemotron-4"]
RUNTIMES = ["torch-2.8-cu128", "torch-2.9-cu130", "jax-0.10-cuda", "tf-2.20-cuda"]
MACHINES = ["A100-40x1", "A100-80x8", "H100-80x1", "H100-80x8", "L4-24x1"]
DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 12080)"
NCCL = "ncclSystemError: connection reset by peer (rank 3)"


@dataclass
class Month:
    runs: Path
    now_s: float = field(default_factory=time.time)
    noise: random.Random = field(default_factory=lambda: random.Random(7))

    def cell(
        self, trial: str, axes: dict[str, str], why: str, verdict: Verdict, at_s: float, value: float
    ) -> CellResult:
        id_ = f"{trial}[{','.join(f'{axis}={of}' for axis, of in axes.items())}]"
        hash_ = f"{abs(hash_of(id_)):08x}"[:8]
        place = Place("cluster-b", axes.get("machine", ""), f"node-{hash_[0]}")
        stages = [StageTime(Stage.STARTED, at_s, "agent")]
        took = 2.0 + int(hash_[1], 16) / 4
        attempt = AttemptResult(1, place, stages, Exit(Outcome.EXITED, 0), verdict, why, why, seconds=took)
        finding = Finding("run smoke", "run", verdict, message=why or "exit code 0", evidence=why)
        metrics = {"step_time": {"value": value, "unit": "s", "better": "lower", "source": "log"}} if value else {}
        return CellResult(
            id_, hash_, axes, verdict, trial, "training" if value else "runtime", why=why, attempts=[attempt],
            findings=[finding], metrics=metrics, benchmark=id_, fingerprint="f00d0000",
        )  # fmt: skip

    def results(self, suite: str, number: int, at_s: float, commit: str, cells: list[CellResult]) -> RunResults:
        day = time.strftime("%Y%m%d-%H%M%S", time.gmtime(at_s))
        bad = any(not cell.verdict.good for cell in cells)
        counts: dict[str, int] = {}
        for cell in cells:
            counts[cell.verdict.value] = counts.get(cell.verdict.value, 0) + 1
        return RunResults(
            1, f"{suite}-{day}-{number:04x}", suite, Verdict.FAILED if bad else Verdict.PASSED, cells,
            causes=find_causes(cells), suite_path=f"{suite}.yaml", started_s=at_s, seconds=260.0 + number % 9,
            counts=counts, commit=commit,
        )  # fmt: skip

    def past(self) -> list[RunResults]:
        made = []
        for day in range(30):
            at_s = self.now_s - (29.4 - day) * DAY_S
            commit = f"{hash_of(str(day)):016x}"[:12]
            made.append(self.results("nightly", day, at_s, commit, self.nightly(day, at_s)))
            made.append(self.results("training", day, at_s + 9_000, commit, self.training(day, at_s + 9_000)))
            if day % 2:
                made.append(
                    self.results("release-2026.11", day, at_s + 20_000, commit, self.release(day, at_s + 20_000))
                )
                made.append(self.results("demo", day, at_s + 30_000, commit, self.demo(day, at_s + 30_000)))
        return made

    def nightly(self, day: int, at_s: float) -> list[CellResult]:
        cells = []
        for runtime in RUNTIMES[:3]:
            for model in MODELS:
                for machine in MACHINES:
                    why = DRIVER if day > 26 and runtime == RUNTIMES[1] and machine == MACHINES[0] else ""
                    why = why or (NCCL if self.noise.random() < 0.004 else "")
                    axes = {"runtime": runtime, "model": model, "machine": machine}
                    cells.append(self.cell("smoke", axes, why, Verdict.FAILED if why else Verdict.PASSED, at_s, 0.0))
        flaky = self.cell("smoke", {"model": "whisper", "machine": "L4-24x1"}, "", Verdict.PASSED, at_s, 0.0)
        if day % 6 == 0:
            flaky = self.cell("smoke", {"model": "whisper", "machine": "L4-24x1"}, NCCL, Verdict.FAILED, at_s, 0.0)
        return [*cells, flaky]

    def training(self, day: int, at_s: float) -> list[CellResult]:
        cells = []
        for model in MODELS[:3]:
            level = 2.27 * (1.072 if day > 26 else 1.0)
            value = level * self.noise.gauss(1.0, 0.012)
            axes = {"model": model, "machine": "H100x8"}
            verdict = Verdict.SLOWER if day > 26 else Verdict.PASSED
            cells.append(self.cell("fsdp", axes, "step_time above its bound" if day > 26 else "", verdict, at_s, value))
        return cells

    def release(self, day: int, at_s: float) -> list[CellResult]:
        bad = self.noise.sample(range(len(MODELS) * len(MACHINES)), 2 + day % 3)
        cells = []
        for number, (model, machine) in enumerate((model, machine) for model in MODELS for machine in MACHINES):
            why = "AssertionError: output diverged at token 17" if number in bad else ""
            axes = {"model": model, "machine": machine}
            cells.append(self.cell("serve", axes, why, Verdict.FAILED if why else Verdict.PASSED, at_s, 0.0))
        return cells

    def demo(self, _: int, at_s: float) -> list[CellResult]:
        return [self.cell("works", {"size": str(n)}, "", Verdict.PASSED, at_s, 0.0) for n in range(9)]

    def write(self) -> None:
        """The history, and the folders of all runs."""
        made = self.past()
        open_history(self.runs / "history.db").add(*made)
        for one in made:
            folder = RunFolder(self.runs / one.run)
            write_plan(folder, one.cells, one.suite, one.commit)
            write_whole(folder.results, msgspec.json.encode(one), sync=False)
            for cell in one.cells if one.suite != "nightly" else [cell for cell in one.cells if not cell.verdict.good]:
                log = f"loading {cell.id}\nstep 1 loss 2.25\n{cell.why}\n"
                write_whole(folder.attempt(cell.hash, 1) / "log.txt", log.encode(), sync=False)

    def in_progress(self, done: int = 166) -> RunFolder:
        """A run of 299 cells. The first cells have ended, six run, and others failed and wait for a retry."""
        cells = self.nightly(29, self.now_s)[:-1]
        cells += [self.cell("serve", {"model": one, "machine": of}, "", Verdict.PASSED, self.now_s, 0.0)
                  for one in MODELS for of in MACHINES]  # fmt: skip
        cells += [self.cell("works", {"size": str(n)}, "", Verdict.PASSED, self.now_s, 0.0) for n in range(19)]
        folder = RunFolder(self.runs / "release-2026.11-live")
        write_plan(folder, cells, "release-2026.11", "91b7700aa01f", 3.5)
        journal = Journal(folder.journal)
        lines: list[tuple[str, dict[str, object]]] = [("run", {"version": 3, "run": folder.run, "cells": len(cells)})]
        for number, cell in enumerate(cells[: done + 6]):
            named = {"cell": cell.hash, "attempt": 1}
            lines += [("planned", {**named, "id": cell.id, "host": "vm"}), ("started", {**named, "part": "job"})]
            if number < done:
                bad = not cell.verdict.good
                timeout = number in (61, 62, 63)
                verdict = "timeout" if timeout else cell.verdict.value
                headline = "Timed out: not done after 12 s" if timeout else cell.why
                again = "retrying" if bad and number % 4 else ""
                judged = {"verdict": verdict, "why": headline, "headline": headline, "again": again, "seconds": 3.4}
                lines.append(("judged", {**named, **judged}))
        for place, (event, fields) in enumerate(lines):
            journal.append(event, wall_s=self.now_s - 140 + 140 * place / len(lines), **fields)
        journal.close()
        Ownership.take(folder.path)
        return folder


def hash_of(text: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def write_plan(folder: RunFolder, cells: list[CellResult], suite: str, commit: str, estimate_s: float = 0.0) -> None:
    planned = [
        {"id": one.id, "hash": one.hash, "axes": one.axes, "trial": one.trial, "target": "cluster-b",
         "machine": one.axes.get("machine", ""), "estimate_s": estimate_s or None}
        for one in cells
    ]  # fmt: skip
    plan = {"seatrial": "0.3.0", "cells": planned, "holes": [], "suite": {"name": suite, "path": f"{suite}.yaml"}}
    write_whole(folder.plan, summed_plan({**plan, "options": {"commit": commit}}), sync=False)


def main() -> None:
    runs = Path(sys.argv[1])
    runs.mkdir(parents=True, exist_ok=True)
    month = Month(runs)
    month.write()
    month.in_progress()
    print(f"seatrial serve --runs {runs}", flush=True)
    time.sleep(1e9)  # it owns the run in progress


if __name__ == "__main__":
    main()
