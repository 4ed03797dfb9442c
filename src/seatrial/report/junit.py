"""JUnit XML: one test suite per cell, one test case per step.

Test cases are named after steps, so the names are stable and a CI can track them. A test case has all findings of its
step. Excluded combinations are skipped test cases in a separate suite: one each, or one per reason if there are very
many or they were only deselected.
"""

import xml.etree.ElementTree as ET
from collections import Counter
from itertools import chain

from seatrial.job import Finding, Verdict, worst
from seatrial.job.units import count
from seatrial.report.view.cell import CellView
from seatrial.report.view.grid import NOT_WANTED
from seatrial.report.view.run import RunView
from seatrial.report.view.sentences import moment_text
from seatrial.report.view.words import axes_text, clock_text, one_line, shorten, strip_controls

_MOST_TEXT = 16_000  # characters of evidence in one test case
MOST_EXCLUDED = 1_000

_COUNTED = ("tests", "failures", "errors", "skipped")
_ERRORS = frozenset({Verdict.INFRA, Verdict.INVALID, Verdict.INTERRUPTED})


def render_junit(run: RunView) -> bytes:
    stamp = clock_text(run.started_s, "%Y-%m-%dT%H:%M:%S")
    counts = Counter[str]()
    texts: list[bytes] = []
    # One suite at a time: as elements, they take eight times the memory of their text.
    for suite in chain((_suite(run, cell, stamp) for cell in run.cells), [_excluded(run, stamp)] * bool(run.excluded)):
        counts.update({name: int(suite.get(name, "0")) for name in _COUNTED})
        ET.indent(suite, level=1)
        texts.append(ET.tostring(suite, encoding="utf-8"))
    numbers = {name: str(counts[name]) for name in _COUNTED}
    root = ET.Element("testsuites", {"name": _attribute(run.suite), "time": f"{run.seconds:.3f}", **numbers})
    root.text = "\n"
    text: bytes = ET.tostring(root, encoding="utf-8")
    begin, end = text.split(b"\n")
    return b"\n  ".join([b'<?xml version="1.0" encoding="UTF-8"?>\n' + begin, *texts]) + b"\n" + end + b"\n"


def _suite(run: RunView, cell: CellView, stamp: str) -> ET.Element:
    host = cell.last.place.host if cell.last else ""
    cause, details = cell.cause, cell.details()
    suite = ET.Element("testsuite", name=_attribute(cell.id), timestamp=stamp, hostname=_attribute(host or "unknown"))
    properties = ET.SubElement(suite, "properties")
    facts = {"hash": cell.hash, "verdict": cell.verdict.value, "flaky": str(cell.flaky).lower(), **cell.axes}
    if cause is not None:
        facts |= {"cause": cause.id, "cause-text": cause.text, "cause-place": cause.where}
        facts |= {"cause-news": cause.news_text} if cause.news else {}
    if cell.news is not None:
        facts |= {"news": cell.news.change.value, "news-since": moment_text(cell.news.since) if cell.news.since else ""}
        facts |= {"news-last": moment_text(cell.news.last) if cell.news.last else "", "news-against": run.against}
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=_attribute(name), value=_attribute(value))
    for step, findings in cell.by_step.items():
        suite.append(_case(cell, step, findings, details.step_seconds(step)))
    interrupted = run.interrupted and cell.unfinished
    if interrupted or not cell.findings or (not cell.bad_findings and cell.bad):
        name = "job" if "job" not in cell.by_step else "cell"
        verdict = Verdict.INTERRUPTED if interrupted else cell.verdict
        suite.append(_case(cell, name, [Finding(name, "job", verdict, message=cell.why)], cell.seconds))
    lines = [f"status: {cell.news_text}"] if cell.news_text else []
    lines += [*cell.attempt_lines, *(f"log: {log}" for log in details.logs), f"rerun: {cell.rerun}"]
    out = ET.SubElement(suite, "system-out")
    out.text = strip_controls("\n".join(lines))
    ET.SubElement(suite, "system-err")
    return _counted(suite, cell.seconds)


def _case(cell: CellView, step: str, findings: list[Finding], took_s: float | None) -> ET.Element:
    case = ET.Element("testcase", name=_attribute(step), classname=_attribute(cell.id), time=f"{took_s or 0.0:.3f}")
    verdict = worst(finding.verdict for finding in findings)
    chosen = [finding for finding in findings if finding.verdict is not Verdict.PASSED]
    if verdict is Verdict.PASSED or not chosen:
        return case
    first = next((finding for finding in chosen if finding.verdict is verdict), chosen[0])
    message = _attribute(first.message or cell.reason or verdict.value)
    if verdict in (Verdict.SKIPPED, Verdict.XFAIL):
        ET.SubElement(case, "skipped", message=message if verdict is Verdict.SKIPPED else f"xfail: {message}")
        return case
    kind = "error" if verdict in _ERRORS else "failure"
    type_ = verdict.value if verdict is Verdict.TIMEOUT else first.class_ or verdict.value
    element = ET.SubElement(case, kind, type=_attribute(type_), message=message)
    texts = []
    for finding in chosen:
        head = " ".join(part for part in (finding.verdict.value, finding.class_, finding.check) if part)
        texts.append("\n".join(part for part in (f"{head}: {finding.message}", finding.evidence) if part))
    element.text = shorten(strip_controls("\n\n".join(texts)), _MOST_TEXT)
    return case


def _excluded(run: RunView, stamp: str) -> ET.Element:
    suite = ET.Element("testsuite", name="holes", timestamp=stamp, hostname="unknown")
    ET.SubElement(suite, "properties")
    reasons: Counter[tuple[str, str]] = Counter()
    named = []
    for combination in run.excluded:
        if combination.cause in NOT_WANTED or len(run.excluded) > MOST_EXCLUDED:
            reasons[combination.trial, combination.why] += 1
        else:
            named.append((combination.trial, axes_text(combination.axes.items()), combination.why))
    named += [(trial, f"{count(number, 'combination')}: {why}", why) for (trial, why), number in reasons.items()]
    for trial, name, why in named:
        group = _attribute(f"holes.{trial}")
        case = ET.SubElement(suite, "testcase", name=_attribute(name), classname=group, time="0.000")
        ET.SubElement(case, "skipped", message=_attribute(why))
    return _counted(suite, None)


def _counted(suite: ET.Element, took_s: float | None) -> ET.Element:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{took_s or 0.0:.3f}")
    return suite


def _attribute(text: str) -> str:
    return one_line(text)[:2_000] or "-"
