"""What checks of several kinds have in common: the findings that they make, and the requirements that they know."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seatrial.job import Better, Finding, ObservedStep, Verdict


class Threshold(Protocol):
    """A requirement of a suite (`>=15`, `<2Gi`, `1`), as far as a check has to know it."""

    @property
    def text(self) -> str: ...

    def met_by(self, have: float) -> bool: ...


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


def figure_data(value: float, unit: str, better: Better | None, source: str) -> dict[str, Any]:
    """A figure as the history takes it."""
    made: dict[str, Any] = {"value": value, "unit": unit, "source": source}
    return {**made, "better": better} if better else made


def check_limit(
    step: str, check: str, tries: Sequence[Mapping[str, Any]], low: float, high: float, doubt: str
) -> Finding:
    """The finding on a search for the highest rate that keeps the bounds, of requests or of workloads.

    `tries` have a rate, the bounds that broke, and why they say nothing, if so; `low` is the highest that held.
    """
    table = "\n".join(f"{one['rate']:>10.4g}/s  {_text(one)}" for one in tries)
    if not low:
        rates = " to ".join(f"{one['rate']:.4g}/s" for one in (*tries[-1:], *tries[:1]))
        why = "; ".join(tries[-1]["broken"]) if tries else "none was tried"
        verdict, class_ = (Verdict.INVALID, "late") if doubt else (Verdict.FAILED, "bounds")
        text = doubt or f"no rate from {rates} keeps the bounds: {why}"
        return Finding(step, check, verdict, class_, text, table)
    if doubt:
        text = f"at least {low:.4g}/s; at the next one {doubt}"
    else:
        text = f"{low:.4g}/s keeps the bounds" + (f", {high:.4g}/s does not" if high else ", and was the most to try")
    return Finding(
        step, check, Verdict.PASSED, message=text, evidence=table, data={"stages": [dict(one) for one in tries]}
    )


def _text(one: Mapping[str, Any]) -> str:
    return one["doubt"] or "; ".join(one["broken"]) or "holds"
