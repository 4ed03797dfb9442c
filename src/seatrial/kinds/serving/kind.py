"""The kind `serving`: the parts of an attempt, and how they are judged."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seatrial import SeatrialError
from seatrial.checks.findings import metric_data
from seatrial.job import Contents, Finding, Observation, ObservedStep, PartSpec, SkippedItem, Verdict
from seatrial.kinds.job import DRIVER
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.serving import ended
from seatrial.kinds.serving.answers import Answered, Comparing, case_step, check_answers, with_reason
from seatrial.kinds.serving.charts import charts_of, in_short
from seatrial.kinds.serving.gather import gather_cases
from seatrial.kinds.serving.generation import Trouble, generations_of
from seatrial.kinds.serving.load import check_load, check_result_file
from seatrial.kinds.serving.model import ServingGathered, ServingTrial
from seatrial.kinds.serving.parts import SERVER, parts_of, tolerance_of, work_of
from seatrial.kinds.serving.work import ServingWork, asks_of
from seatrial.suite import Cell


class ServingKind:
    name = "serving"
    model = ServingTrial

    def gather(self, cell: Cell) -> ServingGathered:
        return gather_cases(cell)

    def contents(self, cell: Cell) -> Contents:
        cases, rules = cell.gathered.cases, enumerate(cell.spec.skip)
        skipped = tuple(SkippedItem(one.case.name, one.skipped) for one in cases if one.skipped)
        unmatched = tuple(f"skip[{at}]" for at, rule in rules if not any(rule.fits(one.case) for one in cases))
        work = work_of(cell)
        how = "whole and as a stream" * work.stream, "alone and in a crowd" * work.batching
        shown = f" (each case {', '.join(filter(None, how))})" if any(how) else ""
        return Contents("case", len(work.questions), len(asks_of(work)), skipped, unmatched, shown)

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        return parts_of(cell)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        """Every case has findings, whatever happened to the server and the client."""
        server, driver = observed.get(SERVER), observed[DRIVER]
        step = next(iter(driver.steps), ObservedStep(DRIVER, "drive"))
        records = ended.driver_records(step)
        cause = ended.cause_of_silence(server, driver, step, records)
        findings = ended.check_server(server) if server is not None else []
        findings += ended.check_driver(driver, step, server)
        findings.append(ended.check_ready(records, cause))
        work = work_of(cell)
        findings += _check_cases(cell, work, records, cause, server)
        metrics: dict[str, Any] = {}
        if records.ready is not None:
            source = "the client's clock, from the first try"
            metrics["first_answer"] = metric_data(records.ready.seconds, "s", "lower", source)
        if work.load is not None:
            found, measured = check_load(work.load, records, cause)
            findings, metrics = findings + found, metrics | measured
        load, stages = (records.load.summary, records.load.stages) if records.load else (None, [])
        skipped = len(cell.gathered.cases)
        idle = f"all {skipped} cases are skipped" if skipped and not cell.gathered.asked and work.load is None else ""
        charts = charts_of(findings, load, stages, work.load.bounds if work.load is not None else ())
        return Judgement(findings + in_short(findings, load), metrics, charts, idle)

    def judge_file(self, cell: Cell, path: Path) -> Judgement:
        """The results of another load generator, by the bounds of the trial's load."""
        load = work_of(cell).load
        if load is None:
            raise SeatrialError(f"trial {cell.trial!r} has no `load` to take bounds from")
        findings, metrics, note = check_result_file(path, load)
        return Judgement(findings, metrics, charts_of(findings, note.summary, note.stages, load.bounds))


_NOT_ASKED, _ANSWERED = {"agreement": "not_asked"}, {"agreement": "answered"}


def _check_cases(
    cell: Cell, work: ServingWork, records: ended.DriverRecords, cause: ended.EndCause, server: Observation | None
) -> Iterator[Finding]:
    """Compares the answers; other cases get a finding with the reason for the missing answer."""
    model: ServingTrial = cell.spec
    cases = cell.gathered.asked
    answered: list[Answered] = []
    for ask in asks_of(work):
        case = cases[ask.case]
        answer = records.answers.get(ask.thing)
        # An error from the server may be the expected answer, or the one to record.
        error_counts = case.error is not None or model.purpose == "record"
        if answer is None:
            how, data = ("not answered", {}) if ask.thing in records.begun else ("not asked", _NOT_ASKED)
            yield Finding(case_step(case), ask.way, cause.verdict, cause.class_, f"{how}: {cause.text}", data=data)
        elif answer.failure and not (error_counts and answer.failure.trouble is Trouble.ANSWERED):
            found = ended.trouble_of(answer.failure, cause, server)
            yield Finding(case_step(case), ask.way, found.verdict, found.class_, with_reason(case, found.text))
        else:
            answered.append(Answered(case, ask.way, answer, ask.thing))
    if model.purpose == "compare":
        yield from check_answers(answered, _comparing(cell, answered, records), work.protocol)
    else:
        for one in answered:
            yield Finding(case_step(one.case), one.way, Verdict.PASSED, message="answered", data=_ANSWERED)
    for planned in cell.gathered.cases:
        if planned.skipped:
            why = planned.skipped
            yield Finding(case_step(planned.case), "not asked", Verdict.SKIPPED, message=why, data=_NOT_ASKED)


def _comparing(cell: Cell, answered: list[Answered], records: ended.DriverRecords) -> Comparing:
    model: ServingTrial = cell.spec
    compare = model.compare
    found: dict[tuple[str, str], float] = {}
    for one in answered if compare.rule.similarity else ():
        expected = one.case.answer.generations if one.case.answer is not None else ()
        similar = records.similarities.get(one.thing, [])
        for wanted, made, value in zip(expected, generations_of(one.answer), similar, strict=False):
            found[wanted.text or "", made.text or ""] = value
    # A server that is not asked for usage in streams does not send it.
    usage = model.server.extra.get("stream_options", True) is not None
    return Comparing(compare.rule, tolerance_of(cell), compare.similarity, found, model.model, usage)


kind = ServingKind()
