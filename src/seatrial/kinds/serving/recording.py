"""Turns a trusted server's answers into expected answers (`seatrial record`) and tolerances (`seatrial calibrate`).

Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seatrial import SeatrialError
from seatrial.job import Observation, ObservedStep
from seatrial.kinds.job import DRIVER
from seatrial.kinds.serving.answers import AnswerRule, Comparing, tolerance_for
from seatrial.kinds.serving.answers.answer import compare_answer, compare_ways, is_determined
from seatrial.kinds.serving.answers.drift import Calibrated, calibrate
from seatrial.kinds.serving.answers.token_diff import diff_answers
from seatrial.kinds.serving.cases import Dialect, cases_of, recorded_answers
from seatrial.kinds.serving.cases import recorded as recorded_cases
from seatrial.kinds.serving.cases.read import CASE_LIMITS, answers_beside, named_apart
from seatrial.kinds.serving.ended import driver_records
from seatrial.kinds.serving.generation import Answer, Generation, Trouble, generations_of
from seatrial.kinds.serving.model import ServingTrial
from seatrial.kinds.serving.parts import work_of
from seatrial.kinds.serving.request import Case
from seatrial.kinds.serving.work import Ask, asks_of
from seatrial.suite import Cell, Suite, from_data
from seatrial.suite.yaml.document import CannotEdit
from seatrial.suite.yaml.source import Source, read_source

NEW_ANSWERS = "# Answers recorded by `seatrial record`, by case name.\n"
_OF_THE_SERVER = ("429", "500", "502", "503", "504", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "UNKNOWN")


class CaseAnswers(msgspec.Struct, frozen=True):
    """A case and the answer to each way of asking it."""

    case: Case
    answers: tuple[tuple[Ask, Answer], ...]


def answers_in(cell: Cell, observed: Mapping[str, Observation]) -> list[CaseAnswers]:
    """Answers of all cases that were asked; empty for a case without one."""
    step = next(iter(observed[DRIVER].steps), ObservedStep(DRIVER, "drive"))
    found = driver_records(step).answers
    by_case: dict[int, list[tuple[Ask, Answer]]] = {}
    for ask in asks_of(work_of(cell)):
        if ask.thing in found:
            by_case.setdefault(ask.case, []).append((ask, found[ask.thing]))
    return [CaseAnswers(case, tuple(by_case.get(index, ()))) for index, case in enumerate(cell.gathered.asked)]


class TrustedCell(NamedTuple):
    """A cell of a trusted server and its answers."""

    cell: Cell
    answers: list[CaseAnswers]


def suite_for(purpose: str, suite: Suite, models: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Suite:
    """A suite with only its serving trials, for the purpose `record` or `calibrate`. Raises SuiteError, and
    SeatrialError if it has none."""
    names = [name for name, trial in suite.trials.items() if isinstance(trial, ServingTrial)]
    trials = {name: {**suite.data["trials"][name], "purpose": purpose} for name in names}
    if not trials:
        raise SeatrialError(f"no serving trial in {suite.path}")
    return from_data({**suite.data, "trials": trials}, suite.directory, *models, path=suite.path)


def written_files(cell: Cell) -> list[Path]:
    """Files that hold the expected answers of a cell: its answers file, or its case files."""
    paths = [cell.spec.answers] if cell.spec.answers is not None else cell.spec.cases
    return [cell.directory / path for path in paths]


def check_one_each(cells: Iterable[Cell]) -> None:
    """Raises SeatrialError if several cells would write the same file: the user must choose the reference."""
    by_file: dict[Path, list[str]] = {}
    for cell in cells:
        for path in written_files(cell):
            by_file.setdefault(path, []).append(cell.id)
    for path, ids in by_file.items():
        if len(ids) > 1:
            names = "\n".join(f"  --select '{name}'" for name in ids[:20])
            raise SeatrialError(f"{len(ids)} cells would write {path}; choose the trusted one with --select:\n{names}")


class RecordingState(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    REFUSED = "refused"


class Recorded(msgspec.Struct, frozen=True):
    """The recording of a case; `lines` is the token diff, or the reason why nothing is written."""

    case: Case
    state: RecordingState
    answer: Answer | None = None
    lines: tuple[str, ...] = ()


def record_cell(trusted: TrustedCell) -> list[Recorded]:
    """The recording of each case of a cell."""
    # An unknown precision counts as the finest.
    spec, found = trusted.cell.spec, trusted.cell.gathered.tolerance
    tolerance = found or tolerance_for(spec.compare.precision, unknown="f32")
    rule = AnswerRule.NEAR_TIE if spec.compare.rule.similarity else spec.compare.rule
    comparing = Comparing(rule, tolerance, model=spec.model)
    asked = [one for one in trusted.answers if one.case.expect is None or one.case.answer]
    return [_to_record(one, comparing, spec.server.protocol) for one in asked]


def _to_record(one: CaseAnswers, comparing: Comparing, protocol: str) -> Recorded:
    """An answer that would pass is not written, so that a file changes only where the server did."""
    case = one.case
    if refused := _refusal(one, comparing):
        return Recorded(case, RecordingState.REFUSED, lines=(refused,))
    answer = one.answers[0][1]
    name = case.request.model or comparing.model
    # A name that the server chooses, such as the path of a file, says nothing about other servers.
    made = [one if one.model == name else msgspec.structs.replace(one, model=None) for one in generations_of(answer)]
    answer = msgspec.structs.replace(answer, generations=tuple(made), messages=())
    lines = diff_answers(case.answer, case.error, answer, comparing.tolerance.drift)
    if case.answer is None and case.error is None:
        return Recorded(case, RecordingState.NEW, answer, tuple(lines))
    compared = compare_answer(case, answer, comparing, protocol)[0]
    before = case.answer.generations if case.answer is not None else ()
    more = any(
        getattr(new, name) and not getattr(old, name)
        for old, new in zip(before, made, strict=False)
        for name in ("tokens", "input_tokens", "reasoning", "model")
    )
    if compared.passes and not more:
        return Recorded(case, RecordingState.SAME)
    return Recorded(case, RecordingState.CHANGED, answer, (*filter(None, [compared.message]), *lines))


def _refusal(one: CaseAnswers, comparing: Comparing) -> str:
    """Reason not to record the answers; empty if there is none."""
    if not one.answers:
        return "no answer"
    first = one.answers[0][1]
    if first.failure is not None and first.failure.trouble is not Trouble.ANSWERED:
        return f"no answer: {first.failure.message}"
    if first.failure is not None and one.case.error is None and first.failure.code in _OF_THE_SERVER:
        return f"server error: {first.failure.text}"
    if not is_determined(one.case.request) and not one.case.skip_check and first.failure is None:
        return "the answer is random; set a `seed` or `skip_check: true`"
    for ask, other in one.answers[1:]:
        compared = compare_ways(one.case, first, other, comparing)
        if not compared.passes:
            return f"the server's answers differ ({ask.way}): {compared.message}"
    return ""


def new_texts(cell: Cell, recorded: Sequence[Recorded]) -> dict[Path, str]:
    """New contents of the answers file, or of the case files if the trial has none. Raises SuiteError and
    CannotEdit."""
    by_name = {one.case.name: one.answer for one in recorded if one.answer is not None}
    model: ServingTrial = cell.spec
    paths = written_files(cell)
    if model.answers is not None:
        return {paths[0]: _in_answers(paths[0], by_name)}
    names = iter([planned.case for planned in cell.gathered.cases])
    texts = {}
    for path in paths:
        source = read_source(path, limits=CASE_LIMITS)
        file = cases_of(source, unanswered=True)
        cases = [next(names, None) for _ in file.cases]
        if [case and case.request for case in cases] != [case.request for case in file.cases]:
            raise CannotEdit(str(path), "changed while its cases were asked; run `seatrial record` again")
        wanted = {index: by_name[case.name] for index, case in enumerate(cases) if case and case.name in by_name}
        apart = {index: one.name for index, one in enumerate(named_apart(file.cases)) if one.request.path}
        beside = {apart[index]: answer for index, answer in wanted.items() if index in apart}
        if beside:
            texts[answers_beside(path)] = _in_answers(answers_beside(path), beside)
        if len(beside) < len(wanted):
            # A conversation is one item of the file.
            items = {at: sum(not one.request.turn for one in file.cases[:at]) for at in wanted}
            inline = {items[index]: answer for index, answer in wanted.items() if index not in apart}
            texts[path] = recorded_cases(source, file, inline)
    return texts


def _in_answers(path: Path, answers: Mapping[str, Answer]) -> str:
    """New contents of a file of answers by case name."""
    source = read_source(path, limits=CASE_LIMITS) if path.exists() else Source(str(path), "", limits=CASE_LIMITS)
    if not source.text:
        source = Source(str(path), NEW_ANSWERS, limits=CASE_LIMITS)
    return recorded_answers(source, answers, Dialect.TESTER)


class CalibratedSeries(NamedTuple):
    """Calibration of repeated cells, and the tolerance file of their trial."""

    name: str
    seen: Calibrated
    path: Path


def calibrate_cells(cells: Iterable[TrustedCell]) -> Iterator[CalibratedSeries]:
    by_series: dict[str, list[TrustedCell]] = {}
    for one in cells:
        by_series.setdefault(one.cell.benchmark, []).append(one)
    for name, alike in by_series.items():
        cell = alike[0].cell
        compare = cell.spec.compare
        seen = calibrate(_to_calibrate([one.answers for one in alike]), compare.precision)
        yield CalibratedSeries(name, seen, cell.directory / (compare.tolerances or "tolerances.yaml"))


def _to_calibrate(runs: Sequence[Sequence[CaseAnswers]]) -> Iterator[tuple[Generation, Generation]]:
    """Pairs each answer with the expected one, or with the first answer if none is expected."""
    reference: dict[str, Answer] = {}
    for cases in runs:
        for one in cases:
            if one.case.error is not None or one.case.request.turn or not is_determined(one.case.request):
                continue
            if one.case.answer is not None and not one.case.skip_check:
                reference.setdefault(one.case.name, one.case.answer)
            for _, answer in one.answers:
                if answer.failure is None:
                    base = reference.setdefault(one.case.name, answer)
                    if base is not answer:
                        yield from zip(generations_of(base), generations_of(answer), strict=False)
