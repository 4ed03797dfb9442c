"""The change of one baseline file: its diff, and its writing, whole and only over what was read."""

import difflib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seatrial.baseline.edit import Edit, edited
from seatrial.baseline.selection import SelectedFile
from seatrial.record import write_whole


class FileChanged(Exception):
    """Somebody else wrote the file meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was changed by somebody else meanwhile; it was left alone. Try again")


class CannotWrite(OSError):
    """The file is as it was; why nothing could be put in its place."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} cannot be written: {why}")
        self.name, self.why = name, why


@dataclass(frozen=True)
class FileChange:
    name: str
    path: Path
    before: bytes | None  # None: there was no file
    after: bytes
    diff: str

    @property
    def empty(self) -> bool:
        return self.before == self.after


def change(place: SelectedFile, edits: Iterable[Edit]) -> FileChange:
    """What these edits make of the file. Raises CannotEdit and CannotWrite; nothing is written."""
    _check_folder(place)
    before = place.path.read_bytes() if place.exists else None
    old = (before or b"").decode()
    new = edited(old, place.name, place.baselines.form, edits)
    diff = difflib.unified_diff(
        old.splitlines(), new.splitlines(), place.name if place.exists else "(no file)", place.name, lineterm="", n=2
    )
    return FileChange(place.name, place.path, before, new.encode(), "\n".join(diff))


def write_change(changed: FileChange) -> None:
    """Write the file whole; a link to it stays a link, its mode stays. Raises FileChanged and CannotWrite."""
    try:
        _write(changed, changed.path.resolve())
    except OSError as error:
        raise CannotWrite(changed.name, error.strerror or str(error)) from error


def _check_folder(place: SelectedFile) -> None:
    """A folder that is not there is a slip of the pen, or a disk that is not mounted: none is made."""
    if place.path.is_symlink() and not place.path.exists():
        raise CannotWrite(place.name, f"it is a link to {place.path.readlink()}, and that does not exist")
    if not place.path.parent.is_dir():
        raise CannotWrite(place.name, f"there is no folder {place.path.parent}")


def _write(changed: FileChange, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # against others of ours; an editor is seen by what it wrote
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        if (path.read_bytes() if path.exists() else None) != changed.before:
            raise FileChanged(changed.path)
        write_whole(path, changed.after, mode=mode or 0o644)
        if mode is not None:
            path.chmod(mode)
    finally:
        os.close(folder)
