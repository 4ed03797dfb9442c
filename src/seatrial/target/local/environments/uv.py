"""Runs uv, which builds environments, and interpreters, to see that they start."""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

from seatrial.job import Outcome
from seatrial.target.local.environments.build_lock import BuildLock
from seatrial.target.protocol import TargetError

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
    reason = " ".join(
        line.strip(" ×╰─▶│├") for line in text.splitlines()
    )  # one sentence, for a person who reads one line
    raise TargetError(f"uv {' '.join(arguments[:2])}: {reason}", Outcome.REFUSED if refused else Outcome.INFRA)


def _without_password(text: str) -> str:
    """An index may be written with one."""
    return re.sub(r"://[^@/\s]*@", "://", text)


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
