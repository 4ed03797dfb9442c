"""Finds the most relevant line of a long text: people read the first line of the evidence, and often no other."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

import msgspec

from seatrial.agent.masking.escapes import tidy
from seatrial.job import ERROR_PATTERN, Finding, LogError, Verdict

MOST_CHARS = 8_000
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Fault)\b.*$")
_COMPLAINT = re.compile(
    r"\b(?:error|fatal|failed|failure|cannot|not found|no such|denied|killed|panic)\b", re.IGNORECASE
)
_ERROR_TEXT = re.compile(ERROR_PATTERN, re.MULTILINE)
_ERROR_BYTES = re.compile(ERROR_PATTERN.encode(), re.MULTILINE)
# Every match of ERROR_PATTERN contains one of these.
_WORDS = (
    *(b"Error", b"Exception", b"Interrupt", b"ERROR: ", b"error: ", b"FATAL: ", b"fatal: ", b"panic: "),
    *(b"out of memory", b"core dumped", b"Segmentation fault", b"Bus error", b"CUDA error"),
    *(b"SIGSEGV", b"SIGBUS", b"SIGABRT", b"SIGKILL", b"NCCL WARN", b"NCCL error", b"Xid ("),
)
_WORDS_TEXT = tuple(word.decode() for word in _WORDS)
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
_HEADER = re.compile(rb"^(\[\d+\] )?--- \[\d+/\d+\] (.*)$", re.MULTILINE)  # printed by the agent before a step
_HOST = re.compile(rb"\[\d+\] ")  # prefix of each line of a job with several hosts
_BROKEN = (Verdict.FAILED, Verdict.TIMEOUT, Verdict.INFRA, Verdict.INVALID)  # may be explained by an error in a log
MOST_ERRORS = 1_000  # errors searched for one of a failed step
WINDOW_LINES = 12  # lines shown on each side of an error
_WINDOW_BYTES = 8_000  # size of those lines together
LINE_CHARACTERS = 1_000


def error_line(text: str) -> str:
    """The first error line of a program's output; empty if there is none."""
    plain = tidy(text)
    found = _ERROR_TEXT.search(plain) if any(word in plain for word in _WORDS_TEXT) else None
    return plain[plain.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip() if found else ""


def find_error(log: bytes, failed: Collection[str] = ()) -> LogError | None:
    """The first error line of a whole log (all steps and hosts), with its number and the lines around it. Errors of the
    steps in `failed` take precedence."""
    headers = list(_HEADER.finditer(log))
    found = ((start, _step_at(log, start, headers)) for start in islice(_error_lines(log), MOST_ERRORS))
    first = next(found, None)
    if first is None:
        return None
    start, step = first if not failed or first[1] in failed else next((one for one in found if one[1] in failed), first)
    before = log[max(0, start - _WINDOW_BYTES // 2) : start].split(b"\n")[:-1][-WINDOW_LINES:]
    after = log[start : start + _WINDOW_BYTES // 2].split(b"\n")[: WINDOW_LINES + 1]
    window = tidy(b"\n".join([*before, *after]).decode("utf-8", "replace"))
    text = tidy(after[0].decode("utf-8", "replace")).strip()[:LINE_CHARACTERS]
    return LogError(log.count(b"\n", 0, start) + 1, text, window.rstrip(), step)


def _error_lines(log: bytes) -> Iterator[int]:
    """Offsets of error lines. For speed, only lines with one of `_WORDS` are matched."""
    ahead = [(at, word) for word in _WORDS if (at := log.find(word)) >= 0]
    heapify(ahead)
    end = 0
    while ahead:
        at, word = heappop(ahead)
        if at >= end:
            start = log.rfind(b"\n", 0, at) + 1
            end = log.find(b"\n", at)
            end = len(log) if end < 0 else end
            line = _COLOURS.sub(b"", log[start:end])
            if _ERROR_BYTES.search(line) and not _HEADER.match(line):  # a header quotes a command
                yield start
        if (again := log.find(word, end)) >= 0:
            heappush(ahead, (again, word))


def _step_at(log: bytes, start: int, headers: list[re.Match[bytes]]) -> str:
    """The step that printed a line: the last one started before it, on its host."""
    host = _HOST.match(log, start)
    prefix = host[0] if host else b""
    for header in reversed(headers[: bisect_left(headers, start, key=lambda one: one.start())]):
        if (header[1] or b"") == prefix:
            return header[2].decode("utf-8", "replace")
    return ""


def with_log_error(findings: list[Finding], errors: dict[str, LogError]) -> list[Finding]:
    """Adds the first error of the log (of each part) to the failed finding of its step, else to the first failed one.
    Checks quote only the end of the output, and the reason may be far above. An error of a step that passed is added
    only if no finding has an error of its own."""
    bad = [number for number, finding in enumerate(findings) if finding.verdict in _BROKEN]
    if not bad or not errors:
        return findings
    part, error = next(iter(errors.items()))
    place = next((number for number in bad if error.step and findings[number].step == error.step), None)
    quoted = [findings[number].evidence for number in bad]
    if any(error.text in tidy(evidence) for evidence in quoted) or (place is None and any(map(error_line, quoted))):
        return findings
    place = bad[0] if place is None else place
    chosen = findings[place]
    log = f"line {error.line:,} of the log" + (f" of the {part}" if len(errors) > 1 else "")
    rest = f"\n…\n{chosen.evidence}" if chosen.evidence else ""
    evidence = f"{error.text}\n{log}:\n{error.window}{rest}"
    return [*findings[:place], msgspec.structs.replace(chosen, evidence=evidence), *findings[place + 1 :]]


def most_relevant_first(text: str) -> str:
    """`text` with its most relevant line first: the exception, else the last complaint, else the last line."""
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
    """The text below a line that sums it up."""
    first, text = tidy(first).strip(), tidy(text).strip()
    return f"{first}\n{tail(text)}" if text and text != first else first


def tail(text: str) -> str:
    """The end of a text, starting at a whole line if possible."""
    if len(text) <= MOST_CHARS:
        return text.rstrip()
    cut = text[-MOST_CHARS:]
    return "…\n" + (cut.partition("\n")[2] or cut).rstrip()


def _last(lines: list[str], wanted: Callable[[str], bool]) -> str | None:
    return next((line for line in reversed(lines) if wanted(line)), None)
