"""Runtimes on this machine: an environment that is built once and kept, an existing interpreter, or an image. A job can
write to the environment that it shares with others; before each use it is compared and healed."""

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

RESOLVE_AGAIN_S = 3600.0  # a runtime means the same versions for that long; asking the index anew takes seconds
_AT_ONCE = 2  # builds: they share the network and the disk
PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'


class PreparedEnvironment(msgspec.Struct, frozen=True):
    """What a job finds of its runtime."""

    python: Path | None = None
    bin_folders: tuple[Path, ...] = ()
    virtual_env: Path | None = None
    built: bool = False  # by us, for all cells that want it: a job gets a layer of its own over it
    image: Image | None = None
    driver: str | None = sys.executable  # an interpreter with nbclient, for a runtime that has none


_Key = tuple[str | None, tuple[str, ...]]


class Environments:
    """Each runtime is resolved once in the life of this process, so that all its cells get the same versions."""

    def __init__(self, cache: Path, engine: str | None = None) -> None:
        self._images = Images(engine)
        self._folder = cache / "environments"
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._prepared: dict[_Key, asyncio.Task[PreparedEnvironment]] = {}
        self._activities: dict[_Key, str] = {}  # of those that are being built, in a few words

    async def ready(self, environment: Environment) -> PreparedEnvironment:
        """The runtime, built if need be. REFUSED: it cannot be had; INFRA: it could not be had now."""
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
        """What is being done for it now; empty when nothing is."""
        if environment.image is not None:
            return self._images.doing(environment.image)
        key = (environment.python, environment.packages)
        if key not in self._prepared or self._prepared[key].done():
            return ""
        return self._activities.get(key, "other environments are built before its own")

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
                    raise refused(f"{package!r} is not a package requirement")
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TargetError(f"cannot make {self._folder} for environments: {error}") from error
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
        """The exact versions that these requirements mean today. Every runtime has pip: notebooks install with it."""
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
        with contextlib.suppress(OSError):  # the next process asks again then
            write_pins(kept, pins)
        return pins


def read_pins(path: Path) -> str:
    """Nothing when the file is not as it was written."""
    digest, _, pins = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    return pins if digest == _pins_digest(pins) else ""


def write_pins(path: Path, pins: str) -> None:
    write_whole(path, f"{_pins_digest(pins)}\n{pins}".encode())


def _pins_digest(pins: str) -> str:
    return f"# sha256 {hashlib.sha256(pins.encode()).hexdigest()}"


async def _existing(interpreter: str) -> PreparedEnvironment:
    found = shutil.which(os.path.expanduser(interpreter), path=machine_path())
    if found is None:
        why = "is not there or cannot be executed"
        if own := shutil.which(interpreter):
            why = f"is only in Seatrial's own environment, which jobs do not see; to test that one, name {own}"
        raise refused(f"interpreter {interpreter} {why}")
    path = Path(found).absolute()
    try:
        await python_version(path)
    except TargetError as error:
        raise refused(str(error)) from error
    environment = path.parent.parent
    return PreparedEnvironment(path, (path.parent,), environment if (environment / "pyvenv.cfg").exists() else None)


async def _find_python(request: str, folder: Path) -> str:
    """One that is installed, else one that uv can fetch."""
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
    """With a layer of the job's own where it was built for all, so that a notebook's `pip install` changes nothing for
    other cells."""
    if not environment.built or environment.virtual_env is None:
        return environment
    try:
        lay_over(environment.virtual_env, layer)
    except OSError as error:
        raise TargetError(f"cannot make {layer}: {error}") from error
    return PreparedEnvironment(layer / "bin" / "python", (layer / "bin", *environment.bin_folders), layer)


def lay_over(environment: Path, layer: Path) -> None:
    """Make `layer`, over anything half made before. Raises OSError.

    It is a virtual environment by itself, made of a few links: what is installed goes there and is gone with the job;
    everything else is found in the environment below it, which all cells share."""
    site = next(environment.glob("lib/python*/site-packages"))
    own_site = layer / site.relative_to(environment)
    own_site.mkdir(parents=True, exist_ok=True)
    (layer / "bin").mkdir(exist_ok=True)
    (layer / "pyvenv.cfg").write_bytes((environment / "pyvenv.cfg").read_bytes())
    # addsitedir also follows the .pth files that are in there; a plain path would not.
    (own_site / "_below.pth").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    for name in ("python", "python3", site.parent.name):
        _link(layer / "bin" / name, (environment / "bin" / "python").resolve())
    for name in ("share", "etc"):  # kernels and settings of Jupyter
        if (environment / name).is_dir():
            _link(layer / name, environment / name)
    if (environment / "bin" / "pip").exists():  # its own would install below
        for name in ("pip", "pip3"):
            (layer / "bin" / name).write_text(PIP)
            (layer / "bin" / name).chmod(0o755)


def _link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)
