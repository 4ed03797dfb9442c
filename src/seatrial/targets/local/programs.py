"""Runs programs of this machine: uv, container engines and Python interpreters."""

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from seatrial.job import Outcome
from seatrial.targets.protocol import TargetError, refused

_PATIENCE_S = 20.0  # limit for queries such as --version
_START_S = 60.0  # limit for an interpreter to print its version
_ANSWER_CHARACTERS = 500
_MESSAGE_CHARACTERS = 2000
# Errors of uv that a retry cannot fix. All others (network, disk, a failed build) may be temporary.
_REFUSED = re.compile(
    r"No solution found|No interpreter found|No download found|[Ii]nvalid version|Failed to parse|Couldn't parse|"
    r"Expected (one of|a |package name|end of)|not a valid|invalid package|Distribution not found"
)
_NETWORK = re.compile(
    r"network|offline|[Ff]ailed to fetch|error sending request|dns error|timed out|connect(ion)? (error|refused|reset)"
)
_DOING = {
    ("venv",): "creating the environment",
    ("python", "install"): "installing Python",
    ("pip", "compile"): "resolving packages",
    ("pip", "install"): "installing packages",
}
# Set by the task that builds an environment: receives its progress in a few words.
activity: ContextVar[Callable[[str], None]] = ContextVar("activity", default=lambda text: None)


async def run_program(
    program: str, *arguments: str, given: str = "", heard: Callable[[bytes], None] | None = None, **options: Any
) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr. `heard` is called with all of stderr so far whenever more arrives. Killed
    with its process group if the caller is cancelled. Raises TargetError if it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, **options,
        )  # fmt: skip
    except OSError as error:
        raise TargetError(f"cannot start {program}: {error}") from error
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None

    async def give() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it does not read, or has exited
            stdin.write(given.encode())
            await stdin.drain()
        stdin.close()

    async def hear() -> bytes:
        data = b""
        while block := await stderr.read(1 << 16):
            data += block
            if heard is not None:
                heard(data)
        return data

    try:
        out, error_text, _ = await asyncio.gather(stdout.read(), hear(), give())
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    return process.returncode or 0, out.decode(errors="replace"), error_text.decode(errors="replace")


async def ask(program: str, *arguments: str) -> tuple[int, str]:
    """Returns exit code and output; a program that cannot be started or does not answer has failed."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            code, out, error_text = await run_program(program, *arguments)
    except TimeoutError:
        return 124, f"no answer within {_PATIENCE_S:g} s"
    except TargetError as error:
        return 127, getattr(error.__cause__, "strerror", None) or str(error)
    if code == 0:
        return 0, out.strip()
    return code, (error_text or out).strip()[-_ANSWER_CHARACTERS:] or f"exit code {code}"


def machine_path() -> str:
    """PATH without Seatrial's own virtual environment, which the user may have activated: tests must not find its
    programs. If Seatrial is not in a virtual environment, PATH is unchanged."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix == sys.base_prefix:
        return os.pathsep.join(folders)
    own = os.path.realpath(os.path.join(sys.prefix, "bin"))
    return os.pathsep.join(folder for folder in folders if os.path.realpath(folder) != own)


def uv_path() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise refused("uv is not installed; run `pip install uv`")
    return found


async def run_uv(*arguments: str, folder: Path, given: str = "", request: str = "", lock: int | None = None) -> str:
    """Returns its output. `request` is the wanted Python version; uv holds `lock`, too, as long as it runs."""
    doing = _DOING.get(arguments[:2]) or _DOING.get(arguments[:1], "")
    report = activity.get()

    def heard(data: bytes) -> None:
        lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line and not line.startswith("Using ")), "")
        report(f"{doing}: {_without_password(last)}" if last else doing)

    if doing:
        report(doing)
    # The caller's variables have the index settings; those of an active project are removed.
    hidden = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH")
    passed = {name: value for name, value in os.environ.items() if name not in hidden}
    code, out, error = await run_program(
        uv_path(), *arguments, given=given, heard=heard if doing else None, cwd=folder,
        env={**passed, "PATH": os.pathsep.join(_search_path(request)), "NO_COLOR": "1"},
        pass_fds=() if lock is None else (lock,),
    )  # fmt: skip
    if code == 0:
        return out
    text = _without_password(error.strip() or out.strip())
    hopeless = _REFUSED.search(text) and not _NETWORK.search(text)
    if len(text) > _MESSAGE_CHARACTERS:
        text = text[: _MESSAGE_CHARACTERS // 2] + "\n[...]\n" + text[-_MESSAGE_CHARACTERS // 2 :]
    reason = " ".join(line.strip(" ×╰─▶│├") for line in text.splitlines())  # one line
    raise TargetError(f"uv {' '.join(arguments[:2])}: {reason}", Outcome.REFUSED if hopeless else Outcome.INFRA)


def _without_password(text: str) -> str:
    """Removes credentials from URLs, such as that of an index."""
    return re.sub(r"://[^@/\s]*@", "://", text)


def _search_path(request: str) -> Iterator[str]:
    """PATH with pyenv's shims replaced by the versions behind them, because shims fail outside a project that chose a
    version; then the base Python of Seatrial's own environment, which need not be on PATH."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.basename(folder) != "shims":
            yield folder
        elif re.fullmatch(r"[0-9.]+", request):
            yield from map(str, sorted(Path(folder).parent.glob(f"versions/{request}*/bin")))
    yield os.path.join(sys.base_prefix, "bin")


async def python_version(python: Path) -> str:
    """Version of this interpreter. Raises TargetError if it does not start."""
    try:
        async with asyncio.timeout(_START_S):
            code, out, error = await run_program(str(python), "-I", "-c", "import sys; print(sys.version)")
    except TimeoutError:
        raise TargetError(f"{python} did not start within {_START_S:g} s") from None
    if code != 0 or not out.strip():
        raise TargetError(f"{python} is not a working Python interpreter: {(error or out).strip()[-500:]}")
    return out.strip()
