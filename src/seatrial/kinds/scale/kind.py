"""The kind `scale`: one load generator that creates workloads on the trial's target, and the findings on them."""

from collections.abc import Mapping

from seatrial import __version__
from seatrial.checks import check_job
from seatrial.job import Observation, PartSpec
from seatrial.kinds.arrivals_model import read_trace
from seatrial.kinds.job import DRIVER, as_work, driver_job, make_job
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.scale import work as records
from seatrial.kinds.scale.judge import check_scale
from seatrial.kinds.scale.model import BACKGROUND, FILL, ONE, FollowOthers, ScaleGathered, ScaleTrial, Workload
from seatrial.kinds.scale.workload import manifests_of
from seatrial.suite import HERE, Cell
from seatrial.suite.yaml.source import FileLimits, read_text

_TEMPLATE = FileLimits("template", 16 << 20, too_large="each object is for one workload")
OTHERS = (records.WorkloadClass(ONE, (), pods=0),)  # created by others; the number of their pods is not known


class ScaleKind:
    name = "scale"
    model = ScaleTrial

    def gather(self, cell: Cell) -> ScaleGathered:
        """Reads templates and traces. Raises SuiteError with the position of the problem in the file."""
        model: ScaleTrial = cell.spec
        trace = model.arrivals.trace

        def text(path: object) -> str:
            return read_text(cell.directory / path, limits=_TEMPLATE) if isinstance(path, str) else ""

        manifests = {}
        for path, one in model.every_workload().items():
            name = path[-1] if path[0] == "workloads" else path[0]
            manifests[name] = tuple(manifests_of(one, text(one.template), text(one.claim)))
        return ScaleGathered(manifests=manifests, times=tuple(read_trace(cell.directory / trace)) if trace else ())

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        model: ScaleTrial = cell.spec
        gathered: ScaleGathered = cell.gathered

        def class_of(name: str, workload: Workload) -> records.WorkloadClass:
            return as_work(
                workload,
                records.WorkloadClass,
                name=name,
                manifests=gathered.manifests[name],
                pods=0 if workload.bare else workload.pods,
                command=() if workload.template or workload.bare or workload.claim else workload.command,
                select=workload.node_selector,
                built_in=workload.template is None,
                wait=[as_work(one, records.ObjectWait) for one in workload.waits],
            )

        background, fill, metrics = None, None, model.metrics
        if model.background:
            background = records.ExtraWorkloads(model.background.count, class_of(BACKGROUND, model.background.workload))
        if model.fill:
            of = class_of(FILL, model.fill.workload) if model.fill.workload else None
            fill = records.ExtraWorkloads(model.fill.count, of, model.fill.within_s)
        work = as_work(
            model,
            records.ScaleWork,
            run="",
            cell=cell.hash,
            attempt=0,
            prefix="",
            classes=tuple(class_of(name, one) for name, one in model.measured.items()) or OTHERS,
            arrivals=model.arrivals.work(gathered.times),
            follow=tuple(one.work() for one in model.kinds),
            observe=as_work(model.follow, records.Observe) if isinstance(model.follow, FollowOthers) else None,
            prometheus=as_work(metrics, records.Prometheus, url=metrics.prometheus) if metrics else None,
            audit_log=str(cell.directory / model.audit_log) if model.audit_log else "",
            background=background,
            fill=fill,
            find=records.Find(model.scale_bounds(), model.most) if model.find else None,
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
        return Judgement([*check_job(seen, DRIVER, "load generator"), *scaled.findings], scaled.metrics, scaled.charts)


kind = ScaleKind()
