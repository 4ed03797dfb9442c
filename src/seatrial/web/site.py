"""What pages are made of: a folder of runs, its history, and what a command could change."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.record.history import History
from seatrial.web.catalogue import Catalogue


@dataclass(frozen=True)
class ProposedChange:
    """What a command would change, and the command; nothing here ever runs it."""

    command: str
    diff: str = ""
    refused: str = ""  # why it would change nothing


# Of the suite's file, a benchmark and a metric: what accepting the newest level would change.
Recenter = Callable[[str, str, str], ProposedChange | None]


def _no_change(suite_path: str, benchmark: str, metric: str) -> ProposedChange | None:
    return None


@dataclass(frozen=True)
class Site:
    runs: Path
    history: History
    catalogue: Catalogue
    recenter: Recenter = field(default=_no_change)
    ending: str = ""  # of pages that are files
    options: tuple[str, ...] = ()  # of commands that are to be about these runs

    @classmethod
    def of(
        cls,
        runs: Path,
        history: History,
        recenter: Recenter = _no_change,
        ending: str = "",
        options: tuple[str, ...] = (),
    ) -> "Site":
        return cls(runs, history, Catalogue(runs), recenter, ending, options)
