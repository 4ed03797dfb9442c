"""The files of a built environment: whether they are what their packages say, and whether they still are what they were
when it was built. All cells share it, and a job can write to whatever it imports.

Files that Python compiles (`__pycache__`) are not looked at: they come and go with what is imported."""

import base64
import contextlib
import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

_HASH = re.compile(r"(sha256|sha384|sha512)=([A-Za-z0-9_-]+)=*")


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """As it was when the environment was built. The time of its last change cannot be set by any program, so that what
    has the same times and size needs not be read."""

    size: int
    written_ns: int
    changed_ns: int
    digest: str


class Installed(msgspec.Struct, frozen=True):
    """What is written down of an environment at the end of its build."""

    content: str  # what it was built of
    files: dict[str, KeptFile]  # by their paths below it


def take_stock(environment: Path, apart: Iterable[str] = ()) -> dict[str, KeptFile]:
    """Every file below `environment` but those `apart`. Blocks; raises OSError."""
    found = {path: _kept(f"{environment}/{path}") for path in _paths(environment)}
    return {path: kept for path, kept in found.items() if path not in apart}


def changed(environment: Path, files: Mapping[str, KeptFile], apart: Iterable[str] = ()) -> set[str]:
    """Files that are missing, are new, or are not as they were: by size and times, and by content where those differ,
    for a copy of a folder has other times. Blocks."""
    there = set(_paths(environment)) - set(apart)
    return (there ^ files.keys()) | {path for path in there & files.keys() if _differs(environment, path, files[path])}


def packages(environment: Path) -> dict[str, dict[str, str]]:
    """By the name of each package that is installed there, its files: path to what RECORD says of its content."""
    found: dict[str, dict[str, str]] = {}
    for site in environment.glob("lib/python*/site-packages"):
        for record in site.glob("*.dist-info/RECORD"):
            name = record.parent.name.removesuffix(".dist-info").rpartition("-")[0]
            found[name] = dict(_recorded(record, site, environment))
    return found


def damaged_packages(environment: Path) -> set[str]:
    """Names of packages of which a file is not what their RECORD says. What an installer makes itself, such as
    programs in `bin`, is not in a cache and so is not looked at. Blocks."""
    return {
        name
        for name, files in packages(environment).items()
        if any(said and path.startswith("lib/") and not _is(environment / path, said) for path, said in files.items())
    }


def _recorded(record: Path, site: Path, environment: Path) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError, ValueError, csv.Error), record.open(encoding="utf-8", newline="") as lines:
        for line in csv.reader(lines):
            if line:
                path = os.path.relpath(os.path.join(site, line[0]), environment)
                yield path, line[1] if len(line) > 1 else ""


def _is(path: Path, said: str) -> bool:
    """Whether a file has the content that a RECORD says; True of what is said in a way that is not known here."""
    wanted = _HASH.fullmatch(said)
    if wanted is None:
        return True
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, wanted[1]).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == wanted[2]


def _paths(environment: Path) -> Iterator[str]:
    start = len(str(environment)) + 1
    for folder, folders, names in os.walk(environment):
        linked = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*names, *linked):
            yield f"{folder}/{name}"[start:]


def _kept(path: str) -> KeptFile:
    stat = os.lstat(path)
    return KeptFile(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, _digest(path))


def _digest(path: str) -> str:
    if os.path.islink(path):
        return f"-> {os.readlink(path)}"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _differs(environment: Path, path: str, kept: KeptFile) -> bool:
    try:
        stat = os.lstat(environment / path)
        if (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) == (kept.size, kept.written_ns, kept.changed_ns):
            return False
        return stat.st_size != kept.size or _digest(f"{environment}/{path}") != kept.digest
    except OSError:
        return True
