"""Runtimes on this machine: an environment that is built once and kept, an interpreter that is there, or an image."""

import asyncio
import contextlib
import hashlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from seatrial.job import Environment, Outcome
from seatrial.target.local.build_lock import BuildLock
from seatrial.target.local.containers import Image, Images
from seatrial.target.protocol import TargetError

MESSAGE_CHARACTERS = 2000
RESOLVE_AGAIN_S = 3600.0  # a runtime means the same versions for that long; asking the index anew takes seconds
START_S = 60.0  # for an interpreter to say what it is
AT_ONCE = 2  # builds: they share the network and the disk
COMPLETE = ".complete"
PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'
# What uv says when asking again cannot help. Anything else (network, disk, a build that failed) may.
_REFUSED = re.compile(
    r"No solution found|No interpreter found|No download found|[Ii]nvalid version|Failed to parse|Couldn't parse|"
    r"Expected (one of|a |package name|end of)|not a valid|invalid package|Distribution not found"
)
_NETWORK = re.compile(
    r"network|offline|[Ff]ailed to fetch|error sending request|dns error|timed out|connect(ion)? (error|refused|reset)"
)


class PreparedEnvironment(msgspec.Struct, frozen=True):
    """What a job finds of its runtime."""

    python: Path | None = None
    bin_folders: tuple[Path, ...] = ()
    virtual_env: Path | None = None
    built: bool = False  # by us, for all cells that want it: a job gets a layer of its own over it
    image: Image | None = None
    driver: str | None = sys.executable  # an interpreter with nbclient, for a runtime that has none


class Environments:
    """Each runtime is resolved once in the life of this process, so that all its cells get the same versions."""

    def __init__(self, cache: Path, engine: str | None = None) -> None:
        self._images = Images(engine)
        self._folder = cache / "environments"
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._prepared: dict[tuple[str | None, tuple[str, ...]], asyncio.Task[PreparedEnvironment]] = {}

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
            return PreparedEnvironment(python=self._plain_python)
        key = (environment.python, environment.packages)
        if key not in self._prepared or (self._prepared[key].done() and _failed(self._prepared[key])):
            self._prepared[key] = asyncio.create_task(self._in_turn(*key))
        # Shielded: other cells wait for the same; who is cancelled just waits no longer.
        return await asyncio.shield(self._prepared[key])

    @cached_property
    def _plain_python(self) -> Path | None:
        """Of jobs that ask for none."""
        found = shutil.which("python3")
        return Path(found) if found else None

    async def close(self) -> None:
        for task in self._prepared.values():
            task.cancel()
        for task in self._prepared.values():
            with contextlib.suppress(asyncio.CancelledError, TargetError):
                await task

    async def _in_turn(self, python: str | None, packages: tuple[str, ...]) -> PreparedEnvironment:
        async with self._turn:
            return await self._built(python, packages)

    async def _built(self, python: str | None, packages: tuple[str, ...]) -> PreparedEnvironment:
        for package in packages:
            if "\n" in package or package.lstrip().startswith("-"):
                raise TargetError(f"{package!r} is not a package requirement", Outcome.REFUSED)
        self._make_folder()
        request = python or "{}.{}".format(*sys.version_info)
        interpreter = await _find_python(request, self._folder)
        version = await _version(Path(interpreter))
        pins = await self._resolved(interpreter, version, [*packages, "pip"])
        content = "\n".join((request, os.path.realpath(interpreter), version, platform.platform(), pins))
        path = self._folder / hashlib.sha256(content.encode()).hexdigest()[:20]
        async with BuildLock(path.with_suffix(".lock")) as lock:
            if not await _complete(path, content):
                await _build(path, interpreter, pins, content, lock)
        return PreparedEnvironment(path / "bin" / "python", (path / "bin",), path, built=True)

    async def _resolved(self, interpreter: str, version: str, packages: list[str]) -> str:
        """The exact versions that these requirements mean today. Every runtime has pip: notebooks install with it."""
        index = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("UV_"))
        asked = "\n".join((os.path.realpath(interpreter), version, *packages, *index))
        kept = self._folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:20]}.pins"
        with contextlib.suppress(OSError):
            if time.time() - kept.stat().st_mtime < RESOLVE_AGAIN_S:
                return kept.read_text()
        pins = await _uv(
            "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", interpreter, "-",
            folder=self._folder, given="\n".join(packages),
        )  # fmt: skip
        with contextlib.suppress(OSError):  # the next process asks again then
            partial = kept.with_suffix(f".{os.getpid()}")
            partial.write_text(pins)
            partial.rename(kept)
        return pins

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TargetError(f"cannot make {self._folder} for environments: {error}") from error


def _failed(task: "asyncio.Task[PreparedEnvironment]") -> bool:
    return task.cancelled() or task.exception() is not None


