"""Builds an environment, and heals one that a job has damaged."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, read_json
from seatrial.target.agent_file import write_whole
from seatrial.target.local.environments.build_lock import BuildLock
from seatrial.target.local.environments.installed import Installed, changed, damaged_packages, packages, take_stock
from seatrial.target.local.environments.uv import python_version, run_uv
from seatrial.target.local.folders import remove_tree
from seatrial.target.protocol import TargetError

COMPLETE = ".complete"
_APART = (COMPLETE, ".lock")  # of the files of an environment: ours, and uv's


async def make_whole(path: Path, interpreter: str, pins: str, content: str, lock: BuildLock) -> None:
    """Build an environment that is not there, heal one that a job has damaged. Raises TargetError."""
    try:
        installed = await _complete(path, content)
        if installed is None or not await _healed(path, pins, installed, lock):
            await _build(path, interpreter, pins, content, lock)
    except OSError as error:
        raise TargetError(f"cannot build the environment {path}: {error}") from error


async def _healed(path: Path, pins: str, installed: Installed, lock: BuildLock) -> bool:
    """Whether every file is as it was when it was built, or is so again. Other jobs may run there: what is in order is
    not touched."""
    damaged = await asyncio.to_thread(changed, path, installed.files, _APART)
    if not damaged:
        return True
    for added in damaged - installed.files.keys():
        (path / added).unlink(missing_ok=True)
    owned = await asyncio.to_thread(packages, path)
    await _install(path, pins, lock, {name for name, files in owned.items() if damaged & files.keys()})
    if await asyncio.to_thread(changed, path, installed.files, _APART):
        return False
    await asyncio.to_thread(_write_stock, path, installed.content)
    return True


async def _complete(path: Path, content: str) -> Installed | None:
    """Built to its end, and its interpreter still starts: the one that it points to may have been removed since."""
    try:
        installed = read_json(path / COMPLETE, Installed)
        await python_version(path / "bin" / "python")
    except (OSError, Unreadable, TargetError):
        return None
    return installed if installed.content == content else None


def _write_stock(path: Path, content: str) -> None:
    write_whole(path / COMPLETE, msgspec.json.encode(Installed(content, take_stock(path, _APART))))


async def _build(path: Path, interpreter: str, pins: str, content: str, lock: BuildLock) -> None:
    """The marker comes last: without it whatever is there is made anew."""
    if path.exists():
        await asyncio.to_thread(remove_tree, path)
    await run_uv("venv", "--no-project", "--python", interpreter, str(path), folder=path.parent, lock=lock)
    await _install(path, pins, lock)
    await python_version(path / "bin" / "python")
    await asyncio.to_thread(_write_stock, path, content)


async def _install(path: Path, pins: str, lock: BuildLock, again: Iterable[str] = ()) -> None:
    """Copies, never links: a job that wrote to a file of its runtime would write to uv's cache by that, and to every
    environment that came from it. What the cache has of a package is looked at too, and fetched anew if need be."""
    await _uv_install(path, pins, lock, again)
    damaged = await asyncio.to_thread(damaged_packages, path)
    if damaged:
        await run_uv("cache", "clean", *sorted(damaged), folder=path.parent, lock=lock)
        await _uv_install(path, pins, lock, damaged)  # what is not right now was not right when it was published


async def _uv_install(path: Path, pins: str, lock: BuildLock, again: Iterable[str]) -> None:
    anew = [word for name in sorted(again) for word in ("--reinstall-package", name)]
    python = str(path / "bin" / "python")
    install = ("pip", "install", "--no-deps", "--link-mode", "copy", *anew, "--python", python, "-r", "-")
    await run_uv(*install, folder=path.parent, given=pins, lock=lock)
