"""Runtimes on this machine: an environment that is built once and kept, an existing interpreter, or an image.

Jobs can write to the environments that they share, so a built environment is checked and repaired before each use.
"""

import asyncio
import contextlib
import hashlib
import os
import platform
import shutil
import sys
import time
from pathlib import Path

import msgspec

from seatrial.job import Environment, Outcome
from seatrial.targets.agent_file import write_whole
from seatrial.targets.local.build import build_lock, make_whole
from seatrial.targets.local.containers import Image, Images, shared_task
from seatrial.targets.local.programs import activity, machine_path, python_version, run_uv
from seatrial.targets.protocol import TargetError, refused

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


_Key = tuple[str | None, tuple[str, ...]]


class Environments:
    """Prepares runtimes. Each is resolved once per process, so that all its cells get the same versions."""

    def __init__(self, cache: Path, engine: str | None = None) -> None:
        self._images = Images(engine)
        self._folder = cache / "environments"
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._prepared: dict[_Key, asyncio.Task[PreparedEnvironment]] = {}
        self._activities: dict[_Key, str] = {}  # progress of builds, in a few words

    async def ready(self, environment: Environment) -> PreparedEnvironment:
        """Returns the runtime, building it if needed. Raises TargetError: REFUSED (permanent) or INFRA (temporary)."""
        if environment.seatrial:
            return PreparedEnvironment(python=Path(sys.executable))
        if environment.image is not None:
            image = await self._images.ready(environment.image)
            return PreparedEnvironment(image=image, driver=None)
        if environment.interpreter is not None:
            return await _existing(environment.interpreter)
        if environment.python is None and not environment.packages:
            found = shutil.which("python3", path=machine_path())
            return PreparedEnvironment(python=Path(found) if found else None)
        key = (environment.python, environment.packages)
        return await shared_task(self._prepared, key, lambda: self._build(*key))

    def doing(self, environment: Environment) -> str:
        """Current activity in a few words; empty if there is none."""
        if environment.image is not None:
            return self._images.doing(environment.image)
        key = (environment.python, environment.packages)
        if key not in self._prepared or self._prepared[key].done():
            return ""
        return self._activities.get(key, "waiting for other environments to be built")

    async def close(self) -> None:
        for task in self._prepared.values():
            task.cancel()
        await asyncio.gather(*self._prepared.values(), return_exceptions=True)

    async def _build(self, python: str | None, packages: tuple[str, ...]) -> PreparedEnvironment:
        async with self._turn:
            self._activities[python, packages] = ""
            activity.set(lambda text: self._activities.update({(python, packages): text}))  # of this task alone
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
