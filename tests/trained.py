"""What an agent notes of a training job, as values."""

from collections.abc import Sequence
from typing import Any

from seatrial.job import Exit, Finding, ObservedStep, Outcome

EXITED = Exit(Outcome.EXITED, 0)


def values(name: str, of: Sequence[Any], host: int = 0, first: int = 0, every_s: float = 0.1) -> dict[str, Any]:
    """A note of values, one a step."""
    numbers = list(range(first, first + len(of)))
    return {
        "note": "values",
        "name": name,
        "host": host,
        "steps": numbers,
        "values": list(of),
        "lines": [10 + number for number in numbers],
        "at": [every_s * number for number in numbers],
    }


def train(
    *notes: dict[str, Any],
    outcome: Outcome | None = Outcome.EXITED,
    code: int | None = 0,
    output: str = "",
    **result: Any,
) -> ObservedStep:
    return ObservedStep("train", "command", outcome=outcome, code=code, output=output, notes=list(notes), result=result)


def matched(text: str = "", line: int = 1, **hosts: int) -> dict[str, Any]:
    """The agent's count of a pattern; hosts as `h0=3`."""
    by_host = {name[1:]: count for name, count in (hosts or {"h0": 1}).items()}
    return {"count": sum(by_host.values()), "host": by_host, "line": line, "text": text}


def brief(findings: Sequence[Finding]) -> dict[str, tuple[str, str]]:
    return {one.check: (str(one.verdict), one.class_) for one in findings}
