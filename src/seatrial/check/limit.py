"""The finding on a search for the highest rate that keeps the bounds: of requests, or of workloads."""

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.job import Finding, Verdict


def check_limit(
    step: str, check: str, tries: Sequence[Mapping[str, Any]], low: float, high: float, late: bool
) -> Finding:
    """`tries` have a rate, the bounds that broke, and whether the driver was late; `low` is the highest that held."""
    table = "\n".join(f"{one['rate']:>10.4g}/s  {_text(one)}" for one in tries)
    if not low:
        rates = " to ".join(f"{one['rate']:.4g}/s" for one in (*tries[-1:], *tries[:1]))
        why = "; ".join(tries[-1]["broken"]) if tries else "none was tried"
        verdict, class_ = (Verdict.INVALID, "late") if late else (Verdict.FAILED, "bounds")
        text = "the driver was late" if late else f"no rate from {rates} keeps the bounds: {why}"
        return Finding(step, check, verdict, class_, text, table)
    if late:
        text = f"at least {low:.4g}/s; at the next one the driver was late, and it can offer no more"
    else:
        text = f"{low:.4g}/s keeps the bounds" + (f", {high:.4g}/s does not" if high else ", and was the most to try")
    return Finding(
        step, check, Verdict.PASSED, message=text, evidence=table, data={"stages": [dict(one) for one in tries]}
    )


def _text(one: Mapping[str, Any]) -> str:
    return "the driver was late" if one["late"] else "; ".join(one["broken"]) or "holds"
