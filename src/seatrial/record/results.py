"""Reads `results.json`. Its JSON Schema, `results.schema.json`, is a public contract."""

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
    path, attach = folder / "results.json", f"Run `seatrial attach {folder.name}` to write it again."
    try:
        results = read_json(path, RunResults)
    except FileNotFoundError as error:
        advice = f"The run is not finished; resume it with `seatrial attach {folder.name}`."
        raise ResultsError(path, "no results yet", advice) from error
    except OSError as error:
        raise ResultsError(path, error.strerror or str(error), "Check its permissions.") from error
    except Unreadable as error:
        raise ResultsError(path, f"not a results.json: {error}", attach) from error
    if results.version > VERSION:
        reason = f"version {results.version} (this Seatrial reads up to {VERSION})"
        raise ResultsError(path, reason, "Upgrade Seatrial to read it.")
    for cell in results.cells:
        for name in (cell.hash, *(part for attempt in cell.attempts for part in attempt.parts)):
            if name in ("", ".", "..") or "/" in name or "\0" in name:  # used as folder names
                raise ResultsError(path, f"invalid cell hash or part name {name[:80]!r}", attach)
    return results
