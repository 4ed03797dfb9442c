"""Reads `results.json`. `results.schema.json` is its JSON Schema, which other programs may hold us to."""

from pathlib import Path

from seatrial import SeatrialError
from seatrial.job import VERSION, RunResults, Unreadable, read_json


class ResultsError(SeatrialError):
    """The results at `path` are missing or cannot be read."""

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"{path}: {reason}. {advice}")
        self.path = path
        self.reason = reason
        self.advice = advice


def read_results(folder: Path) -> RunResults:
    path, attach = folder / "results.json", f"`seatrial attach {folder.name}` makes it anew from the journal."
    try:
        results = read_json(path, RunResults)
    except FileNotFoundError as error:
        advice = f"The run has not finished: `seatrial attach {folder.name}` takes it up."
        raise ResultsError(path, "there are no results yet", advice) from error
    except OSError as error:
        raise ResultsError(path, error.strerror or str(error), "Check its permissions.") from error
    except Unreadable as error:
        raise ResultsError(path, f"this is not a results.json: {error}", attach) from error
    if results.version > VERSION:
        reason = f"it has version {results.version}, this Seatrial knows {VERSION}"
        raise ResultsError(path, reason, "Upgrade Seatrial to read it.")
    for cell in results.cells:
        for name in (cell.hash, *(part for attempt in cell.attempts for part in attempt.parts)):
            if name in ("", ".", "..") or "/" in name or "\0" in name:  # files are read below a folder of that name
                raise ResultsError(path, f"{name[:80]!r} is no name of a cell or part", attach)
    return results
