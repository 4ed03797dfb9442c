"""Which line of a long text says most. A person reads the first line of the evidence, and often no other."""

import re
from collections.abc import Callable

from seatrial.job.mask import UNSEEN

MOST_CHARS = 8_000
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Fault)\b.*$")
_COMPLAINT = re.compile(
    r"\b(?:error|fatal|failed|failure|cannot|not found|no such|denied|killed|panic)\b", re.IGNORECASE
)


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
    plain = UNSEEN.sub("", text.replace("\r\n", "\n"))  # what a secret is masked through, and nothing else
    return "\n".join(line.rpartition("\r")[2] if "\r" in line else line for line in plain.split("\n"))


def tail(text: str) -> str:
    """The end of a text, whole lines where there are any."""
    if len(text) <= MOST_CHARS:
        return text.rstrip()
    cut = text[-MOST_CHARS:]
    return "…\n" + (cut.partition("\n")[2] or cut).rstrip()


def _last(lines: list[str], wanted: Callable[[str], bool]) -> str | None:
    return next((line for line in reversed(lines) if wanted(line)), None)
