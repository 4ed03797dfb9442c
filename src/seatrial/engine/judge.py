"""Judges attempts: the checks of the kind, then bounds and known failures. Results of cells and runs."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.checks import (
    MODEL,
    UNJUDGED,
    apply_xfails,
    check_bounds,
    check_gpu_model,
    check_kept,
    headline,
    with_log_error,
)
from seatrial.job import (
    AttemptResult,
    CellResult,
    Exit,
    Finding,
    Observation,
    Outcome,
    PartResult,
    Place,
    Settings,
    Verdict,
    worst,
    worst_cell,
)
from seatrial.kinds.protocol import Judgement, Kind
from seatrial.suite import Cell, settings_of


class JudgedAttempt(msgspec.Struct, frozen=True):
    """A finished attempt with its findings."""

    attempt: AttemptResult
    judgement: Judgement
    settings: Settings = Settings()


def judge_attempt(cell: Cell, kind: Kind, number: int, observed: Mapping[str, Observation]) -> JudgedAttempt:
    """The first part is the one under test: the attempt's place, times, exit and hardware are those of this part."""
    subject = next(iter(observed.values()))
    settings = settings_of(cell, subject.hardware, former_fingerprint(cell, subject.hardware))
    at_s = subject.stages[0].wall_s if subject.stages else 0.0
    judgement = judge(cell, kind, observed, settings, at_s)
    cancelled = any(one.exit.outcome is Outcome.CANCELLED for one in observed.values())
    if not judgement.findings and not cancelled:  # an unchecked cell must not pass
        why = f"not checked: kind {cell.kind!r} returned no findings"
        nothing = Finding("job", "seatrial", Verdict.INVALID, "seatrial", why)
        judgement = Judgement([nothing], judgement.metrics)
    errors = {part: one.error for part, one in observed.items() if one.error is not None}
    judgement = msgspec.structs.replace(judgement, findings=with_log_error(judgement.findings, errors))
    verdict = worst(finding.verdict for finding in judgement.findings)
    why = reason(judgement.findings, verdict)
    if judgement.idle and verdict is Verdict.PASSED:
        verdict, why = Verdict.SKIPPED, judgement.idle
    if cancelled:
        if verdict.good:  # an earlier failure stays
            verdict, why = Verdict.SKIPPED, "cancelled while running"
        else:
            why += " (then cancelled)"
    bad = [finding for finding in judgement.findings if not finding.verdict.good]
    parts = {name: PartResult(one.place, one.stages, one.exit) for name, one in observed.items()}
    attempt = AttemptResult(
        number=number,
        place=subject.place,
        stages=subject.stages,
        exit=subject.exit,
        verdict=verdict,
        why=why,
        headline=headline(judgement.findings),
        seconds=subject.seconds,
        parts=parts if len(parts) > 1 else {},
        unjudged=bool(bad) and all(finding.class_ == UNJUDGED for finding in bad),
    )
    return JudgedAttempt(attempt, judgement, settings)


def judge_broken(cell: Cell, number: int, why: str, traceback: str) -> JudgedAttempt:
    """An attempt that ended with an internal error. Neither the test nor the machine is at fault: a retry would not
    help, and the bug must not be overlooked."""
    return unjudged(cell, number, Finding("job", "seatrial", Verdict.INVALID, "seatrial", why, traceback))


def unjudged(cell: Cell, number: int, finding: Finding) -> JudgedAttempt:
    """An attempt that was not judged, with the reason."""
    place = Place(target=cell.target, machine=cell.machine_name)
    ended = Exit(Outcome.INFRA, message=finding.message)
    attempt = AttemptResult(number, place, [], ended, finding.verdict, f"{finding.step}: {finding.message}")
    return JudgedAttempt(attempt, Judgement([finding]))


def judge(cell: Cell, kind: Kind, observed: Mapping[str, Observation], settings: Settings, at_s: float) -> Judgement:
    """Returns all findings and metrics of an attempt that ran with `settings` at `at_s`."""
    return with_bounds(cell, kind.judge(cell, observed), observed, settings, at_s)


def with_bounds(
    cell: Cell, judgement: Judgement, observed: Mapping[str, Observation], settings: Settings, at_s: float
) -> Judgement:
    """Adds the findings that every kind has: of metrics by their bounds, of files, of GPUs; and known failures."""
    failed = not worst(finding.verdict for finding in judgement.findings).good
    record = cell.spec.unjudged == "record"
    metrics = check_bounds(judgement.metrics, cell.bounds, settings, cell.unbounded, at_s, failed, record)
    unkept = [finding for part, one in observed.items() for finding in check_kept(one, part)]
    gpus = []
    if observed and not any(one.check == MODEL for one in judgement.findings):  # the kind has not compared it
        part, subject = next(iter(observed.items()))
        gpus = check_gpu_model(subject, cell.machine.resources().gpu, part)
    findings = apply_xfails([*judgement.findings, *metrics, *gpus, *unkept], cell.xfails)
    return msgspec.structs.replace(judgement, findings=findings)


