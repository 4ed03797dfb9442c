"""What is known to fail: excused where it fails, reported where it does not."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from seatrial.check.ended import JOB
from seatrial.job import Finding, Verdict

EXCUSED = (Verdict.FAILED, Verdict.TIMEOUT, Verdict.SLOWER)
_BROKEN = (Verdict.INFRA, Verdict.INVALID)


class KnownFailure(Protocol):
    """As a suite has it."""

    @property
    def why(self) -> str: ...

    @property
    def step(self) -> str | None: ...

    def covers(self, step: str) -> bool: ...


def apply_xfails(findings: Iterable[Finding], xfails: Iterable[KnownFailure]) -> list[Finding]:
    """The findings with each known failure excused.

    1. A covered finding that failed, timed out or is slower becomes `xfail`, with the reason. Infra and invalid are
       never excused.
    2. When nothing that an xfail covers failed, the xfail should be taken out: what it covers becomes `xpass`. One
       without a step, for the whole cell, adds one finding that says so.
    3. Where that cannot be known, because all that it covers was skipped or something broke under the test, nothing is
       said.
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
            message = f"known to fail ({xfail.why}), and everything passed: take the xfail out"
            result.append(Finding(JOB, "xfail", Verdict.XPASS, message=message))
        else:
            for index in covered:
                if result[index].verdict is Verdict.PASSED:
                    result[index] = _as(judged[index], Verdict.XPASS, xfail.why)
    return result


def _as(finding: Finding, verdict: Verdict, why: str) -> Finding:
    reason = f"known to fail ({why})" + (
        ", and passed here: narrow the xfail, or take it out" if verdict is Verdict.XPASS else ""
    )
    return msgspec.structs.replace(finding, verdict=verdict, message=": ".join(filter(None, [reason, finding.message])))
