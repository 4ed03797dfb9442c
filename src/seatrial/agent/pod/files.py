"""Paths in a pod: the inputs, and the volume that the trial writes and the keeper reads."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import sys
import tarfile
import zlib
from typing import BinaryIO, Iterator, List, Tuple

from ..job_file import JobError
from ..masking.files import open_folders

VARIABLE, DEFAULT = "SEATRIAL_PLACE", "/seatrial"
LOCK = "lock"  # held (flock) by the trial while it runs
STARTED = "started"  # created once, after taking the lock: the steps of a pod run only once
ALIVE = "alive"  # changes while the trial runs, for a keeper without locks
CANCEL = "cancel"  # created to cancel the trial


class PodFolders:
    def __init__(self) -> None:
        self.root = os.environ.get(VARIABLE) or DEFAULT
        self.inputs = os.path.join(self.root, "inputs")
        self.work, self.files = self.volume("work"), self.out("files")

    def volume(self, name: str) -> str:
        return os.path.join(self.root, "volume", name)

    def out(self, name: str = "") -> str:
        return os.path.join(self.volume("out"), name) if name else self.volume("out")

    def make(self) -> None:
        for folder in (self.work, self.volume("home"), self.volume("tmp"), self.files):
            os.makedirs(folder, exist_ok=True)


# `python AGENT pack FOLDER FILES BYTES`: writes a job's output as a reproducible tar archive, with at most FILES kept
# files and BYTES of them. The others are named in `unkept.json`.


FILES, UNKEPT = "files", "unkept.json"
_NAMES = 20  # of files over the limit


def main(arguments: List[str]) -> int:
    try:
        folder, most_files, most_bytes = arguments[0], int(arguments[1]), int(arguments[2])
    except (IndexError, ValueError):
        sys.stderr.write("usage: python AGENT pack FOLDER FILES BYTES\n")
        return 2
    _pack(folder, sys.stdout.buffer, most_files, most_bytes)
    return 0


def _pack(folder: str, into: BinaryIO, most_files: int, most_bytes: int) -> None:
    open_folders(folder)
    files = size = 0
    over: List[Tuple[str, int]] = []
    with tarfile.open(fileobj=into, mode="w|") as archive:
        for path in _below(folder):
            name = os.path.relpath(path, folder)
            archive.inodes = {}  # type: ignore[attr-defined]  # a second name of a file is a file as well
            info = archive.gettarinfo(path, "./" + name)
            if info is None:  # a socket
                continue
            if info.isreg() and name.startswith(FILES + os.sep):
                if files == most_files or size + info.size > most_bytes:
                    over.append((name, info.size))
                    continue
                files, size = files + 1, size + info.size
            if info.isreg():
                with open(path, "rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)
        if over:
            names = [os.fsencode(name).decode("utf-8", "backslashreplace") for name, _ in over[:_NAMES]]
            data = json.dumps({"count": len(over), "bytes": sum(size for _, size in over), "names": names}).encode()
            info = tarfile.TarInfo("./" + UNKEPT)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _below(folder: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(folders + names):
            yield os.path.join(parent, name)


# Unpacks a job's inputs, one tar.gz in parts, into its work folder. Nothing is written elsewhere.


_BLOCK_BYTES = 1 << 18
_PART = re.compile(r"part-\d+")


def unpack(folder: str, work: str) -> None:
    """Unpacks part-0000, part-0001, ... of `folder`. Raises JobError if they are not an archive or would leave
    `work`."""
    try:
        names = sorted(name for name in os.listdir(folder) if _PART.fullmatch(name))
    except OSError as error:
        raise JobError("job inputs not found: %s" % error) from error
    if not names:
        raise JobError("job inputs not found: %s has no part-0000" % folder)
    parts = io.BytesIO()  # at most 16 MiB, because they come from ConfigMaps
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            parts.write(file.read())
    parts.seek(0)
    try:
        with gzip.open(parts) as whole:
            with tarfile.open(fileobj=whole, mode="r|") as archive:
                _unpack(archive, work)
            while whole.read(_BLOCK_BYTES):  # read to the end, to verify the checksum
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = "cannot unpack the job inputs: %s (%d parts in %s)" % (error, len(names), folder)
        raise JobError(message) from error


def _unpack(archive: tarfile.TarFile, work: str) -> None:
    """Creates links last, so that nothing is written through one. Link targets are not checked: the job could create
    the same links itself."""
    links: List[Tuple[str, tarfile.TarInfo]] = []
    folders: List[Tuple[str, int]] = []
    for member in archive:
        path = _inside(work, member.name)
        if member.isdir():
            os.makedirs(path, exist_ok=True)
            folders.append((path, member.mode))
        elif member.isreg():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write(archive, member, path)
        elif member.issym() or member.islnk():
            links.append((path, member))
        else:
            text = "the job inputs contain %r, which is not a file, folder or link; remove it"
            raise JobError(text % member.name, "refused")
    for path, member in links:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            if member.issym():
                os.symlink(member.linkname, path)
            else:
                os.link(_inside(work, member.linkname), path, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError) as error:
            raise JobError("cannot create link %r from the job inputs: %s" % (member.name, error), "refused") from error
    for path, mode in reversed(folders):  # last, because a read-only folder could not be written to
        if not os.path.islink(path):
            os.chmod(path, mode & 0o777 | 0o700)


def _inside(work: str, name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise JobError("the job inputs contain %r, which is outside the work folder" % name, "refused")
    return os.path.join(work, *parts)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    source = archive.extractfile(member)
    assert source is not None
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a duplicate name: the later one wins
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(sink, "wb") as file:
        for block in iter(lambda: source.read(_BLOCK_BYTES), b""):
            file.write(block)
        os.fchmod(sink, member.mode & 0o777 | 0o400)
    os.utime(path, (member.mtime, member.mtime))
