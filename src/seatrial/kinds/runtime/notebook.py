"""Checks a notebook: one finding per pass, from the notes of the notebook runner."""

import re
from typing import Any

from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first, with_heading
from seatrial.job import Exit, Finding, ObservedStep, Outcome, Verdict, count

CLASSES = ("error", "shell", "dead", "timeout", "memory", "broken")
_RAISING = re.compile(r"\s*-+> *\d+ ")  # IPython's arrow: the first is in the notebook, others are in called code
_METRICS = ("state", "class", "seconds", "cpu_s", "peak_memory_bytes", "gpu_peak_memory_bytes")


def check_notebook(observed: ObservedStep, ended: Exit) -> list[Finding]:
    """Returns a finding for every requested pass, even if the runner died, and for other passes that failed."""
    asked = [str(name) for name in observed.args.get("passes") or ["fresh"]]
    ended_passes = {note.get("pass"): note for note in observed.notes if note.get("note") == "passed-over"}
    unasked = [str(name) for name, note in ended_passes.items() if name not in asked and note.get("state") == "failed"]
    findings: list[Finding] = []
    for name in [*unasked, *asked]:
        cells = [cell for cell in observed.notes if cell.get("note") == "cell" and cell.get("pass") == name]
        findings.append(_pass(observed, ended, name, cells, ended_passes.get(name)))
        # The first failed cell is the finding of the pass; with `keep_going` there may be more.
        for cell in [cell for cell in cells if cell.get("state") == "failed"][1:]:
            number = f"cell {cell.get('cell')}"
            message = f"{number}: {cell.get('message') or cell.get('error') or ''}"
            findings.append(_failed(f"{observed.name} {name}", number, cell, message, [cell], {}))
    return findings


def _failed(
    step: str, check: str, note: dict[str, Any], message: str, cells: list[dict[str, Any]], data: dict[str, Any]
) -> Finding:
    class_ = str(note.get("class")) if note.get("class") in CLASSES else "error"
    verdict = Verdict.TIMEOUT if class_ == "timeout" else Verdict.FAILED
    return Finding(step, check, verdict, class_, message, _evidence(cells, message), data)


def _pass(
    observed: ObservedStep, ended: Exit, name: str, cells: list[dict[str, Any]], note: dict[str, Any] | None
) -> Finding:
    step = f"{observed.name} {name}"
    measured = [{key: cell[key] for key in _METRICS if cell.get(key) not in (None, "")} for cell in cells]
    data: dict[str, Any] = {}
    if cells:
        data["cells"] = [{"cell": cell.get("cell"), **more} for cell, more in zip(cells, measured, strict=True)]
    if note is None:
        return _unfinished(observed, ended, step, cells, data)
    state, message = note.get("state"), str(note.get("message") or "")
    if note.get("seconds"):
        data["seconds"] = note["seconds"]
    if state == "passed":
        if note.get("cells") == 0:
            return Finding(step, "notebook", Verdict.SKIPPED, message="no code cell was run", data=data)
        done = count(sum(cell.get("state") == "passed" for cell in cells), "cell")
        text = "; ".join(filter(None, [f"{done} in {note.get('seconds') or 0:.3g} s", message]))
        return Finding(step, "notebook", Verdict.PASSED, message=text, data=data)
    if state == "skipped":
        return Finding(step, "notebook", Verdict.SKIPPED, message=message.removeprefix("skipped: "), data=data)
    return _failed(step, "notebook", note, message, cells, data)


def _evidence(cells: list[dict[str, Any]], message: str) -> str:
    """The line that raised and the traceback; else the output and the source."""
    failed = next((cell for cell in cells if cell.get("state") == "failed"), None)
    if failed is None:
        return ""
    source = f"cell {failed.get('cell')}:\n{failed.get('source') or ''}"
    traceback = str(failed.get("traceback") or "")
    raising = [line.strip() for line in traceback.splitlines() if _RAISING.match(line)]
    if raising:
        return with_heading(raising[0], traceback)
    printed = most_relevant_first(str(failed.get("output") or ""))
    if printed:
        return with_heading(printed, source)
    return with_heading(str(failed.get("error") or failed.get("message") or message), traceback or source)


def _unfinished(
    observed: ObservedStep, ended: Exit, step: str, cells: list[dict[str, Any]], data: dict[str, Any]
) -> Finding:
    """The runner did not report the pass: it was stopped, or never started."""
    after = f", after cell {cells[-1].get('cell')}" if cells else ""
    bad = ended_badly(observed, "notebook", ended, step)
    if bad is None:
        message = f"the notebook runner exited {observed.code} without a result{after}"
        evidence = with_heading(message, most_relevant_first(observed.output))
        return Finding(step, "notebook", Verdict.FAILED, "broken", message, evidence, data)
    class_ = {Outcome.SIGNAL.value: "dead", Outcome.STALL.value: "timeout"}.get(bad.class_, bad.class_)
    return Finding(step, "notebook", bad.verdict, class_, bad.message + after, bad.evidence, data)
