"""What a request may name, and how it is opened: nothing outside the folder of runs, and no link inside a run.

A job can write anything into its folder while it is served, links to other places too. So files are not looked up by
their path and then opened: each folder on the way is opened from the one above it, and a link is refused where it is.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.record import RunFolder

_RUN = re.compile(r"[^\W_][\w.-]{0,199}")
_HASH = re.compile(r"[0-9a-f]{8}")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
OWN_FILES = ("plan.json", "journal.jsonl", "results.json", "series.json")  # that are read by name


class NotThere(Exception):
    """There is no such page, and why, for people."""


def run_folder(runs: Path, name: str) -> RunFolder:
    """The folder of the run of this name. Raises NotThere."""
    if not _RUN.fullmatch(name) or ".." in name:
        raise NotThere("That is no name of a run.")
    folder = RunFolder(runs / name)
    try:
        if not stat.S_ISDIR(os.lstat(folder.path).st_mode):
            raise NotThere(f"{name} is not a folder of its own in the folder of runs.")
        for own in OWN_FILES:
            if (folder.path / own).is_symlink():
                raise NotThere(f"{own} of {name} is a link; only what is in the run's own folder is shown.")
    except FileNotFoundError:
        raise NotThere(f"There is no run {name} here. Its folder may have been removed.") from None
    except (OSError, ValueError):
        raise NotThere("That is no name of a run.") from None
    return folder


def cell_hash(text: str) -> str:
    """Raises NotThere."""
    if not _HASH.fullmatch(text):
        raise NotThere("That is no hash of a cell: it has eight hex digits.")
    return text


def attempt_number(text: str) -> int:
    """Raises NotThere."""
    if not _NUMBER.fullmatch(text):
        raise NotThere("That is no number of an attempt.")
    return int(text)


@contextmanager
def opened_below(folder: Path, path: str) -> Iterator[int]:
    """A descriptor of the regular file at this path below the folder; no component of it is a link. Raises NotThere."""
    parts = path.split("/")
    if not path or len(parts) > 40 or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise NotThere("That is no path of a file of a run.")
    held: list[int] = []
    try:
        held.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            held.append(os.open(part, flags, dir_fd=held[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        held.append(os.open(parts[-1], flags, dir_fd=held[-1]))
        if not stat.S_ISREG(os.fstat(held[-1]).st_mode):
            raise NotThere("That is not a regular file.")
        yield held[-1]
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotThere("There is a link on the way to that file; links are not followed.") from None
        raise NotThere("There is no such file in this run.") from None
    finally:
        for one in held:
            os.close(one)
