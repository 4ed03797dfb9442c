"""CTRF (Common Test Report Format): one test per cell, with its steps, and its attempts as retries."""

import json
import uuid

from seatrial import __version__
from seatrial.job import AttemptResult, Excluded, Stage, Verdict, worst
from seatrial.report.view.cell import CellView
from seatrial.report.view.run import RunView
from seatrial.report.view.words import axes_text, clock_text, one_line, shorten, strip_controls

SPECIFICATION = "0.0.0"
_MOST_TEXT = 16_000
_STATUS = {Verdict.PASSED: "passed", Verdict.SKIPPED: "skipped", Verdict.XFAIL: "other"}  # all others are failed
_STATES = ("passed", "failed", "skipped", "pending", "other")


def render_ctrf(run: RunView) -> str:
    excluded = run.declared_exclusions
    tests = [_test(run, cell) for cell in run.cells] + [_excluded_test(run, combination) for combination in excluded]
    summary = {"tests": len(tests)}
    summary |= {status: sum(test["status"] == status for test in tests) for status in _STATES}
    summary |= {"flaky": len(run.flaky)}
    summary |= {"start": _ms(run.started_s), "stop": _ms(run.started_s + run.seconds)}
    report = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "reportId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"seatrial:{run.run}")),
        "timestamp": clock_text(run.started_s + run.seconds, "%Y-%m-%dT%H:%M:%SZ"),
        "generatedBy": f"seatrial {__version__}",
        "results": {
            "tool": {"name": "seatrial", "version": run.seatrial},
            "summary": summary,
            "tests": tests,
            "environment": {"buildName": one_line(run.suite), "commit": one_line(run.commit)},
            "extra": {
                "run": run.run,
                "verdict": run.verdict.value,
                "causes": [cause.summary(_text) | {"news": cause.news_text} for cause in run.causes],
                "holesOfSelection": len(run.excluded) - len(excluded),
            },
        },
    }
    return json.dumps(report, indent=1, ensure_ascii=True) + "\n"


def _test(run: RunView, cell: CellView) -> dict[str, object]:
    last = cell.last
    test: dict[str, object] = {
        "name": _text(cell.id) or cell.hash,
        "status": _STATUS.get(cell.verdict, "failed") if last else "pending",
        "duration": _ms(last.seconds or 0.0) if last else 0,
        "suite": [_text(run.suite), _text(cell.trial) or "trial"],
        "rawStatus": cell.verdict.value,
        "flaky": cell.flaky,
        "retries": max(0, len(cell.attempts) - 1),
        "parameters": {_text(axis): _text(value) for axis, value in cell.axes.items()},
        "steps": _steps(cell),
        "extra": {"hash": cell.hash, "cause": cell.cause.id if cell.cause else "", "news": cell.news_text},
    }
    if len(cell.attempts) > 1:
        test["retryAttempts"] = [_attempt(one) for one in cell.attempts]
    if cell.bad or not last:
        evidence = "\n\n".join(finding.evidence for finding in cell.bad_findings if finding.evidence)
        test["message"] = _text(cell.error)
        test["trace"] = shorten(strip_controls(evidence), _MOST_TEXT)
    return test


def _attempt(attempt: AttemptResult) -> dict[str, object]:
    times = {one.stage: one.wall_s for one in attempt.stages}
    made: dict[str, object] = {
        "attempt": max(1, attempt.number),
        "status": _STATUS.get(attempt.verdict, "failed"),
        "duration": _ms(attempt.seconds or 0.0),
        "extra": {"place": _text(str(attempt.place))},
    }
    made |= {"start": _ms(times[Stage.STARTED])} if Stage.STARTED in times else {}
    return made if attempt.verdict.good else made | {"message": _text(attempt.headline or attempt.why)}


def _steps(cell: CellView) -> list[dict[str, str]]:
    statuses = {step: worst(one.verdict for one in of) for step, of in cell.by_step.items()}
    return [{"name": _text(step), "status": _STATUS.get(verdict, "failed")} for step, verdict in statuses.items()]


def _excluded_test(run: RunView, combination: Excluded) -> dict[str, object]:
    return {
        "name": _text(f"{combination.trial}[{axes_text(combination.axes.items())}]"),
        "status": "skipped",
        "duration": 0,
        "suite": [_text(run.suite), "holes"],
        "message": _text(combination.why),
        "rawStatus": "hole",
    }


def _text(text: str) -> str:
    return one_line(shorten(text, _MOST_TEXT))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
