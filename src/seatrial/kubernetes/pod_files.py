"""Fetches files from a container with `tar`, completely or with an error. The container is not trusted: nothing is
written outside the destination folder."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.kubernetes.errors import CommandFailed, KubernetesError, TooLarge, backoff_s

if TYPE_CHECKING:
    from seatrial.kubernetes.pod import Pod

TRIES = 4
NO_LIMIT = 1 << 62
SKIP = ("/bin/sh", "-c", 'from=$1; shift; "$@" | tail -c "+$from"', "sh")
DIGEST = ("/bin/sh", "-c", '"$@" | sha256sum', "sh")
TAR_CHANGED = 1  # GNU tar's exit code when a file changed while it was read


async def fetch_archive(
    source: "Pod", path: str, into: Path, pack: Sequence[str] = (), most_bytes: int = NO_LIMIT
) -> tuple[str, ...]:
    """Fetches a folder. It appears under its name only when complete. `pack`: command that writes the archive instead
    of `tar`. After a broken connection it continues where it stopped, as long as it makes progress. Links out of the
    folder and devices are skipped; returns their names."""
    what = f"{path} of pod {source.namespace}/{source.name}"
    command = pack or ["tar", "cf", "-", "-C", path, "."]
    with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as scratch:
        archive, unpacked = Path(scratch) / "archive", Path(scratch) / "content"
        attempt, begin_bytes, changes = 1, 0, 0
        while True:
            try:
                if await _receive(source, command, archive, begin_bytes, what, most_bytes):
                    skipped = await asyncio.to_thread(_unpack, archive, unpacked, what)
                    break
            except OSError as error:
                raise KubernetesError(f"cannot write {archive}: {error.strerror}") from error
            except KubernetesError as error:
                here_bytes = archive.stat().st_size
                further = here_bytes > begin_bytes
                attempt, begin_bytes = 1 if further else attempt + 1, here_bytes
                if error.lasting or attempt > TRIES:
                    raise
            else:  # it changed meanwhile: fetch all of it again
                attempt, begin_bytes, changes = 1, 0, changes + 1
                if changes >= TRIES:
                    raise KubernetesError(f"{what}: the archive is truncated, and the folder keeps changing")
            await asyncio.sleep(backoff_s(attempt))
        if into.is_dir():
            await asyncio.to_thread(shutil.copytree, unpacked, into, symlinks=True, dirs_exist_ok=True)
        else:
            os.replace(unpacked, into)
    return tuple(skipped)


async def _receive(
    source: "Pod", command: Sequence[str], archive: Path, begin_bytes: int, what: str, most_bytes: int
) -> bool:
    """Receives the archive from `begin_bytes` on; the bytes before exist already. Whether the result equals that of the
    container."""
    sent = [*SKIP, str(begin_bytes + 1), *command] if begin_bytes else command
    with open(archive, "ab" if begin_bytes else "wb") as file:

        def write(block: bytes) -> None:
            if file.tell() + len(block) > most_bytes:
                raise TooLarge(f"{what} exceeds {most_bytes} bytes")
            file.write(block)

        done = await source.run(sent, write=write)
    if done.exit_code and (done.exit_code != TAR_CHANGED or not _ended(archive)):
        raise CommandFailed(f"{command[0]} for {what}", done.exit_code, done.stderr)
    if not begin_bytes:
        return True
    there = (await source.run([*DIGEST, *command])).stdout.split()
    with open(archive, "rb") as whole:
        here = await asyncio.to_thread(hashlib.file_digest, whole, "sha256")
    return bool(there) and there[0].decode() == here.hexdigest()


def _unpack(archive: Path, into: Path, what: str) -> list[str]:
    """Unpacks everything except entries that lead outside, devices and special files; returns those."""
    skipped: list[str] = []
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    # `_safe_members` filters in all versions; Python itself only since 3.11.4.
    unfiltered: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive, "r:") as opened:
            opened.extractall(into, _safe_members(opened, os.path.realpath(into), skipped), **unfiltered)
    except (tarfile.ReadError, EOFError) as error:
        raise KubernetesError(f"{what}: the archive is truncated: {error}") from error
    except OSError as error:
        raise KubernetesError(f"cannot unpack {what}: {error}") from error
    if not _ended(archive):
        raise KubernetesError(f"{what}: the archive is truncated: its end is missing")
    return skipped


def _safe_members(archive: tarfile.TarFile, root: str, skipped: list[str]) -> Iterator[tarfile.TarInfo]:
    """Checks each member after those before it are on disk, because a link among them may lead outside."""
    for member in archive:
        member.name = member.name.lstrip("/")
        path = os.path.join(root, member.name)
        leads = [path]
        if member.issym():
            leads.append(os.path.join(os.path.dirname(path), member.linkname))
        elif member.islnk():
            leads.append(os.path.join(root, member.linkname))
        inside = all(os.path.realpath(one) == root or os.path.realpath(one).startswith(root + os.sep) for one in leads)
        plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
        if not inside or not plain:
            skipped.append(member.name)
            continue
        member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
        member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
        yield member


def _ended(archive: Path) -> bool:
    """Every archive ends with two empty blocks; without them it was truncated between two files."""
    with open(archive, "rb") as file, contextlib.suppress(OSError):
        file.seek(-1024, os.SEEK_END)
        return file.read() == bytes(1024)
    return False
