"""The kind `scale`: one driver that makes workloads on the trial's target, and the findings on what it saw."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from seatrial.check import check_job
from seatrial.check.scale import check_scale
from seatrial.job import Environment, Observation, Part, Resources, Step
from seatrial.job.scale import ScaleWork
from seatrial.suite import HERE, Cell, SuiteError, substitute
from seatrial.suite.problem import Problem, SourceMark
from seatrial.trial.arrivals import read_trace
from seatrial.trial.job import make_job
from seatrial.trial.protocol import Judgement
from seatrial.trial.scale.model import ScaleTrial
from seatrial.trial.scale.template import BadTemplate
from seatrial.trial.scale.workload import manifest_of

DRIVER = "driver"


class ScaleKind:
    name = "scale"
    model = ScaleTrial

    def gather(self, cell: Cell) -> dict[str, Any]:
        """Raises SuiteError, with the place of what is wrong in a file."""
        model = _model(cell)
        template, claim, trace = model.workload.template, model.workload.claim, model.arrivals.trace
        try:
            manifest = manifest_of(
                model.workload, _read(cell, template) if template else "", _read(cell, claim) if claim else ""
            )
        except BadTemplate as error:
            raise _problem(cell, template or "", error.line, error.column, str(error)) from None
        return {"manifest": manifest, "times": read_trace(cell.directory / substitute(trace, cell)) if trace else []}

    def parts(self, cell: Cell, run: str, attempt: int) -> tuple[Part, ...]:
        model = _model(cell)
        job = make_job(cell, run, attempt, (), ())
        digest = hashlib.sha256(f"{run} {cell.hash} {attempt}".encode()).hexdigest()[:8]
        work = ScaleWork(
            run=run,
            cell=cell.hash,
            attempt=attempt,
            prefix=f"scale-{digest}",
            manifest=cell.gathered["manifest"],
            pods=model.workload.pods,
            count=model.count,
            arrivals=model.arrivals.work(tuple(cell.gathered["times"])),
            until=model.until,
            settle_s=model.settle_s,
            seed=model.seed,
        )
        driver = msgspec.structs.replace(
            job,
            name=f"{job.name}-{DRIVER}",
            part=DRIVER,
            steps=(Step(DRIVER, "drive", {"kind": self.name, "work": msgspec.to_builtins(work)}),),
            environment=Environment("seatrial", seatrial=True),
            resources=Resources(),
        )
        return (Part(DRIVER, driver, HERE, uses=cell.target),)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        seen = observed[DRIVER]
        (step,) = seen.steps
        scaled = check_scale(step, seen.exit, _model(cell).scale_bounds())
        return Judgement([*check_job(seen, DRIVER), *scaled.findings], scaled.metrics, scaled.exhibits)


def _model(cell: Cell) -> ScaleTrial:
    assert isinstance(cell.model, ScaleTrial)
    return cell.model


def _read(cell: Cell, path: str) -> str:
    try:
        return (cell.directory / Path(substitute(path, cell))).read_text("utf-8")
    except OSError as error:
        raise _problem(cell, path, 1, 1, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _problem(cell, path, 1, 1, "it is no text") from None


def _problem(cell: Cell, path: str, line: int, column: int, message: str) -> SuiteError:
    return SuiteError([Problem(message, SourceMark(str(substitute(path, cell)), line, column))])


kind = ScaleKind()
