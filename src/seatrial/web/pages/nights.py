"""Runs that another tool made and that were taken over: what was imported for one night is one run.

Each row of such a table is a run of its own in the history (of one figure of one benchmark), for the tools that wrote
them had a run a benchmark. People mean the night.
"""

import re
from collections.abc import Iterable

import msgspec

from seatrial.job import Verdict, worst_cell
from seatrial.record.history import IMPORTED, PastCell, SuiteRun
from seatrial.report.text import clock_text

_NIGHT = re.compile(rf"{IMPORTED}-(\d{{4}}-\d\d-\d\d)")
MOST_IMPORTED = 5_000  # rows that are looked through for a night


def night_of(run: SuiteRun | PastCell) -> str:
    """The name that it is shown by."""
    return night_of_time(run.at_s)


def is_night(name: str) -> bool:
    return _NIGHT.fullmatch(name) is not None


def nights(runs: Iterable[SuiteRun]) -> list[SuiteRun]:
    """One run a night, as bad as the worst of it."""
    found: dict[str, list[SuiteRun]] = {}
    for run in runs:
        found.setdefault(night_of(run), []).append(run)
    return [
        msgspec.structs.replace(of[0], run=name, verdict=worst_cell([Verdict(one.verdict) for one in of]).value)
        for name, of in found.items()
    ]


def night_of_time(at_s: float) -> str:
    return f"{IMPORTED}-{clock_text(at_s, '%Y-%m-%d')}"
