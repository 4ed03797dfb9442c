"""Runs that could not be added to the history when they ended, for it could not be reached: they are added later."""

import contextlib
from pathlib import Path

from seatrial.job import RunResults
from seatrial.record.folder import RunFolder
from seatrial.record.history.error import HistoryError
from seatrial.record.history.history import History

MISSED = "not-in-history"  # a file in the run folder: the history that the run is missing in


def mark_missed(folder: Path, history: History) -> None:
    """Never raises: the results are there, and `seatrial history add` takes them without this, too."""
    with contextlib.suppress(OSError):
        (folder / MISSED).write_text(_place(history) + "\n")


def missed_runs(runs: Path, history: History) -> list[RunFolder]:
    """Those in the folder of runs that are missing in this history, oldest first."""
    marks = sorted(runs.glob(f"*/{MISSED}")) if runs.is_dir() else []
    return [RunFolder(mark.parent) for mark in marks if _said(mark) == _place(history)]


def add_missed(runs: Path, history: History) -> list[str]:
    """Add what is missing; the runs that were added. Raises HistoryError."""
    return [folder.run for folder in missed_runs(runs, history) if add_run(folder, history)]


def add_run(folder: RunFolder, history: History) -> bool:
    """Add one run; False when it has no results, or none that can be read. Raises HistoryError."""
    results = folder.read_results()
    if results is None:
        return False
    history.add(results)
    (folder.path / MISSED).unlink(missing_ok=True)
    return True


def add_or_mark(folder: RunFolder, results: RunResults, history: History) -> None:
    """Add a run that has just ended; where that fails, mark it to be added later. Raises HistoryError."""
    try:
        history.add(results)
    except HistoryError:
        mark_missed(folder.path, history)
        raise
    (folder.path / MISSED).unlink(missing_ok=True)


def _place(history: History) -> str:
    """A server's address as it is shown, without a password; of a file, wherever it is named from."""
    return history.place if "://" in history.place else str(Path(history.place).resolve())


def _said(mark: Path) -> str:
    try:
        return mark.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
