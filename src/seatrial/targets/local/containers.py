"""Runtimes that are container images, run by podman or docker."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path

import msgspec

from seatrial.job import Outcome
from seatrial.targets.local.programs import activity, run_program
from seatrial.targets.protocol import TargetError, refused

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
    """A pulled image, its engine, the Python in it that the agent can use, if any, and options for its containers."""

    name: str
    engine: str
    python: str | None
    ulimits: tuple[str, ...] = ()


async def pulled_image(name: str, engine: str) -> Image:
    """The image, pulled if needed. Raises TargetError: REFUSED if there is none."""
    code, _, _ = await _run(engine, "image", "inspect", name)
    if code != 0:
        activity.get()(f"pulling {name}")
        code, _, error = await _run(engine, "pull", name)
        if code != 0:
            outcome = Outcome.REFUSED if _REFUSED.search(error) else Outcome.INFRA
            last = error.splitlines()[-1] if error else "no reason given"
            raise TargetError(f"{Path(engine).name} cannot pull {name}: {last}\n{error}", outcome)
        activity.get()("")
    code, out, error, ulimits = await _try(engine, "--entrypoint", "/bin/sh", name, "-c", _FIND_PYTHON)
    if code != 0:
        raise TargetError(f"{Path(engine).name} cannot start a container of {name}: {error}")
    return Image(name, engine, out.strip() or None, ulimits)


async def working_engine(preferred: str | None) -> str:
    """Path of the first engine that works. `info` asks the daemon, so that a client alone does not count."""
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
    raise refused("no container engine to run the image: " + "; ".join(problems))


async def _try(engine: str, *arguments: str) -> tuple[int, str, str, tuple[str, ...]]:
    """Runs a container: exit code, stdout, stderr, and the ulimits that it needed. podman's defaults are higher than
    this process's own, and without CAP_SYS_RESOURCE nothing starts with them (`error setting rlimit type 7`)."""
    confined = ("run", "--rm", "--network", "none", "--security-opt", "label=disable")
    code, out, error = await _run(engine, *confined, *arguments)
    if code == 0 or "rlimit" not in error.lower():
        return code, out, error, ()
    ulimits: tuple[str, ...] = ()
    process_ids = int(Path("/proc/sys/kernel/pid_max").read_text())  # podman lowers its own limit to this
    for name, most in (("nofile", 1 << 20), ("nproc", process_ids)):
        own = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        limit = most if own == resource.RLIM_INFINITY else min(own, most)
        ulimits += ("--ulimit", f"{name}={limit}:{limit}")
    return *await _run(engine, *confined, *ulimits, *arguments), ulimits


async def start_container(engine: str) -> tuple[str, ...]:
    """Runs a test container made of this machine's shell and removes it again. Raises TargetError: an engine that
    answers may still be unable to start containers. Returns the ulimits that containers need."""
    name = f"localhost/seatrial-doctor:{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="seatrial-doctor-") as folder:
        archive = Path(folder, "shell.tar")
        await asyncio.to_thread(_write_shell, archive)
        try:
            ulimits: tuple[str, ...] = ()
            code, _, error = await _run(engine, "import", str(archive), name)
            if code == 0:
                code, _, error, ulimits = await _try(engine, name, "/bin/sh", "-c", ":")
            if code != 0:
                last = error.splitlines()[-1] if error else f"exit code {code}"
                raise TargetError(f"{engine} cannot start a container: {last}")
            return ulimits
        finally:
            await _run(engine, "rmi", "--force", name)


def _write_shell(archive: Path) -> None:
    """A file system with only /bin/sh and the libraries that it needs."""
    ldd = shutil.which("ldd", path=os.defpath)
    if ldd is None:
        raise TargetError("not tested: command not found: ldd (needed to build a test container)")
    listed = subprocess.run([ldd, "/bin/sh"], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(?:=> )?(/\S+) \(0x", listed)  # none for a static executable
    with tarfile.open(archive, "w", dereference=True) as file:
        for path in ("/bin/sh", *libraries):
            file.add(path, path.lstrip("/"))


def container_name(job: Path) -> str:
    """The job's name with a checksum of its folder, because two users may have jobs of the same name."""
    return f"seatrial-{job.name}-{zlib.crc32(str(job).encode()):08x}"


def removal(engine: str) -> list[str]:
    """Arguments that remove a container. Docker kills at once; podman would first wait for the container to stop."""
    return ["rm", "--force", *(["--time", "0"] if Path(engine).name == "podman" else [])]


async def remove_container(engine: str, name: str) -> None:
    """Removes a container; a missing one is not an error."""
    code, _, error = await _run(engine, *removal(engine), name)
    if code != 0 and "no such container" not in error.lower() and "no container with name" not in error.lower():
        raise TargetError(f"{engine} cannot remove the container {name}: {error}")


async def labelled_containers() -> list[tuple[str, str, str, str]]:
    """(engine, name, run, job) of all containers with our labels; engines that do not work are skipped."""
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
