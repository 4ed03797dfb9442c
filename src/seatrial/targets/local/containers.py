"""Runtimes that are images: run by podman or docker where one of them works."""

import asyncio
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Coroutine, Hashable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seatrial.job import Outcome
from seatrial.targets.local.programs import run_program
from seatrial.targets.protocol import TargetError, refused

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_MESSAGE_CHARACTERS = 1000
ENGINES = ("podman", "docker")
_REFUSED = re.compile(
    r"manifest unknown|not found|no such image|invalid reference|repository does not exist|short-name|denied|"
    r"unauthorized",
    re.IGNORECASE,
)
_FIND_PYTHON = (
    "python3 -c 'import sys; print(sys.executable if sys.version_info >= (3, 8) else str())' 2>/dev/null || true"
)


class Image(msgspec.Struct, frozen=True):
    """An image that is here, what runs it, and the Python in it, if any, that the agent can use."""

    name: str
    engine: str
    python: str | None


class Images:
    def __init__(self, preferred: str | None = None) -> None:
        self._preferred = preferred
        self._engine: asyncio.Task[str] | None = None
        self._images: dict[str, asyncio.Task[Image]] = {}
        self._pulling: set[str] = set()

    async def ready(self, name: str) -> Image:
        """Pulled if need be. REFUSED: there is no such image, or nothing here to run it."""
        return await shared_task(self._images, name, lambda: self._get(name))

    def doing(self, name: str) -> str:
        """What is being done for it now; empty when nothing is."""
        return f"pulling {name}" if name in self._pulling else ""

    async def _get(self, name: str) -> Image:
        if self._engine is None:
            self._engine = asyncio.create_task(working_engine(self._preferred))
        engine = await self._engine
        code, _, _ = await _run(engine, "image", "inspect", name)
        if code != 0:
            self._pulling.add(name)
            try:
                code, _, error = await _run(engine, "pull", name)
            finally:
                self._pulling.discard(name)
            if code != 0:
                outcome = Outcome.REFUSED if _REFUSED.search(error) else Outcome.INFRA
                last = error.splitlines()[-1] if error else "it does not say why"
                raise TargetError(f"{Path(engine).name} cannot pull {name}: {last}\n{error}", outcome)
        code, out, error = await _run(
            engine, "run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", name, "-c", _FIND_PYTHON
        )
        if code != 0:
            raise TargetError(f"{Path(engine).name} cannot start a container of {name}: {error}")
        return Image(name, engine, out.strip() or None)


async def working_engine(preferred: str | None) -> str:
    """A client alone does not count: `info` asks what really runs containers."""
    problems = []
    for name in (preferred,) if preferred else ENGINES:
        path = shutil.which(name)
        if path is None:
            problems.append(f"{name} is not installed")
            continue
        code, _, error = await _run(path, "info")
        if code == 0:
            return path
        problems.append(f"{path} does not work: {error}")
    raise refused("there is nothing here to run an image with: " + "; ".join(problems))


async def start_container(engine: str) -> None:
    """Start a container of a shell of this machine, and see it run; afterwards nothing of it is left. Raises
    TargetError. That an engine answers says little: what it lacks is told when it starts something."""
    name = f"localhost/seatrial-doctor:{os.getpid()}"
    confined = ("--network", "none", "--security-opt", "label=disable")
    with tempfile.TemporaryDirectory(prefix="seatrial-doctor-") as folder:
        archive = Path(folder, "shell.tar")
        await asyncio.to_thread(_write_shell, archive)
        try:
            for arguments in (("import", str(archive), name), ("run", "--rm", *confined, name, "/bin/sh", "-c", ":")):
                code, _, error = await _run(engine, *arguments)
                if code != 0:
                    last = error.splitlines()[-1] if error else f"exit code {code}"
                    raise TargetError(f"{engine} does not start a container: {last}")
        finally:
            await _run(engine, "rmi", "--force", name)


def _write_shell(archive: Path) -> None:
    """A file system with nothing but /bin/sh, and the libraries that it is started with here."""
    ldd = shutil.which("ldd", path=os.defpath)
    if ldd is None:
        raise TargetError("no container was tried: there is no `ldd` here to make one of a shell with")
    listed = subprocess.run([ldd, "/bin/sh"], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(?:=> )?(/\S+) \(0x", listed)  # none for one that is linked with all that it needs
    with tarfile.open(archive, "w", dereference=True) as file:
        for path in ("/bin/sh", *libraries):
            file.add(path, path.lstrip("/"))


def container_name(job: Path) -> str:
    """The job's name, and a number for its folder: two users may have jobs of the same name."""
    return f"seatrial-{job.name}-{zlib.crc32(str(job).encode()):08x}"


def removal(engine: str) -> list[str]:
    """Docker kills at once; podman would first wait for what does not listen."""
    return ["rm", "--force", *(["--time", "0"] if Path(engine).name == "podman" else [])]


async def remove_container(engine: str, name: str) -> None:
    """Gone afterwards, whether it was there or not."""
    code, _, error = await _run(engine, *removal(engine), name)
    if code != 0 and "no such container" not in error.lower() and "no container with name" not in error.lower():
        raise TargetError(f"{engine} cannot remove the container {name}: {error}")


async def labelled_containers() -> list[tuple[str, str, str, str]]:
    """(engine, name, run, job) of all that carry our labels; none of an engine that does not work."""
    form = '{{.Name}}\t{{index .Config.Labels "seatrial.run"}}\t{{index .Config.Labels "seatrial.job"}}'
    found = []
    for engine in filter(None, map(shutil.which, ENGINES)):
        code, out, _ = await _run(engine, "ps", "--all", "--quiet", "--filter", "label=seatrial.job")
        if code == 0 and out.split():
            _, out, _ = await _run(engine, "inspect", "--type", "container", "--format", form, *out.split())
            lines = [line.lstrip("/").split("\t") for line in out.splitlines()]  # docker puts a / before the name
            found += [(engine, line[0], line[1], line[2]) for line in lines if len(line) == 3]
    return found


async def _run(engine: str, *arguments: str) -> tuple[int, str, str]:
    code, out, error = await run_program(engine, *arguments)
    return code, out, error.strip()[-_MESSAGE_CHARACTERS:]


async def shared_task(tasks: dict[_K, asyncio.Task[_T]], key: _K, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """The result of the task of that key, which many wait for: who is cancelled just waits no longer. One that failed
    is made anew."""
    task = tasks.get(key)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = tasks[key] = asyncio.create_task(make())
    return await asyncio.shield(task)
