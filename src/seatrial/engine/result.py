"""What a cell came to, from all attempts that were made at it, and a run from its cells."""

import itertools

from seatrial.engine.judge import Judged
from seatrial.job import CellResult, Verdict, worst_cell
from seatrial.suite import Cell

OUT_OF_BOUNDS = (Verdict.SLOWER, Verdict.FASTER)


def result_of(cell: Cell, made: list[Judged], why: str = "") -> CellResult:
    """A cell's result is that of its last attempt; the earlier ones stay visible."""
    last = made[-1] if made else None
    verdict = last.attempt.verdict if last else Verdict.SKIPPED
    return CellResult(
        id=cell.id,
        hash=cell.hash,
        axes=cell.axes,
        verdict=verdict,
        trial=cell.trial,
        kind=cell.model.kind,
        flaky=verdict in (Verdict.PASSED, Verdict.XFAIL) and any(not one.attempt.verdict.good for one in made),
        why=_why(made) if made else why,
        attempts=[one.attempt for one in made],
        findings=last.judgement.findings if last else [],
        metrics=last.judgement.metrics if last else {},
        benchmark=cell.benchmark,
        fingerprint=last.fingerprint if last else "",
    )


def out_of_bounds(made: list[Judged]) -> list[Judged]:
    return [one for one in made if one.attempt.verdict in OUT_OF_BOUNDS]


def agreeing(out: list[Judged]) -> int:
    """How many at the end have a figure in common that is out on the same side."""
    sets = [{(f.step, f.check, f.verdict) for f in one.judgement.findings if f.verdict in OUT_OF_BOUNDS} for one in out]
    return sum(1 for _ in itertools.takewhile(bool, itertools.accumulate(reversed(sets), lambda a, b: a & b)))


def _why(made: list[Judged]) -> str:
    """Of the last attempt; what is out of bounds says how many runs agree, or that they do not."""
    last = made[-1].attempt
    judged = out_of_bounds(made)
    out = [one.attempt.verdict for one in judged]
    if last.verdict not in OUT_OF_BOUNDS or len(out) < 2:
        return last.why
    if len(set(out)) > 1:
        both = " and ".join(f"{out.count(verdict)} {verdict}" for verdict in OUT_OF_BOUNDS)
        return f"{last.why} (not stable: of {len(made)} runs {both})"
    if agreeing(judged) < len(out):
        return f"{last.why} (not stable: of {len(made)} runs {len(out)} {last.verdict}, not by the same figure)"
    return f"{last.why} ({len(out)} of {len(made)} runs agree)"


def run_verdict(cells: list[CellResult]) -> Verdict:
    """One that left cells out has not passed, whatever the others did."""
    verdict = worst_cell(cell.verdict for cell in cells)
    return Verdict.SKIPPED if verdict.good and any(not cell.attempts for cell in cells) else verdict
