"""What an observation comes to: the checks of its kind, then what is the same for every kind, bounds and known
failures."""

from seatrial.check import apply_xfails, check_bounds
from seatrial.engine.time_limit import OverTime, time_limit
from seatrial.job import Finding, Observation, Verdict, worst
from seatrial.suite import Cell
from seatrial.trial import Judgement, Kind

JUDGE_S = 30.0


def judge(cell: Cell, kind: Kind, observation: Observation, fingerprint: str, at_s: float) -> Judgement:
    """All findings and figures. `fingerprint` is of what ran, `at_s` when it did."""
    try:
        with time_limit(JUDGE_S):
            judgement = kind.judge(cell, observation)
    except OverTime:
        why = f"judging took more than {JUDGE_S:g} s: a regular expression of the suite does not end on its output"
        judgement = Judgement([Finding("job", "judging", Verdict.INVALID, "invalid", why)])
    failed = not worst(finding.verdict for finding in judgement.findings).good
    figures = check_bounds(judgement.metrics, cell.bounds, fingerprint, cell.unbounded, at_s, failed)
    return Judgement(apply_xfails([*judgement.findings, *figures], cell.xfails), judgement.metrics)


def reason(findings: list[Finding], verdict: Verdict) -> str:
    """The first finding that made the verdict, in one line; nothing for a plain pass."""
    if verdict is Verdict.PASSED:
        return ""
    first = next((finding for finding in findings if finding.verdict is verdict), None)
    if first is None:
        return ""
    return f"{first.step}: {first.message}" if first.message else first.step
