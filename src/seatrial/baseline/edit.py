"""Changes entries of a file of bounds, and proves that nothing else of the file has changed."""

import difflib
import fcntl
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.baseline import read as theirs
from seatrial.baseline.models import OURS, THEIRS, text_of
from seatrial.baseline.read import BASELINE_LIMITS, baselines_of
from seatrial.baseline.selection import SelectedFile
from seatrial.record import write_whole
from seatrial.suite.yaml.document import CannotEdit, Document, check_data
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source

_NEW = {
    OURS: "# Bounds of `seatrial baseline`. What is written by hand here is kept.\nversion: 1\nbaselines:\n",
    THEIRS: "benchmarks:\n",
}
_THEIR_KEYS = {"lower": theirs.LOWER, "upper": theirs.UPPER, "center": theirs.CENTER, "runs": theirs.RUNS}
_FIXED = ("unit", "better")  # of a step time: seconds, lower
_Values = dict[str, Any]  # keys of an entry


@dataclass(frozen=True)
class Edit:
    """Keys of one entry, in the words of Seatrial's own form; None takes a key out. `reason` is added to `reasons`."""

    benchmark: str
    metric: str
    values: Mapping[str, Any]
    reason: Mapping[str, str]
    title: str = ""
    untrue: tuple[int, ...] = ()  # lines of comments that are no longer true, and go


def edited(text: str, file: str, form: str, edits: Iterable[Edit]) -> str:
    """The file's text with those entries changed; an empty text is a new file. Raises CannotEdit."""
    edits = list(edits)
    for edit in edits:
        for key, value in edit.values.items():
            # An exponent of three digits is text to some readers.
            if isinstance(value, float) and value and not 1e-99 < abs(value) < 1e99:
                what = f"{edit.benchmark} {edit.metric}: {key} {value:g}"
                raise CannotEdit(file, f"{what} is no metric that bounds can be written for")
    before = text.removeprefix("\ufeff") or _NEW[form]
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    # What the file must say afterwards. What an alias made one thing becomes two.
    wanted = msgspec.to_builtins(Source(file, before, limits=BASELINE_LIMITS).data)
    document = Document(before)
    for edit in edits:
        changes = _written(edit, form, wanted)
        for path, values in changes.items():
            document.set(path, values)
            entry = _set(wanted, path, values)
        document.append((*path, "reasons"), dict(edit.reason))
        document.remove_comments(next(iter(changes)), edit.untrue)
        reasons = entry.get("reasons")
        entry["reasons"] = [*(reasons if isinstance(reasons, list) else []), dict(edit.reason)]
    after = document.apply()
    source = Source(file, after, limits=BASELINE_LIMITS)
    check_data(source, wanted)
    try:
        baselines_of(source)
    except SuiteError as error:
        raise CannotEdit(file, f"it would not be sound afterwards: {error}") from error
    return mark + after


def _written(edit: Edit, form: str, data: Any) -> dict[tuple[str, ...], _Values]:
    """The keys of the entry as this form calls them, by the map that they stand in; the last one has the reasons."""
    if form == OURS:
        path = ("baselines", edit.benchmark, edit.metric)
        return {path: {key: _number(value) for key, value in edit.values.items()}}
    values: _Values = {}
    if not (data.get("benchmarks") or {}).get(edit.benchmark):
        values["name"] = edit.title or edit.benchmark
    beside: _Values = {}
    for key, value in edit.values.items():
        if key in _THEIR_KEYS:
            values[_THEIR_KEYS[key]] = _rounded(value, 4 if key == "center" else 8)
        elif key not in _FIXED:
            beside[key] = _number(value)
    if "figures" in beside:  # their sample size counts values
        sample = beside.pop("figures")
        beside["runs"] = values.get(theirs.RUNS) if sample else None
        values[theirs.RUNS] = sample or values.get(theirs.RUNS)
    lower, upper = edit.values.get("lower"), edit.values.get("upper")
    if lower is not None and upper is not None:
        # What a lower bound of 0 cut off still belongs to the width.
        center = edit.values.get("center")
        half = upper - center if lower == 0 and center is not None else (upper - lower) / 2
        values[theirs.HALF] = _rounded(half, 5)
    order = ("name", theirs.LOWER, theirs.UPPER, theirs.HALF, theirs.CENTER, theirs.RUNS)
    values = {key: values[key] for key in order if key in values}
    return {("benchmarks", edit.benchmark): values, ("benchmarks", edit.benchmark, theirs.OWN_KEY): beside}


def _rounded(value: Any, digits: int) -> Any:
    """As their tool rounds; of a small number at least six digits that mean something."""
    if not isinstance(value, float) or value == 0:
        return value
    return round(value, max(digits, 5 - math.floor(math.log10(abs(value)))))


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    return value


def _set(data: _Values, path: tuple[str, ...], values: _Values) -> _Values:
    """Do to plain data what `Document.set` does to the text; the map at `path`."""
    for part in path:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    for key, value in values.items():
        if value is None:
            data.pop(key, None)
        else:
            data[key] = msgspec.to_builtins(value)
    return data


class Refused(SeatrialError):
    """An entry, or the whole file, stays as it is, and why."""


@dataclass(frozen=True)
class Updated:
    """A change of one entry, and what is worth knowing about it."""

    edit: Edit
    notes: tuple[str, ...] = ()
    accepted: str = ""  # the first run of the level that it accepts


@dataclass(frozen=True)
class Why:
    """Who changes an entry: when, and for what reason; `force` allows bounds wider than the cap."""

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


def change(place: SelectedFile, edits: Iterable[Edit]) -> FileChange:
    """What these edits make of the file. Raises CannotEdit and OSError; nothing is written."""
    # A folder that is not there is a slip of the pen, or a disk that is not mounted: none is made.
    if place.path.is_symlink() and not place.path.exists():
        raise _cannot_write(place.name, f"it is a link to {place.path.readlink()}, and that does not exist")
    if not place.path.parent.is_dir():
        raise _cannot_write(place.name, f"there is no folder {place.path.parent}")
    before = place.path.read_bytes() if place.exists else None
    old = (before or b"").decode()
    new = edited(old, place.name, place.baselines.form, edits)
    names = place.name if place.exists else "(no file)", place.name
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=2)
    return FileChange(place.name, place.path, before, new.encode(), "\n".join(diff))


def write_change(changed: FileChange) -> None:
    """Write the file whole; a link to it stays a link, its mode stays. Raises Refused when somebody else wrote it
    meanwhile, and OSError; it is as it was then."""
    path = changed.path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # against others of ours; an editor is seen by what it wrote
            mode = path.stat().st_mode & 0o777 if path.exists() else None
            if (path.read_bytes() if path.exists() else None) != changed.before:
                raise Refused(f"{changed.path} was changed by somebody else meanwhile; it was left alone. Try again")
            write_whole(path, changed.after, mode=mode or 0o644)
            if mode is not None:
                path.chmod(mode)
        finally:
            os.close(folder)
    except OSError as error:
        raise _cannot_write(changed.name, error.strerror or str(error)) from error


def _cannot_write(name: str, why: str) -> OSError:
    return OSError(f"{name} cannot be written: {why}")
