"""Reads a job's folder: its log, joined from its parts, its records and the files that it kept."""

import asyncio
import contextlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode, opened_regular
from seatrial.targets.protocol import TargetError

# As in `agent/run/log.py`, which writes this format.
LOG_NAME = "log.txt"
SEGMENT_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 18
FOLLOW_S = 0.1
_MOST_DEPTH = 100  # of folders that a job keeps


class LogReader:
    """The joined log from its start; each call of `blocks` yields what is new since the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0  # the part being read; 0 is the first
        self._offset = 0

    def blocks(self) -> Iterator[bytes]:
        while True:
            parts = self.parts()
            following = min((number for number in parts if number > self._number), default=None)
            yield from self._rest_of_part()
            if following is None:
                return
            skipped = (following - self._number - 1) * SEGMENT_BYTES
            if self._number:
                skipped += SEGMENT_BYTES - self._offset  # rest of a part that was deleted before it was read
            if skipped:
                yield b"\n[seatrial: %d bytes left out here]\n" % skipped
            self._number, self._offset = following, 0

    def _rest_of_part(self) -> Iterator[bytes]:
        name = f"{LOG_NAME}.{self._number}" if self._number else LOG_NAME
        try:
            with opened_regular(self._folder / name) as descriptor:
                while block := os.pread(descriptor, _BLOCK_BYTES, self._offset):
                    self._offset += len(block)
                    yield block
        except OSError:  # deleted, or not a regular file
            return

    def parts(self) -> list[int]:
        """Numbers of the parts after the first."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        endings = [name[len(LOG_NAME) + 1 :] for name in names if name.startswith(LOG_NAME + ".")]
        return sorted(int(ending) for ending in endings if ending.isascii() and ending.isdigit())


async def read_log(folder: Path, ended: Callable[[], bool], follow: bool) -> AsyncIterator[bytes]:
    reader = LogReader(folder)
    while True:
        last = not follow or ended()
        for block in reader.blocks():
            yield block
        if last:
            return
        await asyncio.sleep(FOLLOW_S)


def fetch(folder: Path, path: str, into: Path) -> bool:
    """Implements `Target.fetch`. Copies only plain files and folders: no pipes, and no symbolic or hard links to
    files outside the job."""
    into.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path == LOG_NAME:
            return _join_log(folder, into)
        source = folder / path
        if path == "records.jsonl":
            return _take_file(source, into)
        if Path(path).parts[:1] != ("files",) or ".." in Path(path).parts:
            raise TargetError(f"cannot fetch {path!r}; use records.jsonl, log.txt or files/...")
        if source.is_symlink() and not _stays_inside(source, folder / "files"):
            return False
        _drop_foreign(folder)
        if source.is_dir():
            _take_folder(source, into, folder / "files")
            return True
        return _take_file(source, into)
    except OSError as error:
        raise TargetError(f"cannot fetch {path} of {folder.name} to {into}: {error}") from error


def _join_log(folder: Path, into: Path) -> bool:
    reader = LogReader(folder)
    if not reader.parts():
        return _take_file(folder / LOG_NAME, into)
    if not (folder / LOG_NAME).exists():
        return False
    into.unlink(missing_ok=True)
    with open(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.writelines(reader.blocks())
    return True


def _take_folder(source: Path, into: Path, root: Path, depth: int = 0) -> None:
    if depth > _MOST_DEPTH:
        raise TargetError(f"files kept by the job are nested more than {_MOST_DEPTH} folders deep")
    into.mkdir(parents=True, exist_ok=True)
    make_accessible(source)
    with os.scandir(source) as entries:
        for entry in entries:
            goal = into / entry.name
            if entry.is_symlink():
                if _stays_inside(Path(entry.path), root):
                    goal.unlink(missing_ok=True)
                    goal.symlink_to(os.readlink(entry.path))
            elif entry.is_dir():
                _take_folder(Path(entry.path), goal, root, depth + 1)
            else:
                _take_file(Path(entry.path), goal)


def _drop_foreign(folder: Path) -> None:
    """Deletes hard links to files outside the job's folder: such files could still change there, and keeping them could
    change the originals. Runs once, because fetched files are hard links too."""
    done = folder / "foreign-dropped"
    if done.exists():
        return
    found = ((path, os.lstat(path)) for path in _files_below(str(folder)))
    several = {path: (one.st_dev, one.st_ino, one.st_nlink) for path, one in found if one.st_nlink > 1}
    inside = Counter(several.values())
    for path, known in several.items():
        if known[2] > inside[known] and path.startswith(f"{folder}/files/"):
            os.unlink(path)
    done.touch(0o600)


def _files_below(folder: str) -> Iterator[str]:
    """As deep as files are fetched from."""
    waiting = [(folder, 0)]
    while waiting:
        at, depth = waiting.pop()
        make_accessible(at)
        with os.scandir(at) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.path
                elif depth <= _MOST_DEPTH:
                    waiting.append((entry.path, depth + 1))


def make_accessible(folder: Path | str) -> None:
    """Restores the owner's permissions on a folder, which a job may have removed. Links and other users' folders stay
    unchanged."""
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)


def _take_file(source: Path, into: Path) -> bool:
    """Uses a hard link where possible: it costs nothing and outlives the job's folder."""
    try:
        mode = source.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        return False
    if not mode & stat.S_IRUSR:
        source.chmod(0o600)
    try:
        os.link(source, into)
    except FileExistsError:  # from an earlier fetch
        into.unlink()
        return _take_file(source, into)
    except OSError:
        shutil.copyfile(source, into)
    return True


def _stays_inside(link: Path, root: Path) -> bool:
    if os.path.isabs(os.readlink(link)):
        return False
    try:
        return link.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # broken, or a cycle
        return False


MOST_CHARACTERS = 100


class _Text(msgspec.Struct):
    text: str


class _Record(msgspec.Struct):
    """The fields read here: started steps, the ready port, progress notes."""

    event: str = ""
    step: int | None = None
    at_s: float | None = None
    data: _Text | None = None


class Progress:
    """A job's progress, from the agent's records while it writes them; blocks may end anywhere."""

    def __init__(self, steps: Sequence[str]) -> None:
        """`steps`: the names of the job's steps."""
        self.ready_at_s: float | None = None  # by the agent's clock, once its port has answered
        self._steps = steps
        self._rest = b""

    def feed(self, data: bytes) -> str:
        """Returns the latest progress in `data`: the step that started or a progress note; "" if there is none."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines if self.ready_at_s is None else ():
            if b'"event":"ready"' in line and (record := _record(line)).event == "ready":
                self.ready_at_s = record.at_s
                break
        for line in reversed(lines):
            if b'"event":"step"' in line:
                number = _record(line).step
                if number is not None and number < len(self._steps):
                    return self._steps[number]
            elif b'"note":"progress"' in line and (note := _record(line).data) is not None:
                # Text of the job, made safe for one line of a terminal.
                start = note.text[: 4 * MOST_CHARACTERS]
                shown = "".join(character if character.isprintable() else " " for character in start)
                if text := " ".join(shown.split())[:MOST_CHARACTERS]:
                    return text
        return ""


def _record(line: bytes) -> _Record:
    try:
        return decode(line, _Record)
    except Unreadable:
        return _Record()
