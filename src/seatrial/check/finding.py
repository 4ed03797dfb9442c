"""The two findings that most checks make of a step."""

from seatrial.job import Finding, ObservedStep, Verdict


def passed(observed: ObservedStep, check: str, message: str) -> Finding:
    return Finding(step=observed.name, check=check, verdict=Verdict.PASSED, message=message)


def failed(observed: ObservedStep, check: str, class_: str, message: str, evidence: str = "") -> Finding:
    return Finding(
        step=observed.name,
        check=check,
        verdict=Verdict.FAILED,
        class_=class_,
        message=message,
        evidence=evidence,
    )
