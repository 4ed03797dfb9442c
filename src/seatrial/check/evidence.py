"""Which line of a long text says most. A person reads the first line of the evidence, and often no other."""

import re
from collections.abc import Callable

import msgspec

from seatrial.agent.masking.escapes import UNSEEN_TEXT
from seatrial.job import ERROR_PATTERN, Finding, LogError

MOST_CHARS = 8_000
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Fault)\b.*$")
_COMPLAINT = re.compile(
    r"\b(?:error|fatal|failed|failure|cannot|not found|no such|denied|killed|panic)\b", re.IGNORECASE
)
_ERROR_TEXT = re.compile(ERROR_PATTERN, re.MULTILINE)
_ERROR_BYTES = re.compile(ERROR_PATTERN.encode(), re.MULTILINE)
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
WINDOW_LINES = 12  # on each side of an error in a log
WINDOW_BYTES = 8_000  # of those lines, together
LINE_CHARACTERS = 1_000


def error_line(text: str) -> str:
    """The first line that a program prints when it breaks; empty where there is none."""
    plain = tidy(text)
    found = _ERROR_TEXT.search(plain)
    return _line_at(plain, found.start()).strip() if found else ""


def find_error(log: bytes) -> LogError | None:
    """The same in a whole log, with its number and the lines around it."""
    if b"\x1b[" in log:
        log = _COLOURS.sub(b"", log)
    found = _ERROR_BYTES.search(log)
    if found is None:
        return None
    start = log.rfind(b"\n", 0, found.start()) + 1
    before = log[max(0, start - WINDOW_BYTES // 2) : start].split(b"\n")[:-1][-WINDOW_LINES:]
    after = log[start : start + WINDOW_BYTES // 2].split(b"\n")[: WINDOW_LINES + 1]
    window = tidy(b"\n".join([*before, *after]).decode("utf-8", "replace"))
    text = tidy(after[0].decode("utf-8", "replace")).strip()[:LINE_CHARACTERS]
    return LogError(line=log.count(b"\n", 0, start) + 1, text=text, window=window.rstrip())


def with_log_error(findings: list[Finding], errors: dict[str, LogError]) -> list[Finding]:
    """The first finding that did not pass with the error that stands in the log (of each part), where no finding has
    one: what a check quotes of a step's output is its end, and the reason may stand far above it."""
    bad = [number for number, finding in enumerate(findings) if not finding.verdict.good]
    if not bad or not errors or any(error_line(findings[number].evidence) for number in bad):
        return findings
    first = findings[bad[0]]
    part, error = next(iter(errors.items()))
    log = f"line {error.line:,} of the log" + (f" of the {part}" if len(errors) > 1 else "")
    rest = f"\n…\n{first.evidence}" if first.evidence else ""
    evidence = f"{error.text}\n{log}:\n{error.window}{rest}"
    return [*findings[: bad[0]], msgspec.structs.replace(first, evidence=evidence), *findings[bad[0] + 1 :]]


def _line_at(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]


def most_relevant_first(text: str) -> str:
    """`text` with its most telling line first: what a traceback ends in, else a complaint, else its last line."""
    text = tidy(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    first = (
        _last(lines, lambda line: _RAISED.match(line) is not None and "Traceback (most recent call last):" in text)
        or _last(lines[-20:], lambda line: _COMPLAINT.search(line) is not None)
        or lines[-1]
    )
    return first if len(lines) == 1 else f"{first}\n{tail(text)}"


def with_heading(first: str, text: str) -> str:
    """A text under the line that sums it up."""
    first, text = tidy(first).strip(), tidy(text).strip()
    return f"{first}\n{tail(text)}" if text and text != first else first


def tidy(text: str) -> str:
    """Text of a job without what would act on a terminal; of a line that was drawn over, what stayed."""
    plain = UNSEEN_TEXT.sub("", text.replace("\r\n", "\n"))  # what a secret is masked through, and nothing else
    return "\n".join(line.rpartition("\r")[2] if "\r" in line else line for line in plain.split("\n"))


def tail(text: str) -> str:
    """The end of a text, whole lines where there are any."""
    if len(text) <= MOST_CHARS:
        return text.rstrip()
    cut = text[-MOST_CHARS:]
    return "…\n" + (cut.partition("\n")[2] or cut).rstrip()


def _last(lines: list[str], wanted: Callable[[str], bool]) -> str | None:
    return next((line for line in reversed(lines) if wanted(line)), None)
