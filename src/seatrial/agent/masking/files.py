"""Masks secrets in the files that a job keeps, in their content and in their names."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
from typing import IO, Callable, Iterable, Iterator, List, Optional

from .mask import Mask

_BLOCK_BYTES = 1 << 20
NOTEBOOK_BYTES = 64 << 20
_FOLDER_BYTES = 3000  # of a path; a file in the folder can then be opened and renamed
_SHOWN_CHARACTERS = 200


def mask_files(folder: str, mask: Mask) -> str:
    """Masks the secrets in all files below `folder`. Deletes what cannot be masked, and returns a message about it.
    Raises OSError if something can be neither masked nor deleted."""
    if not mask.values or os.path.islink(folder) or not os.path.isdir(folder):
        return ""
    problems: List[str] = []

    def not_kept(error: OSError, path: str) -> None:
        where = mask.text(os.path.relpath(path, folder))
        if len(where) > _SHOWN_CHARACTERS:
            where = where[:_SHOWN_CHARACTERS] + "…"
        problems.append("%s was discarded because it may contain a secret: %s" % (where, error.strerror))

    for parent in reversed(open_folders(folder, not_kept)):
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            try:
                mask_file(path, mask)
            except OSError as error:
                not_kept(error, path)
                _delete(path)
            masked = mask.text(name)
            if masked != name and os.path.lexists(path):
                stem, ending = os.path.splitext(masked)
                os.rename(path, os.path.join(parent, stem[:40] + "-" + os.urandom(4).hex() + ending[:10]))
    return "; ".join(problems)


def open_folders(folder: str, not_kept: Optional[Callable[[OSError, str], None]] = None) -> List[str]:
    """Restores the owner's rights to all folders, which a job may have removed, so that its files can be searched and
    deleted. Returns the folders, each after its parent. With `not_kept`, deletes those that cannot be searched, or that
    are nested too deeply, and calls it for each."""
    found: List[str] = []
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError):  # another user's folder; later errors are reported
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(path, mode | stat.S_IRWXU)
        try:
            if len(os.fsencode(path)) > _FOLDER_BYTES:
                raise OSError(errno.ENAMETOOLONG, "nested too deeply")
            with os.scandir(path) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            found.append(path)
        except OSError as error:
            if not_kept is not None:
                not_kept(error, path)
                subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL)  # Python's own can be too deep
                if os.path.lexists(path):
                    raise OSError(errno.EIO, "cannot delete", path) from error
    return found


def mask_file(path: str, mask: Mask, exact: bool = True) -> None:
    """Searches a file first, so that the many files without a secret are not rewritten. `exact`: invisible characters
    count, as in anything but a log."""
    file_stat = os.lstat(path)
    if stat.S_ISLNK(file_stat.st_mode):
        if mask.text(os.readlink(path)) != os.readlink(path):
            _delete(path)
        return
    if not stat.S_ISREG(file_stat.st_mode):
        return
    if not file_stat.st_mode & stat.S_IRUSR:
        os.chmod(path, stat.S_IMODE(file_stat.st_mode) | stat.S_IRUSR)
    if path.endswith(".ipynb") and _mask_notebook(path, mask, stat.S_IMODE(file_stat.st_mode)):
        return
    stream = mask.stream(exact)
    with _open(path) as file:
        source = file.fileno()
        for block in _blocks(source):
            stream.feed(block)
            if stream.found:
                break
        stream.flush()
        if not stream.found:
            return
        os.lseek(source, 0, os.SEEK_SET)
        rewrite(path, _masked(source, mask, exact), stat.S_IMODE(file_stat.st_mode))


def _mask_notebook(path: str, mask: Mask, mode: int) -> bool:
    """Masks the texts of a notebook and leaves its format's own keywords. False if it is not a notebook."""
    with _open(path) as file:
        if os.fstat(file.fileno()).st_size > NOTEBOOK_BYTES:
            return False
        data = b"".join(_blocks(file.fileno()))
    try:
        notebook = json.loads(data.decode("utf-8"))
        if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
            return False
        masked = mask.data(notebook)
    except (ValueError, RecursionError):
        return False
    if masked != notebook:
        rewrite(path, [json.dumps(masked, indent=1, ensure_ascii=False).encode("utf-8", "replace")], mode)
    return True


def _masked(source: int, mask: Mask, exact: bool) -> Iterator[bytes]:
    stream = mask.stream(exact)
    for block in iter(lambda: os.read(source, _BLOCK_BYTES), b""):
        yield stream.feed(block)
    yield stream.flush()


def rewrite(path: str, blocks: Iterable[bytes], mode: int) -> None:
    new = os.path.join(os.path.dirname(path), ".seatrial-%s" % os.urandom(8).hex())
    # An unpredictable name and a new file, because the job may have placed links.
    sink = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for block in blocks:
            while block:
                block = block[os.write(sink, block) :]
        os.fchmod(sink, mode)
        os.rename(new, path)
    finally:
        os.close(sink)
        _delete(new)


def _open(path: str) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 0)


def _blocks(source: int) -> Iterator[bytes]:
    """Yields the content without the holes of a sparse file, which would take hours to read."""
    position = 0
    while True:
        try:
            position = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            raise
        end = os.lseek(source, position, os.SEEK_HOLE)
        os.lseek(source, position, os.SEEK_SET)
        while position < end:
            block = os.read(source, min(_BLOCK_BYTES, end - position))
            if not block:
                return
            position += len(block)
            yield block


def _delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
