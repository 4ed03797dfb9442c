"""What the answers to the cases come to: findings for each way in which each case was asked."""

from collections.abc import Iterator

import msgspec

from seatrial.job import Finding, Observation, Verdict, convert
from seatrial.kinds.serving.answers import Answered, Comparing, Tolerance, case_step, check_answers, tolerance_for
from seatrial.kinds.serving.answers.answer import generations_of
from seatrial.kinds.serving.ended import DriverRecords, EndCause, trouble_of
from seatrial.kinds.serving.gather import asked_cases, planned_cases
from seatrial.kinds.serving.generation import Case, Failure, Trouble
from seatrial.kinds.serving.model import ServingTrial
from seatrial.kinds.serving.work import ServingWork, asks_of
from seatrial.suite import Cell

_NOT_ASKED, _ANSWERED = {"agreement": "not_asked"}, {"agreement": "answered"}


def check_cases(
    cell: Cell, work: ServingWork, records: DriverRecords, cause: EndCause, server: Observation | None
) -> Iterator[Finding]:
    """What has an answer is compared; of the rest is said why it has none, and by whose fault."""
    model: ServingTrial = cell.spec
    cases = asked_cases(cell)
    answered: list[Answered] = []
    for ask in asks_of(work):
        case = cases[ask.case]
        answer = records.answers.get(ask.thing)
        if answer is None:
            how, data = ("not answered", {}) if ask.thing in records.begun else ("not asked", _NOT_ASKED)
            yield Finding(case_step(case), ask.way, cause.verdict, cause.class_, f"{how}: {cause.text}", data=data)
        elif answer.failure is not None and not _is_an_answer(answer.failure, case, model.purpose):
            found = trouble_of(answer.failure, cause, server)
            yield Finding(case_step(case), ask.way, found.verdict, found.class_, found.text)
        else:
            answered.append(Answered(case, ask.way, answer, ask.thing))
    if model.purpose == "compare":
        yield from check_answers(answered, _with_similarities(comparing_of(cell), answered, records), work.protocol)
    else:
        for one in answered:
            yield Finding(case_step(one.case), one.way, Verdict.PASSED, message="answered", data=_ANSWERED)
    for planned in planned_cases(cell):
        if planned.skipped:
            why = planned.skipped
            yield Finding(case_step(planned.case), "not asked", Verdict.SKIPPED, message=why, data=_NOT_ASKED)


def _is_an_answer(failure: Failure, case: Case, purpose: str) -> bool:
    """An error that the server answered with is what was expected, or what is to be expected from now on."""
    return failure.trouble is Trouble.ANSWERED and (case.error is not None or purpose == "record")


def _with_similarities(comparing: Comparing, answered: list[Answered], records: DriverRecords) -> Comparing:
    if not comparing.rule.similarity:
        return comparing
    found: dict[tuple[str, str], float] = {}
    for one in answered:
        expected = one.case.answer.generations if one.case.answer is not None else ()
        similar = records.similarities.get(one.thing, [])
        for wanted, made, value in zip(expected, generations_of(one.answer), similar, strict=False):
            found[wanted.text or "", made.text or ""] = value
    return msgspec.structs.replace(comparing, similarities=found)


def comparing_of(cell: Cell) -> Comparing:
    model: ServingTrial = cell.spec
    compare = model.compare
    known = cell.gathered.get("tolerance")
    tolerance = convert(known, Tolerance) if known else tolerance_for(compare.precision)
    return Comparing(compare.rule, tolerance, compare.similarity)
