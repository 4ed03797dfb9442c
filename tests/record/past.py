"""Runs to keep in a history."""

from typing import Any

from seatrial.job import AttemptResult, CellResult, Exit, Finding, Outcome, Place, RunResults, Stage, StageTime, Verdict

METRICS = {"peak": {"value": 12, "unit": "MiB"}, "steps": {"import numpy": {"seconds": 0.5}}, "python": "3.11"}


def cell(
    hash_: str, *seconds: float, verdict: Verdict = Verdict.PASSED, started_s: float = 1000.0, **changes: Any
) -> CellResult:
    attempts = [
        AttemptResult(
            number=number,
            place=Place("here", "small", "node-1"),
            stages=[StageTime(Stage.STARTED, started_s + number, "agent")],
            exit=Exit(Outcome.EXITED, 0),
            verdict=verdict,
            seconds=took,
        )
        for number, took in enumerate(seconds, 1)
    ]
    values: dict[str, Any] = {"id": f"t[n={hash_}]", "trial": "t", "attempts": attempts, "metrics": METRICS} | changes
    return CellResult(hash=hash_, axes={"n": hash_}, verdict=verdict, **values)


def run(name: str, *cells: CellResult, started_s: float = 1000.0, commit: str = "") -> RunResults:
    return RunResults(
        1, name, "suite", Verdict.PASSED, list(cells), started_s=started_s, seconds=9.0, commit=commit, seatrial="0"
    )


def timed(
    value: float,
    hash_: str = "a",
    verdict: Verdict = Verdict.PASSED,
    at_s: float = 0.0,
    better: str = "lower",
    **changes: Any,
) -> CellResult:
    """A cell with one metric that somebody judges."""
    metrics = {"step_time": {"value": value, "unit": "s", "better": better, "source": "log"}}
    alarm = verdict in (Verdict.SLOWER, Verdict.FASTER)
    findings = [Finding("figures", "bounds", verdict, message=f"{value} s is out of bounds")] if alarm else []
    values: dict[str, Any] = {"metrics": metrics, "findings": findings, "fingerprint": "f00d0000"} | changes
    return cell(hash_, 1.0, verdict=verdict, started_s=at_s, **values)