async def _complete(path: Path, content: str) -> bool:
    """Built to its end, and its interpreter still starts: the one that it points to may have been removed since."""
    try:
        marked = (path / COMPLETE).read_text()
        await _version(path / "bin" / "python")
    except (OSError, TargetError):
        return False
    return marked == content


async def _build(path: Path, interpreter: str, pins: str, content: str, lock: BuildLock) -> None:
    """The marker comes last: without it whatever is there is made anew."""
    try:
        if path.exists():
            await asyncio.to_thread(shutil.rmtree, path)
        await _uv("venv", "--no-project", "--python", interpreter, str(path), folder=path.parent, lock=lock)
        if pins.strip():
            requirements = path / "requirements.txt"
            requirements.write_text(pins)
            python = str(path / "bin" / "python")
            install = ("pip", "install", "--no-deps", "--python", python, "-r", str(requirements))
            await _uv(*install, folder=path.parent, lock=lock)
        await _version(path / "bin" / "python")
        partial = path / (COMPLETE + ".new")
        partial.write_text(content)
        partial.rename(path / COMPLETE)
    except OSError as error:
        raise TargetError(f"cannot build the environment {path}: {error}") from error


async def _existing(interpreter: str) -> PreparedEnvironment:
    found = shutil.which(os.path.expanduser(interpreter))
    if found is None:
        raise TargetError(f"interpreter {interpreter} is not there or cannot be executed", Outcome.REFUSED)
    path = Path(found).absolute()
    try:
        await _version(path)
    except TargetError as error:
        raise TargetError(str(error), Outcome.REFUSED) from error
    environment = path.parent.parent
    return PreparedEnvironment(path, (path.parent,), environment if (environment / "pyvenv.cfg").exists() else None)


async def _find_python(request: str, folder: Path) -> str:
    """One that is installed, else one that uv can fetch."""
    try:
        found = await _uv("python", "find", "--no-project", request, folder=folder, request=request)
    except TargetError as error:
        if error.outcome is not Outcome.REFUSED:
            raise
        await _uv("python", "install", request, folder=folder)
        found = await _uv("python", "find", "--no-project", request, folder=folder, request=request)
    return found.strip()


async def _version(python: Path) -> str:
    """What this interpreter says that it is; the proof that it starts."""
    try:
        async with asyncio.timeout(START_S):
            code, out, error = await _run(str(python), "-I", "-c", "import sys; print(sys.version)")
    except TimeoutError:
        raise TargetError(f"{python} does not start within {START_S:g} s") from None
    if code != 0 or not out.strip():
        raise TargetError(f"{python} does not work as a Python interpreter: {(error or out).strip()[-500:]}")
    return out.strip()


async def _uv(*arguments: str, folder: Path, given: str = "", request: str = "", lock: BuildLock | None = None) -> str:
    code, out, error = await _run(uv_path(), *arguments, folder=folder, given=given, request=request, lock=lock)
    if code == 0:
        return out
    text = re.sub(r"://[^@/\s]*@", "://", error.strip() or out.strip())  # an index may be written with a password
    refused = _REFUSED.search(text) and not _NETWORK.search(text)
    if len(text) > MESSAGE_CHARACTERS:
        text = text[: MESSAGE_CHARACTERS // 2] + "\n[...]\n" + text[-MESSAGE_CHARACTERS // 2 :]
    reason = " ".join(
        line.strip(" ×╰─▶│├") for line in text.splitlines()
    )  # one sentence, for a person who reads one line
    raise TargetError(f"uv {' '.join(arguments[:2])}: {reason}", Outcome.REFUSED if refused else Outcome.INFRA)


def uv_path() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise TargetError("uv, which builds environments, is not installed: `pip install uv`", Outcome.REFUSED)
    return found


def _variables(request: str) -> Mapping[str, str]:
    """The caller's, since they say how to reach the index; but not those of a project that it happens to be in."""
    hidden = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH")
    passed = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**passed, "PATH": os.pathsep.join(_search_path(request)), "NO_COLOR": "1"}


def _search_path(request: str) -> Iterator[str]:
    """PATH with pyenv's shims, which start nothing outside a project that chose a version, as what they stand for."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.basename(folder) != "shims":
            yield folder
        elif re.fullmatch(r"[0-9.]+", request):
            yield from map(str, sorted(Path(folder).parent.glob(f"versions/{request}*/bin")))


async def _run(
    program: str,
    *arguments: str,
    folder: Path | None = None,
    given: str = "",
    request: str = "",
    lock: BuildLock | None = None,
) -> tuple[int, str, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            cwd=folder, env=_variables(request), start_new_session=True, pass_fds=lock.descriptors() if lock else (),
        )  # fmt: skip
    except OSError as error:
        raise TargetError(f"cannot start {program}: {error}") from error
    try:
        out, error_text = await process.communicate(given.encode())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        raise
    return process.returncode or 0, out.decode(errors="replace"), error_text.decode(errors="replace")


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
