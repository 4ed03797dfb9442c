"""The kind `scale`: one driver that makes workloads on the trial's target, and the findings on what it saw."""

from collections.abc import Mapping
from typing import Any

from seatrial import __version__
from seatrial.checks import check_job
from seatrial.job import Observation, PartSpec
from seatrial.kinds.arrivals import read_trace
from seatrial.kinds.job import DRIVER, driver_job, make_job
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.scale.judge import check_scale
from seatrial.kinds.scale.model import BACKGROUND, FILL, ONE, ScaleTrial, Workload
from seatrial.kinds.scale.work import ExtraWorkloads, Find, ScaleWork, WorkloadClass
from seatrial.kinds.scale.workload import BadTemplate, manifest_of
from seatrial.suite import HERE, Cell, SuiteError
from seatrial.suite.yaml.problem import Problem, SourceMark


class ScaleKind:
    name = "scale"
    model = ScaleTrial

    def gather(self, cell: Cell) -> dict[str, Any]:
        """Raises SuiteError, with the place of what is wrong in a file."""
        model: ScaleTrial = cell.spec
        trace = model.arrivals.trace
        manifests = {
            place[-1] if place[0] == "workloads" else place[0]: _manifest(cell, one)
            for place, one in model.every_workload().items()
        }
        times = read_trace(cell.directory / trace) if trace else []
        return {"manifests": manifests, "times": times}

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        model: ScaleTrial = cell.spec
        work = ScaleWork(
            run="",
            cell=cell.hash,
            attempt=0,
            prefix="",
            classes=_classes(cell),
            count=model.count,
            arrivals=model.arrivals.work(tuple(cell.gathered["times"])),
            namespaces=model.namespaces,
            until=model.until,
            settle_s=model.settle_s,
            seed=model.seed,
            follow=tuple(one.work() for one in model.follow),
            audit_log=str(cell.directory / model.audit_log) if model.audit_log else "",
            background=_background(cell),
            fill=_fill(cell),
            churn=model.churn.work() if model.churn else None,
            find=Find(model.scale_bounds(), model.most) if model.find else None,
            places=model.local.places or 0,
            version=__version__ if model.driver else "",
        )
        driver = driver_job(make_job(cell, (), ()), self.name, work, model.driver)
        return (PartSpec(DRIVER, driver, cell.target if model.driver else HERE, uses=cell.target),)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        seen = observed[DRIVER]
        (step,) = seen.steps
        model: ScaleTrial = cell.spec
        scaled = check_scale(step, seen.exit, model.scale_bounds(), model.slo or "")
        return Judgement([*check_job(seen, DRIVER), *scaled.findings], scaled.metrics, scaled.charts)


def _classes(cell: Cell) -> tuple[WorkloadClass, ...]:
    model: ScaleTrial = cell.spec
    if model.workload is not None:
        return (_class(cell, ONE, model.workload),)
    return tuple(_class(cell, name, one, one.weight) for name, one in model.workloads.items())


def _class(cell: Cell, name: str, workload: Workload, weight: float = 1.0) -> WorkloadClass:
    command = () if workload.template or workload.bare else workload.command
    manifest, pods = cell.gathered["manifests"][name], 0 if workload.bare else workload.pods
    return WorkloadClass(name, manifest, pods, weight, command, workload.gpus, dict(workload.node_selector))


def _fill(cell: Cell) -> ExtraWorkloads | None:
    model: ScaleTrial = cell.spec
    fill = model.fill
    if fill is None:
        return None
    return ExtraWorkloads(fill.count, _class(cell, FILL, fill.workload) if fill.workload else None, fill.within_s)


def _background(cell: Cell) -> ExtraWorkloads | None:
    model: ScaleTrial = cell.spec
    background = model.background
    return ExtraWorkloads(background.count, _class(cell, BACKGROUND, background.workload)) if background else None


def _manifest(cell: Cell, workload: Workload) -> dict[str, Any]:
    template, claim = workload.template, workload.claim
    try:
        return manifest_of(workload, _read(cell, template) if template else "", _read(cell, claim) if claim else "")
    except BadTemplate as error:
        raise _problem(template or "", error.line, error.column, str(error)) from None


def _read(cell: Cell, path: str) -> str:
    try:
        return (cell.directory / path).read_text("utf-8")
    except OSError as error:
        raise _problem(path, 1, 1, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _problem(path, 1, 1, "it is no text") from None


def _problem(path: str, line: int, column: int, message: str) -> SuiteError:
    return SuiteError([Problem(message, SourceMark(path, line, column))])


kind = ScaleKind()
