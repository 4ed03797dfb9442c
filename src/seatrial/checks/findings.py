"""Helpers shared by checks: findings, thresholds, metric data, known failures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import msgspec

from seatrial.checks.ended import JOB
from seatrial.job import Better, Finding, ObservedStep, Verdict
from seatrial.suite.trial import Xfail


def passed(observed: ObservedStep, check: str, message: str) -> Finding:
    return Finding(observed.name, check, Verdict.PASSED, message=message)


def failed(observed: ObservedStep, check: str, class_: str, message: str, evidence: str = "") -> Finding:
    return Finding(observed.name, check, Verdict.FAILED, class_, message, evidence)


class MetricData(TypedDict):
    """A metric as stored in results and the history."""

    value: float
    unit: str
    source: NotRequired[str]
    better: NotRequired[Better]


def metric_data(value: float, unit: str, better: Better | None = None, source: str = "") -> MetricData:
    made: MetricData = {"value": value, "unit": unit}
    if source:
        made["source"] = source
    if better:
        made["better"] = better
    return made


def check_limit(
    step: str,
    check: str,
    tries: Sequence[Mapping[str, Any]],
    low: float,
    high: float,
    doubt: str,
    unit: str = "/s",
    given: bool = False,
) -> Finding:
    """The finding for a search of the highest rate (requests or workloads) within bounds, or for `given` loads. A
    search passes only with both ends: a rate that keeps the bounds, and one that does not.

    Each try has a rate, the bounds it broke, and `doubt`, why it is inconclusive; `low` is the highest rate that held.
    """
    what = "rate" if unit == "/s" else "load"
    results = [one["doubt"] or "; ".join(one["broken"]) or "holds" for one in tries]
    table = "\n".join(f"{one['rate']:>10.4g}{unit}  {result}" for one, result in zip(tries, results, strict=True))
    holds = f"{low:.4g}{unit} keeps the bounds" if low else ""
    breaks = f"{high:.4g}{unit} does not" if high else ""
    if not low and not doubt:
        tried = sorted(one["rate"] for one in tries)
        rates = " to ".join(f"{rate:.4g}{unit}" for rate in (*tried[:1], *tried[-1:]))
        why = "; ".join(tries[-1]["broken"]) if tries else ""
        text = f"no {what} from {rates} keeps the bounds: {why}" if tries else f"no {what} was tried"
        return Finding(step, check, Verdict.FAILED, "bounds", text, table)
    if doubt and (not given or not low):
        text = "; ".join(filter(None, [f"no limit found: {doubt}", holds, breaks]))
        return Finding(step, check, Verdict.INVALID, "late", text, table)
    if not high and not given:
        text = f"no limit found: {holds}, and it is the highest rate allowed (`most`)"
        return Finding(step, check, Verdict.INVALID, "late", text, table)
    above = f"; at the next higher {what}, {doubt}" if doubt else f", {breaks or f'the highest {what} tried'}"
    return Finding(step, check, Verdict.PASSED, "", holds + above, table, {"stages": [dict(one) for one in tries]})


# Known failures: excused if they fail, reported if they pass.


EXCUSED = (Verdict.FAILED, Verdict.TIMEOUT, Verdict.SLOWER)
_BROKEN = (Verdict.INFRA, Verdict.INVALID)


def apply_xfails(findings: Iterable[Finding], xfails: Iterable[Xfail]) -> list[Finding]:
    """Returns the findings with known failures excused.

    1. A covered finding that failed, timed out or is slower becomes `xfail`, with the reason. Infra and invalid are
       never excused.
    2. If nothing that an xfail covers failed, the covered findings become `xpass`. An xfail without a step, for the
       whole cell, adds one `xpass` finding instead.
    3. If everything covered was skipped, or any of it is infra or invalid, nothing changes.
    """
    result = list(findings)
    judged = list(result)
    for xfail in xfails:
        covered = [index for index, finding in enumerate(judged) if xfail.covers(finding.step)]
        verdicts = {judged[index].verdict for index in covered}
        if verdicts & set(EXCUSED):
            for index in covered:
                if judged[index].verdict in EXCUSED:
                    result[index] = _as(judged[index], Verdict.XFAIL, xfail.why)
        elif not verdicts - {Verdict.SKIPPED} or verdicts & set(_BROKEN):
            continue
        elif xfail.step is None:
            message = f"expected to fail ({xfail.why}) but everything passed; remove the xfail"
            result.append(Finding(JOB, "xfail", Verdict.XPASS, message=message))
        else:
            for index in covered:
                if result[index].verdict is Verdict.PASSED:
                    result[index] = _as(judged[index], Verdict.XPASS, xfail.why)
    return result


def _as(finding: Finding, verdict: Verdict, why: str) -> Finding:
    reason = f"expected to fail ({why})" + (
        " but passed; narrow or remove the xfail" if verdict is Verdict.XPASS else ""
    )
    return msgspec.structs.replace(finding, verdict=verdict, message=": ".join(filter(None, [reason, finding.message])))
