"""The two findings that most checks make of a step."""

from seatrial.job import Finding, StepSeen, Verdict


def passed(seen: StepSeen, check: str, message: str) -> Finding:
    return Finding(step=seen.name, check=check, verdict=Verdict.PASSED, message=message)


def failed(seen: StepSeen, check: str, class_: str, message: str, evidence: str = "") -> Finding:
    return Finding(
        step=seen.name,
        check=check,
        verdict=Verdict.FAILED,
        class_=class_,
        message=message,
        evidence=evidence,
    )
