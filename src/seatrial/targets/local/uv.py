"""Runs uv, which builds environments, and interpreters, to see that they start. Compares the files of an environment
with what its packages say and with what they were when it was built: all cells share it, and a job can write to what
it imports. Files that Python compiles (`__pycache__`) are not compared."""

import asyncio
import base64
import contextlib
import csv
import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

import msgspec

from seatrial.job import Outcome
from seatrial.targets.protocol import TargetError, refused

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
    found = {}
    for path in set(_paths(environment)) - set(apart):
        stat = os.lstat(f"{environment}/{path}")
        digest = _digest(f"{environment}/{path}")
        found[path] = KeptFile(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest)
    return found


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
            files = found[name] = {}
            # A damaged RECORD names no files; what it should name is found as changed.
            with (
                contextlib.suppress(OSError, ValueError, csv.Error),
                record.open(encoding="utf-8", newline="") as lines,
            ):
                for path, said in ((line[0], line[1] if len(line) > 1 else "") for line in csv.reader(lines) if line):
                    files[os.path.relpath(os.path.join(site, path), environment)] = said
    return found


def damaged_packages(environment: Path) -> set[str]:
    """Names of packages of which a file is not what their RECORD says. What an installer makes itself, such as
    programs in `bin`, is not in a cache and so is not looked at. Blocks."""
    return {
        name
        for name, files in packages(environment).items()
        if any(said and path.startswith("lib/") and not _is(environment / path, said) for path, said in files.items())
    }


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


_POLL_S = 0.1


class BuildLock:
    """Held by the process that builds an environment and by the program that does the work: when only the former is
    killed, the next process waits until the latter is done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def descriptors(self) -> tuple[int, ...]:
        """To be inherited by the program that builds."""
        return (self._descriptor,)

    async def __aenter__(self) -> "BuildLock":
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TargetError(f"cannot lock {self._path}: {error}") from error
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except BlockingIOError:
                try:
                    await asyncio.sleep(_POLL_S)
                except asyncio.CancelledError:
                    os.close(self._descriptor)
                    raise

    async def __aexit__(self, *_: object) -> None:
        os.close(self._descriptor)


_MESSAGE_CHARACTERS = 2000
_START_S = 60.0  # for an interpreter to say what it is
# What uv says when asking again cannot help. Anything else (network, disk, a build that failed) may.
_REFUSED = re.compile(
    r"No solution found|No interpreter found|No download found|[Ii]nvalid version|Failed to parse|Couldn't parse|"
    r"Expected (one of|a |package name|end of)|not a valid|invalid package|Distribution not found"
)
_NETWORK = re.compile(
    r"network|offline|[Ff]ailed to fetch|error sending request|dns error|timed out|connect(ion)? (error|refused|reset)"
)


_DOING = {
    ("venv",): "making its environment",
    ("python", "install"): "fetching its Python",
    ("pip", "compile"): "choosing the versions of its packages",
    ("pip", "install"): "installing its packages",
}


class Activity:
    """What is being done for an environment at the moment, in a few words."""

    def __init__(self) -> None:
        self.text = ""


# Of the task that builds an environment: what runs in it says here what it is at.
activity: ContextVar[Activity | None] = ContextVar("activity", default=None)


async def run_uv(
    *arguments: str, folder: Path, given: str = "", request: str = "", lock: BuildLock | None = None
) -> str:
    doing = _DOING.get(arguments[:2]) or _DOING.get(arguments[:1], "")
    code, out, error = await _run(
        uv_path(), *arguments, folder=folder, given=given, request=request, lock=lock, doing=doing
    )
    if code == 0:
        return out
    text = _without_password(error.strip() or out.strip())
    refused = _REFUSED.search(text) and not _NETWORK.search(text)
    if len(text) > _MESSAGE_CHARACTERS:
        text = text[: _MESSAGE_CHARACTERS // 2] + "\n[...]\n" + text[-_MESSAGE_CHARACTERS // 2 :]
    reason = " ".join(line.strip(" ×╰─▶│├") for line in text.splitlines())  # one line for a person
    raise TargetError(f"uv {' '.join(arguments[:2])}: {reason}", Outcome.REFUSED if refused else Outcome.INFRA)


def _without_password(text: str) -> str:
    """An index may be written with one."""
    return re.sub(r"://[^@/\s]*@", "://", text)


def uv_path() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise refused("uv, which builds environments, is not installed: `pip install uv`")
    return found


def _variables(request: str) -> Mapping[str, str]:
    """The caller's, since they say how to reach the index; but not those of a project that it happens to be in."""
    hidden = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH")
    passed = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**passed, "PATH": os.pathsep.join(_search_path(request)), "NO_COLOR": "1"}


def _search_path(request: str) -> Iterator[str]:
    """PATH with pyenv's shims, which start nothing outside a project that chose a version, as what they stand for.
    At its end the Python that Seatrial's own environment was made of: it need not be on PATH."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.basename(folder) != "shims":
            yield folder
        elif re.fullmatch(r"[0-9.]+", request):
            yield from map(str, sorted(Path(folder).parent.glob(f"versions/{request}*/bin")))
    yield os.path.join(sys.base_prefix, "bin")


async def _run(
    program: str,
    *arguments: str,
    folder: Path | None = None,
    given: str = "",
    request: str = "",
    lock: BuildLock | None = None,
    doing: str = "",
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
        out, error_text, _ = await asyncio.gather(
            _read(process.stdout), _read(process.stderr, doing), _give(process.stdin, given)
        )
        await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        raise
    return process.returncode or 0, out.decode(errors="replace"), error_text.decode(errors="replace")


async def _read(stream: asyncio.StreamReader | None, doing: str = "") -> bytes:
    """All of it; each line is what is being done, as it comes."""
    assert stream is not None
    current = activity.get() if doing else None
    if current is None:
        return await stream.read()
    current.text = doing
    data = b""
    while block := await stream.read(1 << 16):
        data += block
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line and not line.startswith("Using ")), "")
        current.text = f"{doing}: {_without_password(last)}" if last else doing
    return data


async def _give(stream: asyncio.StreamWriter | None, text: str) -> None:
    assert stream is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it reads nothing, or ended before
        stream.write(text.encode())
        await stream.drain()
    stream.close()


async def python_version(python: Path) -> str:
    """What this interpreter says that it is; the proof that it starts."""
    try:
        async with asyncio.timeout(_START_S):
            code, out, error = await _run(str(python), "-I", "-c", "import sys; print(sys.version)")
    except TimeoutError:
        raise TargetError(f"{python} does not start within {_START_S:g} s") from None
    if code != 0 or not out.strip():
        raise TargetError(f"{python} does not work as a Python interpreter: {(error or out).strip()[-500:]}")
    return out.strip()
