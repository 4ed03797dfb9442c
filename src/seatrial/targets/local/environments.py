"""Runtimes on this machine: an environment that is built once and kept, an existing interpreter, or an image.

Jobs can write to the environments that they share, so a built environment is checked and repaired before each use.
"""

import asyncio
import base64
import contextlib
import csv
import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from seatrial.job import Environment, Outcome, Unreadable, read_json
from seatrial.targets.agent_file import write_whole
from seatrial.targets.local.containers import Image, pulled_image, working_engine
from seatrial.targets.local.folders import remove_tree, try_lock
from seatrial.targets.local.programs import activity, machine_path, python_version, run_uv
from seatrial.targets.protocol import TargetError, refused
from seatrial.targets.tasks import shared_task

RESOLVE_AGAIN_S = 3600.0  # how long resolved versions are reused; resolving takes seconds
_AT_ONCE = 2  # parallel builds, which share network and disk
PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'


class PreparedEnvironment(msgspec.Struct, frozen=True):
    """A runtime that is ready for a job."""

    python: Path | None = None
    bin_folders: tuple[Path, ...] = ()
    virtual_env: Path | None = None
    built: bool = False  # by us and shared by cells: each job gets its own layer over it
    image: Image | None = None
    driver: str | None = sys.executable  # interpreter with nbclient, for runtimes without it


_Key = tuple[str | None, str | None, tuple[str, ...]]  # image, Python, packages


class Environments:
    """Prepares runtimes. Each is resolved once per process, so that all its cells get the same versions."""

    def __init__(self, cache: Path, engine: str | None = None) -> None:
        self._preferred = engine
        self._engine: dict[str | None, asyncio.Task[str]] = {}
        self._folder = cache / "environments"
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._prepared: dict[_Key, asyncio.Task[PreparedEnvironment]] = {}
        self._activities: dict[_Key, str] = {}  # progress of builds, in a few words

    async def ready(self, environment: Environment) -> PreparedEnvironment:
        """Returns the runtime, built or pulled if needed. Raises TargetError: REFUSED (permanent) or INFRA
        (temporary)."""
        key = (environment.image, environment.python, environment.packages)
        if environment.seatrial:
            return PreparedEnvironment(python=Path(sys.executable))
        if environment.image is not None:
            return await shared_task(self._prepared, key, lambda: self._pull(key))
        if environment.interpreter is not None:
            return await _existing(environment.interpreter)
        if environment.python is None and not environment.packages:
            found = shutil.which("python3", path=machine_path())
            return PreparedEnvironment(python=Path(found) if found else None)
        return await shared_task(self._prepared, key, lambda: self._build(key))

    def doing(self, environment: Environment) -> str:
        """Current activity in a few words; empty if there is none."""
        key = (environment.image, environment.python, environment.packages)
        if key not in self._prepared or self._prepared[key].done():
            return ""
        return self._activities.get(key, "waiting for other environments to be built")

    async def close(self) -> None:
        for task in self._prepared.values():
            task.cancel()
        await asyncio.gather(*self._prepared.values(), return_exceptions=True)

    def _report_activity(self, key: _Key) -> None:
        self._activities[key] = ""
        activity.set(lambda text: self._activities.update({key: text}))  # of this task alone

    async def _pull(self, key: _Key) -> PreparedEnvironment:
        self._report_activity(key)
        engine = await shared_task(self._engine, self._preferred, lambda: working_engine(self._preferred))
        return PreparedEnvironment(image=await pulled_image(str(key[0]), engine), driver=None)

    async def _build(self, key: _Key) -> PreparedEnvironment:
        _, python, packages = key
        async with self._turn:
            self._report_activity(key)
            for package in packages:
                if "\n" in package or package.lstrip().startswith("-"):
                    raise refused(f"invalid package requirement {package!r}")
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TargetError(f"cannot create the environment folder {self._folder}: {error}") from error
            request = python or "{}.{}".format(*sys.version_info)
            interpreter = await _find_python(request, self._folder)
            version = await python_version(Path(interpreter))
            pins = await self._resolved(interpreter, version, [*packages, "pip"])
            content = "\n".join((request, os.path.realpath(interpreter), version, platform.platform(), pins))
            path = self._folder / hashlib.sha256(content.encode()).hexdigest()[:20]
            async with build_lock(path.with_suffix(".lock")) as lock:
                await make_whole(path, interpreter, pins, content, lock)
            return PreparedEnvironment(path / "bin" / "python", (path / "bin",), path, built=True)

    async def _resolved(self, interpreter: str, version: str, packages: list[str]) -> str:
        """Exact versions for these requirements today. Every runtime has pip, because notebooks install with it."""
        index = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("UV_"))
        asked = "\n".join((os.path.realpath(interpreter), version, *packages, *index))
        kept = self._folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:20]}.pins"
        with contextlib.suppress(OSError):
            if time.time() - kept.stat().st_mtime < RESOLVE_AGAIN_S and (pins := read_pins(kept)):
                return pins
        pins = await run_uv(
            "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", interpreter, "-",
            folder=self._folder, given="\n".join(packages),
        )  # fmt: skip
        with contextlib.suppress(OSError):  # the next process resolves again then
            write_pins(kept, pins)
        return pins


def read_pins(path: Path) -> str:
    """Returns "" if the file was changed since it was written."""
    digest, _, pins = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    return pins if digest == _pins_digest(pins) else ""


