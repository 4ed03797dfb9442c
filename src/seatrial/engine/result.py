"""What a cell came to, from all attempts that were made at it, and a run from its cells."""

import itertools

import msgspec

from seatrial.engine.judge import JudgedAttempt
from seatrial.job import AttemptResult, CellResult, Verdict, worst_cell
from seatrial.suite import Cell

OUT_OF_BOUNDS = (Verdict.SLOWER, Verdict.FASTER)
_INSIDE = (Verdict.PASSED, Verdict.XFAIL)


def result_of(cell: Cell, made: list[JudgedAttempt], why: str = "") -> CellResult:
    """A cell's result is that of its last attempt; of runs that do not agree whether a figure is out of its bounds,
    that of the majority. The other attempts stay visible, with their figures."""
    last = _deciding(made)
    verdict = last.attempt.verdict if last else Verdict.SKIPPED
    return CellResult(
        id=cell.id,
        hash=cell.hash,
        axes=cell.axes,
        verdict=verdict,
        trial=cell.trial,
        kind=cell.model.kind,
        flaky=verdict in _INSIDE and any(not one.attempt.verdict.good for one in made),
        why=_why(made, last) if last else why,
        attempts=[one.attempt if one is last else _with_figures(one) for one in made],
        findings=last.judgement.findings if last else [],
        metrics=last.judgement.metrics if last else {},
        exhibits=last.judgement.exhibits if last else [],
        benchmark=cell.benchmark,
        fingerprint=last.settings.fingerprint if last else "",
        conditions=last.settings.conditions if last else {},
        under_test=last.settings.under_test if last else {},
    )


def _with_figures(one: JudgedAttempt) -> AttemptResult:
    """An attempt that confirmed a figure or was not confirmed; one that failed has none that mean anything."""
    if one.attempt.verdict in (*OUT_OF_BOUNDS, *_INSIDE):
        return msgspec.structs.replace(one.attempt, metrics=one.judgement.metrics)
    return one.attempt


def _deciding(made: list[JudgedAttempt]) -> JudgedAttempt | None:
    """The attempt that the cell's result is of. Two runs that are out on the same side by the same figure are not
    undone by one that is not."""
    if not made:
        return None
    out = out_of_bounds(made)
    inside = [one for one in made if one.attempt.verdict in _INSIDE]
    outvoted = made[-1] in inside and agreeing(out) > len(inside)
    return out[-1] if outvoted else made[-1]


def out_of_bounds(made: list[JudgedAttempt]) -> list[JudgedAttempt]:
    return [one for one in made if one.attempt.verdict in OUT_OF_BOUNDS]


def agreeing(out: list[JudgedAttempt]) -> int:
    """How many at the end have a figure in common that is out on the same side."""
    sets = [{(f.step, f.check, f.verdict) for f in one.judgement.findings if f.verdict in OUT_OF_BOUNDS} for one in out]
    return sum(1 for _ in itertools.takewhile(bool, itertools.accumulate(reversed(sets), lambda a, b: a & b)))


def _why(made: list[JudgedAttempt], deciding: JudgedAttempt) -> str:
    """Of the deciding attempt; what is out of bounds says how many runs agree, or that they do not."""
    last = deciding.attempt
    judged = out_of_bounds(made)
    out = [one.attempt.verdict for one in judged]
    if last.verdict not in OUT_OF_BOUNDS or len(out) < 2:
        return last.why
    if len(set(out)) > 1:
        both = " and ".join(f"{out.count(verdict)} {verdict}" for verdict in OUT_OF_BOUNDS)
        return f"{last.why} (not stable: of {len(made)} runs {both})"
    if agreeing(judged) < len(out):
        return f"{last.why} (not stable: of {len(made)} runs {len(out)} {last.verdict}, not by the same figure)"
    if len(out) < len(made):
        return f"{last.why} (not stable: {len(out)} of {len(made)} runs {last.verdict})"
    return f"{last.why} ({len(out)} of {len(made)} runs agree)"


def run_verdict(cells: list[CellResult]) -> Verdict:
    """One that left cells out has not passed, whatever the others did."""
    verdict = worst_cell(cell.verdict for cell in cells)
    return Verdict.SKIPPED if verdict.good and any(not cell.attempts for cell in cells) else verdict