def reason(findings: list[Finding], verdict: Verdict) -> str:
    """The first finding with the verdict, in one line; empty for a pass."""
    if verdict is Verdict.PASSED:
        return ""
    reasons = (f"{one.step}: {one.message}" if one.message else one.step for one in findings if one.verdict is verdict)
    return next(reasons, "")


def former_fingerprint(cell: Cell, hardware: dict[str, Any]) -> str:
    """The fingerprint of Seatrial 0.1, of conditions and fields under test together, so that its bounds still apply."""
    others = ["others"] if "others" in hardware else []
    counted = {key: hardware.get(key) for key in ("cpu", "cores", "gpu", *others)}
    return hashlib.sha256((cell.work + json.dumps(counted, sort_keys=True, default=str)).encode()).hexdigest()[:8]


OUT_OF_BOUNDS = (Verdict.SLOWER, Verdict.FASTER)
_INSIDE = (Verdict.PASSED, Verdict.XFAIL)


def result_of(cell: Cell, made: list[JudgedAttempt], why: str = "") -> CellResult:
    """A cell's result is that of its last attempt; if attempts disagree on whether a metric is out of bounds, that of
    the majority. The result keeps all attempts with their metrics."""
    last = _deciding(made)
    verdict = last.attempt.verdict if last else Verdict.SKIPPED
    return CellResult(
        id=cell.id,
        hash=cell.hash,
        axes=cell.axes,
        verdict=verdict,
        trial=cell.trial,
        kind=cell.kind,
        flaky=verdict in _INSIDE and any(not one.attempt.verdict.good for one in made),
        why=_why(made, last) if last else why,
        attempts=[one.attempt if one is last else _with_metrics(one) for one in made],
        findings=last.judgement.findings if last else [],
        metrics=last.judgement.metrics if last else {},
        charts=last.judgement.charts if last else [],
        benchmark=cell.benchmark,
        fingerprint=last.settings.fingerprint if last else "",
        conditions=last.settings.conditions if last else {},
        under_test=last.settings.under_test if last else {},
    )


def _with_metrics(one: JudgedAttempt) -> AttemptResult:
    """Adds the metrics to an attempt, unless it failed: then they are meaningless."""
    if one.attempt.verdict in (*OUT_OF_BOUNDS, *_INSIDE):
        return msgspec.structs.replace(one.attempt, metrics=one.judgement.metrics)
    return one.attempt


def _deciding(made: list[JudgedAttempt]) -> JudgedAttempt | None:
    """The attempt that decides the cell's result. One run within bounds does not outweigh two that are out of bounds by
    the same metric on the same side."""
    if not made:
        return None
    out = out_of_bounds(made)
    inside = [one for one in made if one.attempt.verdict in _INSIDE]
    outvoted = made[-1] in inside and agreeing(out) > len(inside)
    return out[-1] if outvoted else made[-1]


def out_of_bounds(made: list[JudgedAttempt]) -> list[JudgedAttempt]:
    return [one for one in made if one.attempt.verdict in OUT_OF_BOUNDS]


def agreeing(out: list[JudgedAttempt]) -> int:
    """How many of the last runs have a common metric that is out of bounds on the same side."""
    sets = [{(f.step, f.check, f.verdict) for f in one.judgement.findings if f.verdict in OUT_OF_BOUNDS} for one in out]
    return sum(1 for _ in itertools.takewhile(bool, itertools.accumulate(reversed(sets), lambda a, b: a & b)))


def _why(made: list[JudgedAttempt], deciding: JudgedAttempt) -> str:
    """The reason of the deciding attempt; if it is out of bounds, with how many runs agree."""
    last = deciding.attempt
    judged = out_of_bounds(made)
    out = [one.attempt.verdict for one in judged]
    if last.verdict not in OUT_OF_BOUNDS or len(out) < 2:
        return last.why
    if len(set(out)) > 1:
        both = " and ".join(f"{out.count(verdict)} {verdict}" for verdict in OUT_OF_BOUNDS)
        return f"{last.why} (not stable: {both} of {len(made)} runs)"
    if agreeing(judged) < len(out):
        return f"{last.why} (not stable: {len(out)} of {len(made)} runs {last.verdict}, by different metrics)"
    if len(out) < len(made):
        return f"{last.why} (not stable: {len(out)} of {len(made)} runs {last.verdict})"
    return f"{last.why} ({len(out)} of {len(made)} runs agree)"


def run_verdict(cells: list[CellResult], interrupted: bool) -> Verdict:
    """The verdict of a run. A run that left out cells has not passed."""
    if interrupted:
        return Verdict.INTERRUPTED
    verdict = worst_cell(cell.verdict for cell in cells)
    return Verdict.SKIPPED if verdict.good and any(not cell.attempts for cell in cells) else verdict
