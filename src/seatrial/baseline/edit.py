"""Changes entries of a baseline file, and verifies that nothing else in it changed."""

import difflib
import fcntl
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial import SeatrialError
from seatrial.baseline import read as theirs
from seatrial.baseline.models import OURS, THEIRS, text_of
from seatrial.baseline.read import BASELINE_LIMITS, baselines_of
from seatrial.baseline.selection import SelectedFile
from seatrial.record import write_whole
from seatrial.suite.yaml.document import CannotEdit, Document
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source

_NEW = {
    OURS: "# Bounds, written by `seatrial baseline`. Manual edits are kept.\nversion: 1\nbaselines:\n",
    THEIRS: "benchmarks:\n",
}
_THEIR_KEYS = {"lower": theirs.LOWER, "upper": theirs.UPPER, "center": theirs.CENTER, "runs": theirs.RUNS}
_FIXED = ("unit", "better")  # fixed for a step time: s, lower
_Values = dict[str, Any]  # keys of an entry


@dataclass(frozen=True)
class Edit:
    """Keys of one entry, as in Seatrial's own form; None removes a key. `reason` is added to `reasons`."""

    benchmark: str
    metric: str
    values: Mapping[str, Any] | None  # None removes the entry
    reason: Mapping[str, str]
    title: str = ""
    untrue: tuple[int, ...] = ()  # lines of outdated comments, to be removed


def edited(text: str, file: str, form: str, edits: Iterable[Edit]) -> str:
    """Returns the text with the edits applied; an empty text is a new file. Raises CannotEdit."""
    edits = list(edits)
    for edit in edits:
        for key, value in (edit.values or {}).items():
            # Some YAML readers take an exponent of three digits for text.
            if isinstance(value, float) and value and not 1e-99 < abs(value) < 1e99:
                what = f"{edit.benchmark} {edit.metric}: {key} {value:g}"
                raise CannotEdit(file, f"{what} is out of range (1e-99 to 1e99)")
    before = text.removeprefix("\ufeff") or _NEW[form]
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    document = Document(Source(file, before, limits=BASELINE_LIMITS))
    for edit in edits:
        if edit.values is None:
            document.set(("baselines", edit.benchmark), {edit.metric: None})
            continue
        changes = _written(edit, edit.values, form, document.data)
        for path, values in changes.items():
            document.set(path, values)
        document.append(path, "reasons", dict(edit.reason))
        document.remove_comments(next(iter(changes)), edit.untrue)
    after = document.apply()
    try:
        baselines_of(after)
    except SuiteError as error:
        raise CannotEdit(file, f"the edited file would be invalid: {error}") from error
    return mark + after.text


def _written(edit: Edit, given: Mapping[str, Any], form: str, data: Any) -> dict[tuple[str, ...], _Values]:
    """The keys of the entry in the file's form, by the path of their map; the last map has the reasons."""
    if form == OURS:
        path = ("baselines", edit.benchmark, edit.metric)
        return {path: {key: _number(value) for key, value in given.items()}}
    values: _Values = {}
    if not (data.get("benchmarks") or {}).get(edit.benchmark):
        values["name"] = edit.title or edit.benchmark
    beside: _Values = {}
    for key, value in given.items():
        if key in _THEIR_KEYS:
            values[_THEIR_KEYS[key]] = _rounded(value, 4 if key == "center" else 8)
        elif key not in _FIXED:
            beside[key] = _number(value)
    if "figures" in beside:  # torchprime's sample size counts values
        sample = beside.pop("figures")
        beside["runs"] = values.get(theirs.RUNS) if sample else None
        values[theirs.RUNS] = sample or values.get(theirs.RUNS)
    lower, upper = given.get("lower"), given.get("upper")
    if lower is not None and upper is not None:
        # A lower bound of 0 may be clamped; the width is not.
        center = given.get("center")
        half = upper - center if lower == 0 and center is not None else (upper - lower) / 2
        values[theirs.HALF] = _rounded(half, 5)
    order = ("name", theirs.LOWER, theirs.UPPER, theirs.HALF, theirs.CENTER, theirs.RUNS)
    values = {key: values[key] for key in order if key in values}
    return {("benchmarks", edit.benchmark): values, ("benchmarks", edit.benchmark, theirs.OWN_KEY): beside}


def _rounded(value: Any, digits: int) -> Any:
    """Rounds as torchprime does, but keeps at least six significant digits."""
    if not isinstance(value, float) or value == 0:
        return value
    return round(value, max(digits, 5 - math.floor(math.log10(abs(value)))))


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    return value


class Refused(SeatrialError):
    """An entry or the file was left unchanged; the message is the reason."""


@dataclass(frozen=True)
class Updated:
    """A change of one entry, with notes for the user."""

    edit: Edit
    notes: tuple[str, ...] = ()
    accepted: str = ""  # the first run of the level that it accepts
    too_noisy: str = ""  # why the bounds of a new or unusable entry are useless


@dataclass(frozen=True)
class Why:
    """Reason and time of a change; `force` allows bounds wider than the cap."""

    reason: str
    at_s: float
    force: bool = False

    def of(self, what: str) -> dict[str, str]:
        return {"at": text_of(self.at_s), "what": what, "why": self.reason}


@dataclass(frozen=True)
class FileChange:
    name: str
    path: Path
    before: bytes | None  # None: there was no file
    after: bytes
    diff: str


def change(file: SelectedFile, edits: Iterable[Edit]) -> FileChange:
    """Applies the edits without writing. Raises CannotEdit and OSError."""
    # A missing folder is probably a typo or an unmounted disk, so it is not created.
    if file.path.is_symlink() and not file.path.exists():
        raise _cannot_write(file.name, f"link target not found: {file.path.readlink()}")
    if not file.path.parent.is_dir():
        raise _cannot_write(file.name, f"folder not found: {file.path.parent}")
    before = file.path.read_bytes() if file.exists else None
    old = (before or b"").decode()
    new = edited(old, file.name, file.baselines.form, edits)
    names = file.name if file.exists else "(no file)", file.name
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=2)
    return FileChange(file.name, file.path, before, new.encode(), "\n".join(diff))


def write_change(changed: FileChange) -> None:
    """Writes the file atomically, keeping links and the mode. Raises Refused if the file changed on disk after it was
    read, and OSError; the file is unchanged then."""
    path = changed.path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # against other Seatrial processes; editors are detected by the content
            mode = path.stat().st_mode & 0o777 if path.exists() else None
            if (path.read_bytes() if path.exists() else None) != changed.before:
                raise Refused(f"{changed.path} changed during the edit; nothing was written. Try again")
            write_whole(path, changed.after, mode=mode or 0o644)
            if mode is not None:
                path.chmod(mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise _cannot_write(changed.name, error.strerror or str(error)) from error


def _cannot_write(name: str, why: str) -> OSError:
    return OSError(f"cannot write {name}: {why}")