def write_pins(path: Path, pins: str) -> None:
    write_whole(path, f"{_pins_digest(pins)}\n{pins}".encode())


def _pins_digest(pins: str) -> str:
    return f"# sha256 {hashlib.sha256(pins.encode()).hexdigest()}"


async def _existing(interpreter: str) -> PreparedEnvironment:
    found = shutil.which(os.path.expanduser(interpreter), path=machine_path())
    if found is None:
        why = "not found or not executable"
        if own := shutil.which(interpreter):
            why = f"is only in Seatrial's own environment, which jobs do not see; to test that one, use {own}"
        raise refused(f"interpreter {interpreter} {why}")
    path = Path(found).absolute()
    try:
        await python_version(path)
    except TargetError as error:
        raise refused(str(error)) from error
    environment = path.parent.parent
    return PreparedEnvironment(path, (path.parent,), environment if (environment / "pyvenv.cfg").exists() else None)


async def _find_python(request: str, folder: Path) -> str:
    """An installed one, else one that uv can download."""
    try:
        found = await run_uv("python", "find", "--no-project", request, folder=folder, request=request)
    except TargetError as error:
        if error.outcome is not Outcome.REFUSED:
            raise
        await run_uv("python", "install", request, folder=folder)
        found = await run_uv("python", "find", "--no-project", request, folder=folder, request=request)
    return found.strip()


# ---- a job's own layer over an environment


def layered(environment: PreparedEnvironment, layer: Path) -> PreparedEnvironment:
    """Adds a layer for this job if the environment is shared, so that a notebook's `pip install` does not affect other
    cells."""
    if not environment.built or environment.virtual_env is None:
        return environment
    try:
        lay_over(environment.virtual_env, layer)
    except OSError as error:
        raise TargetError(f"cannot create {layer}: {error}") from error
    return PreparedEnvironment(layer / "bin" / "python", (layer / "bin", *environment.bin_folders), layer)


def lay_over(environment: Path, layer: Path) -> None:
    """Creates `layer`, replacing an incomplete one. Raises OSError.

    The layer is a virtual environment of a few links. Packages that the job installs go there and vanish with the job;
    everything else is found in the shared environment below."""
    site = next(environment.glob("lib/python*/site-packages"))
    own_site = layer / site.relative_to(environment)
    own_site.mkdir(parents=True, exist_ok=True)
    (layer / "bin").mkdir(exist_ok=True)
    (layer / "pyvenv.cfg").write_bytes((environment / "pyvenv.cfg").read_bytes())
    # Unlike a plain path, addsitedir also processes the .pth files in the folder.
    (own_site / "_below.pth").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    for name in ("python", "python3", site.parent.name):
        _link(layer / "bin" / name, (environment / "bin" / "python").resolve())
    for name in ("share", "etc"):  # Jupyter kernels and settings
        if (environment / name).is_dir():
            _link(layer / name, environment / name)
    if (environment / "bin" / "pip").exists():  # the shared pip would install into the shared environment
        for name in ("pip", "pip3"):
            (layer / "bin" / name).write_text(PIP)
            (layer / "bin" / name).chmod(0o755)


def _link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)


COMPLETE = ".complete"
_APART = {COMPLETE, ".lock"}  # files that are not compared: ours, and uv's
_HASH = re.compile(r"(sha256|sha384|sha512)=([A-Za-z0-9_-]+)=*")
_POLL_S = 0.1


class Installed(msgspec.Struct, frozen=True):
    """Record of a finished build."""

    content: str  # what it was built from
    files: dict[str, tuple[int, int]]  # size and ctime, which no program can set, by their paths below it


@contextlib.asynccontextmanager
async def build_lock(path: Path) -> AsyncIterator[int]:
    """Holds the lock for the block. Pass the descriptor to uv: if only this process is killed, the next one still
    waits until uv has finished."""
    try:
        while True:
            with try_lock(path) as descriptor:
                if descriptor is not None:
                    yield descriptor
                    return
            await asyncio.sleep(_POLL_S)
    except OSError as error:
        raise TargetError(f"cannot create the lock file {path}: {error.strerror}; run `seatrial doctor`") from error


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
            found = await asyncio.to_thread(_files, path)
            if found == kept:
                return
            for added in found.keys() - kept.keys():
                (path / added).unlink(missing_ok=True)
            lost = {name for name, state in kept.items() if found.get(name) != state}
            owned = await asyncio.to_thread(_packages, path)
            damaged = {name for name, files in owned.items() if lost & files.keys()}
            if lost <= {file for name in damaged for file in owned[name]}:
                await _install(path, pins, lock, damaged)
            else:
                kept = None
        if kept is None:
            if path.exists():
                await asyncio.to_thread(remove_tree, path)
            await run_uv("venv", "--no-project", "--python", interpreter, str(path), folder=path.parent, lock=lock)
            await _install(path, pins, lock)
            await python_version(python)
        # The marker comes last: an environment without it is built again.
        stock = await asyncio.to_thread(_files, path)
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


def _files(environment: Path) -> dict[str, tuple[int, int]]:
    """All files as in `Installed`."""
    found, start = {}, len(str(environment)) + 1
    for folder, folders, names in os.walk(environment):
        linked = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (f"{folder}/{name}" for name in (*names, *linked)):
            with contextlib.suppress(FileNotFoundError):  # a temporary file of a running job
                stat = os.lstat(path)
                found[path[start:]] = stat.st_size, stat.st_ctime_ns
    return {path: state for path, state in found.items() if path not in _APART}


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
