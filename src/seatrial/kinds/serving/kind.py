"""The kind `serving`: its parts, and what was seen of them."""

from collections.abc import Mapping
from typing import Any

from seatrial.checks.findings import metric_data
from seatrial.job import Contents, Observation, ObservedStep, PartSpec, SkippedItem
from seatrial.kinds.job import DRIVER
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.serving.charts import charts_of, in_short
from seatrial.kinds.serving.ended import cause_of_silence, check_driver, check_ready, check_server, driver_records
from seatrial.kinds.serving.gather import asked_cases, gather_cases, planned_cases
from seatrial.kinds.serving.judge import check_cases
from seatrial.kinds.serving.load import check_load
from seatrial.kinds.serving.model import ServingTrial
from seatrial.kinds.serving.parts import SERVER, parts_of, work_of
from seatrial.kinds.serving.work import asks_of
from seatrial.suite import Cell


class ServingKind:
    name = "serving"
    model = ServingTrial

    def gather(self, cell: Cell) -> dict[str, Any]:
        return gather_cases(cell)

    def contents(self, cell: Cell) -> Contents:
        skipped = [SkippedItem(one.case.name, one.skipped) for one in planned_cases(cell) if one.skipped]
        return Contents("case", len(asked_cases(cell)), len(asks_of(work_of(cell))), tuple(skipped))

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        return parts_of(cell)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Every case has its findings, whatever became of server and driver."""
        server, driver = observed.get(SERVER), observed[DRIVER]
        step = next(iter(driver.steps), ObservedStep(DRIVER, "drive"))
        records = driver_records(step)
        cause = cause_of_silence(server, driver, step, records)
        findings = check_server(server) if server is not None else []
        findings += check_driver(driver, step, server)
        findings.append(check_ready(records, cause))
        work = work_of(cell)
        findings += check_cases(cell, work, records, cause, server)
        metrics: dict[str, Any] = {}
        if records.ready is not None:
            source = "the driver's clock, from its first try"
            metrics["first_answer"] = metric_data(records.ready.seconds, "s", "lower", source)
        if work.load is not None:
            found, measured = check_load(work.load, records, cause)
            findings, metrics = findings + found, metrics | measured
        load = records.load.summary if records.load else None
        return Judgement(findings + in_short(findings, load), metrics, charts_of(findings, load))


kind = ServingKind()
