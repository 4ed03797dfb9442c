"""Builds environments with uv and repairs damaged ones: all cells share an environment, and a job can write to it.

Files are compared with their state after the build and with the RECORD of their package. `__pycache__` is ignored.
"""

import asyncio
import base64
import contextlib
import csv
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, read_json
from seatrial.targets.agent_file import write_whole
from seatrial.targets.local.folders import remove_tree
from seatrial.targets.local.programs import python_version, run_uv
from seatrial.targets.protocol import TargetError

COMPLETE = ".complete"
_APART = {COMPLETE, ".lock"}  # files that are not compared: ours, and uv's
_HASH = re.compile(r"(sha256|sha384|sha512)=([A-Za-z0-9_-]+)=*")
_POLL_S = 0.1


class KeptFile(msgspec.Struct, frozen=True, array_like=True):
    """State of a file after the build. No program can set `changed_ns` (ctime), so a file with the same times and size
    need not be read."""

    size: int
    written_ns: int
    changed_ns: int
    digest: str


class Installed(msgspec.Struct, frozen=True):
    """Record of a finished build."""

    content: str  # what it was built from
    files: dict[str, KeptFile]  # by their paths below it


@contextlib.asynccontextmanager
async def build_lock(path: Path) -> AsyncIterator[int]:
    """Holds the lock for the block. Pass the descriptor to uv: if only this process is killed, the next one still
    waits until uv has finished."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise TargetError(f"cannot create the lock file {path}: {error.strerror}; run `seatrial doctor`") from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


async def make_whole(path: Path, interpreter: str, pins: str, content: str, lock: int) -> None:
    """Builds a missing environment, repairs a damaged one. Intact files are not touched, because other jobs may be
    using them. Raises TargetError."""
    python = path / "bin" / "python"
    try:
        kept = None
        with contextlib.suppress(OSError, Unreadable, TargetError):
            installed = read_json(path / COMPLETE, Installed)
            await python_version(python)  # the interpreter behind the link may have been removed since
            kept = installed.files if installed.content == content else None
        if kept is not None:
            damaged = await asyncio.to_thread(_changed, path, kept)
            if not damaged:
                return
            for added in damaged - kept.keys():
                (path / added).unlink(missing_ok=True)
            owned = await asyncio.to_thread(_packages, path)
            await _install(path, pins, lock, {name for name, files in owned.items() if damaged & files.keys()})
            damaged = await asyncio.to_thread(_changed, path, kept)
        if kept is None or damaged:
            if path.exists():
                await asyncio.to_thread(remove_tree, path)
            await run_uv("venv", "--no-project", "--python", interpreter, str(path), folder=path.parent, lock=lock)
            await _install(path, pins, lock)
            await python_version(python)
        # The marker comes last: an environment without it is built again.
        stock = await asyncio.to_thread(lambda: {name: _kept_file(path, name) for name in _paths(path)})
        write_whole(path / COMPLETE, msgspec.json.encode(Installed(content, stock)))
    except OSError as error:
        raise TargetError(f"cannot build the environment {path}: {error}") from error


async def _install(path: Path, pins: str, lock: int, again: Iterable[str] = ()) -> None:
    """Copies files instead of linking them: otherwise a job that writes to its runtime would write to uv's cache and to
    all environments made from it. Packages that are damaged in the cache are downloaded again."""

    async def install(again: Iterable[str]) -> None:
        reinstall = [word for name in sorted(again) for word in ("--reinstall-package", name)]
        words = ("--no-deps", "--link-mode", "copy", *reinstall, "--python", str(path / "bin" / "python"), "-r", "-")
        await run_uv("pip", "install", *words, folder=path.parent, given=pins, lock=lock)

    await install(again)
    damaged = await asyncio.to_thread(_damaged_packages, path)
    if damaged:
        await run_uv("cache", "clean", *sorted(damaged), folder=path.parent, lock=lock)
        await install(damaged)  # a mismatch that remains was published that way


# The functions below block.


def _changed(environment: Path, kept: Mapping[str, KeptFile]) -> set[str]:
    """Missing, new and changed files. Content is compared only if size or times differ: a copied folder has other
    times."""
    there = _paths(environment)
    changed = there ^ kept.keys()
    for path in there & kept.keys():
        before = kept[path]
        try:
            stat = os.lstat(f"{environment}/{path}")
            times = (before.written_ns, before.changed_ns)
            if stat.st_size != before.size or (stat.st_mtime_ns, stat.st_ctime_ns) != times:
                now = _kept_file(environment, path)
                if (now.size, now.digest) != (before.size, before.digest):
                    changed.add(path)
        except OSError:
            changed.add(path)
    return changed


def _paths(environment: Path) -> set[str]:
    found, start = set(), len(str(environment)) + 1
    for folder, folders, names in os.walk(environment):
        linked = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        folders[:] = [name for name in folders if name != "__pycache__"]
        found |= {f"{folder}/{name}"[start:] for name in (*names, *linked)}
    return found - _APART


def _kept_file(environment: Path, path: str) -> KeptFile:
    full = f"{environment}/{path}"
    stat = os.lstat(full)
    if os.path.islink(full):
        digest = f"-> {os.readlink(full)}"
    else:
        with open(full, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return KeptFile(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest)


def _packages(environment: Path) -> dict[str, dict[str, str]]:
    """Files of each installed package, by name: path and the hash in its RECORD."""
    found: dict[str, dict[str, str]] = {}
    for record in environment.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        name = record.parent.name.removesuffix(".dist-info").rpartition("-")[0]
        files = found[name] = {}
        # A damaged RECORD lists no files; it is itself found as changed.
        with contextlib.suppress(OSError, ValueError, csv.Error), record.open(encoding="utf-8", newline="") as lines:
            for path, digest, *_ in (line if len(line) > 1 else (*line, "") for line in csv.reader(lines) if line):
                files[os.path.relpath(record.parent.parent / path, environment)] = digest
    return found


def _damaged_packages(environment: Path) -> set[str]:
    """Names of packages with a file that differs from their RECORD. Files that the installer generates, such as those
    in `bin`, are not in the cache and are not checked."""
    return {
        name
        for name, files in _packages(environment).items()
        if any(path.startswith("lib/") and not _matches(environment / path, digest) for path, digest in files.items())
    }


def _matches(path: Path, recorded: str) -> bool:
    """Whether a file has the hash in its RECORD; True if the hash has an unknown format."""
    wanted = _HASH.fullmatch(recorded)
    if wanted is None:
        return True
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, wanted[1]).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == wanted[2]
