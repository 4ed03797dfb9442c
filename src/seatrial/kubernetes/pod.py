"""Access to one pod: logs, commands, ports, files.

Commands and ports use WebSockets with a channel for each stream. A command's result comes on the status channel; a
connection that ends without it is an error, never a success.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from seatrial.http.relay import LocalPort
from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import CommandFailed, KubernetesError, TooLarge, backoff_s, status_error
from seatrial.kubernetes.objects import PODS, UNDECODABLE, ApiRequest, Status
from seatrial.kubernetes.queries import decoder

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, STATUS = 1, 2, 3  # channels of a command
# Exit codes of a shell for commands that cannot be started, by a part of the server's message.
START_FAILURES = (("executable file not found", 127), ("no such file or directory", 127), ("permission denied", 126))
FORWARD_PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1  # channels of a port
_BLOCK_BYTES = 1 << 16
# The protocol has no half-close: after a client has sent everything, it may still wait for the answer.
AFTER_END_S = 10.0
LOG_PATIENCE_S = 60.0
SILENCE_S = 30.0  # the whole log exists already, so a server that is silent this long is gone
# Fetching a folder
TRIES = 4
NO_LIMIT = 1 << 62
SKIP = ("/bin/sh", "-c", 'from=$1; shift; "$@" | tail -c "+$from"', "sh")
DIGEST = ("/bin/sh", "-c", '"$@" | sha256sum', "sh")
TAR_CHANGED = 1  # GNU tar's exit code when a file changed while it was read


async def _messages(socket: Any) -> AsyncIterator[tuple[int, bytes]]:
    """Channel and content of each message."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data:
            yield message.data[0], message.data[1:]


class Completed(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class Command(contextlib.AbstractAsyncContextManager["Command"]):
    """A running command in a container, from `Pod.start`. Iterate for (channel, bytes), then read `exit_code`."""

    def __init__(self, socket: Any, what: str, request: ApiRequest) -> None:
        self._socket, self._what, self._request = socket, what, request
        self.exit_code: int | None = None
        self.problem = ""  # why it could not be started

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Closes the connection; an iteration in progress raises KubernetesError."""
        await Connection.leave(self._socket)

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        async for channel, data in _messages(self._socket):
            if channel == STATUS:
                self._conclude(data)
            elif data:
                yield channel, data
        if self.exit_code is None:
            error = self._socket.exception()
            why = f": {error}" if error else ""
            raise KubernetesError(f"{self._what}: the connection ended before the command's result arrived{why}")

    def _conclude(self, data: bytes) -> None:
        try:
            status = decoder(Status).decode(data)
        except UNDECODABLE:
            raise KubernetesError(f"{self._what}: invalid result: {data[:200]!r}") from None
        causes = status.details.causes if status.details else ()
        codes = [cause.message for cause in causes if cause.reason == "ExitCode" and cause.message.isdigit()]
        if status.status == "Success" or codes:
            self.exit_code = int(codes[0]) if codes else 0
            return
        self.exit_code = next((code for part, code in START_FAILURES if part in status.message), None)
        if self.exit_code is None:
            raise status_error(self._request, status)
        self.problem = status.message


class Forward(LocalPort):
    """Forwards a local port to a pod's port, with a WebSocket for each connection. Failed connections are closed;
    `problem` is the last error. `through` is set once a connection has reached the pod's node."""

    def __init__(self, pod: "Pod", port: int) -> None:
        super().__init__()
        self.problem = ""
        self.through = asyncio.Event()
        self._pod, self._pod_port = pod, port

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._join(reader, writer)
        except KubernetesError as error:
            self.problem = str(error)
        except (OSError, aiohttp.ClientError) as error:
            self.problem = f"the connection broke: {error}"

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._pod.request("create", "portforward")
        socket = await self._pod.connection.websocket(request, (("ports", str(self._pod_port)),), (FORWARD_PROTOCOL,))

        async def send() -> None:
            with contextlib.suppress(OSError, aiohttp.ClientError):
                while block := await reader.read(_BLOCK_BYTES):
                    await socket.send_bytes(bytes([DATA]) + block)
                await asyncio.sleep(AFTER_END_S)
                await socket.close()

        outward = asyncio.create_task(send())
        greeted: set[int] = set()
        try:
            async for channel, data in _messages(socket):
                if channel not in greeted:
                    greeted.add(channel)  # the first message of each channel repeats the port
                    self.through.set()
                    data = data[2:]
                if data and channel == ERROR:
                    self.problem = data.decode(errors="replace")
                    return
                writer.write(data)
                await writer.drain()
        finally:
            outward.cancel()
            await asyncio.gather(outward, return_exceptions=True)
            await self._pod.connection.leave(socket)


class Pod:
    """A pod, from `Kubernetes.pod`. Sends no request until it is used; `container` is needed if there are several."""

    def __init__(self, connection: Connection, namespace: str, name: str, container: str = "") -> None:
        self.connection, self.namespace, self.name, self.container = connection, namespace, name, container
        self._container = [("container", container)] if container else []

    def request(self, verb: str, subresource: str) -> ApiRequest:
        return ApiRequest(verb, PODS, self.namespace, self.name, subresource)

    async def start(self, command: Sequence[str]) -> Command:
        """Starts a command; the caller reads its streams. Use it as an async context manager."""
        request = self.request("create", "exec")
        query = (*(("command", part) for part in command), ("stdout", "true"), ("stderr", "true"), *self._container)
        socket = await self.connection.websocket(request, query, EXEC_PROTOCOLS)
        return Command(socket, self._title(command), request)

    async def run(
        self,
        command: Sequence[str],
        *,
        check: bool = False,
        most_bytes: int = 16 << 20,
        write: Callable[[bytes], object] | None = None,
    ) -> Completed:
        """Runs a command to its end. Keeps the last `most_bytes` of each stream; `write` receives stdout instead.
        `check`: raises CommandFailed for an exit code other than 0."""
        kept = {STDOUT: bytearray(), STDERR: bytearray()}
        async with await self.start(command) as running:
            async for channel, data in running:
                if channel == STDOUT and write is not None:
                    write(data)
                elif channel in kept:
                    kept[channel] += data
                    if len(kept[channel]) > 2 * most_bytes:
                        del kept[channel][:-most_bytes]
        assert running.exit_code is not None  # the iteration raises without it
        stdout, stderr = (bytes(kept[channel][-most_bytes:]) for channel in (STDOUT, STDERR))
        completed = Completed(running.exit_code, stdout, stderr or running.problem.encode())
        if check and completed.exit_code:
            raise CommandFailed(self._title(command), completed.exit_code, completed.stderr)
        return completed

    def _title(self, command: Sequence[str]) -> str:
        return f"{command[0]} in pod {self.namespace}/{self.name}"

    def forward(self, port: int) -> Forward:
        """Forwards a port. Use it as an async context manager."""
        return Forward(self, port)

    async def fetch_folder(
        self, path: str, into: Path, pack: Sequence[str] = (), most_bytes: int = NO_LIMIT
    ) -> tuple[str, ...]:
        """Fetches a folder. It appears under its name only when complete. `pack`: command that writes the archive
        instead of `tar`. Raises TooLarge beyond `most_bytes`. After a broken connection it continues where it stopped,
        as long as it makes progress. Returns what was skipped: links that lead outside, devices."""
        what = f"{path} of pod {self.namespace}/{self.name}"
        command = pack or ["tar", "cf", "-", "-C", path, "."]
        with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as scratch:
            archive, unpacked = Path(scratch) / "archive", Path(scratch) / "content"
            attempt, begin_bytes, changes = 1, 0, 0
            while True:
                try:
                    if await self._receive(command, archive, begin_bytes, what, most_bytes):
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
        self, command: Sequence[str], archive: Path, begin_bytes: int, what: str, most_bytes: int
    ) -> bool:
        """Receives the archive from `begin_bytes` on; the bytes before exist already. Whether the result equals that of
        the container."""
        sent = [*SKIP, str(begin_bytes + 1), *command] if begin_bytes else command
        with open(archive, "ab" if begin_bytes else "wb") as file:

            def write(block: bytes) -> None:
                if file.tell() + len(block) > most_bytes:
                    raise TooLarge(f"{what} exceeds {most_bytes} bytes")
                file.write(block)

            done = await self.run(sent, write=write)
        if done.exit_code and (done.exit_code != TAR_CHANGED or not _ended(archive)):
            raise CommandFailed(f"{command[0]} for {what}", done.exit_code, done.stderr)
        if not begin_bytes:
            return True
        there = (await self.run([*DIGEST, *command])).stdout.split()
        with open(archive, "rb") as whole:
            here = await asyncio.to_thread(hashlib.file_digest, whole, "sha256")
        return bool(there) and there[0].decode() == here.hexdigest()

    async def log(self, patience_s: float = LOG_PATIENCE_S) -> AsyncIterator[bytes]:
        """The container's log so far, as far as its node has it: the newest file (10 MiB by default). After a broken
        connection it is read again, without repeating blocks."""
        until_s, failures, given = time.monotonic() + patience_s, 0, 0
        while True:
            try:
                at = 0
                async for block in self._log_blocks():
                    at += len(block)
                    if at > given:
                        yield block[len(block) - (at - given) :]
                        given = at
                return
            except KubernetesError as error:
                failures += 1
                if error.lasting or time.monotonic() > until_s:
                    raise
            await asyncio.sleep(min(backoff_s(failures), 2.0))

    async def _log_blocks(self) -> AsyncIterator[bytes]:
        request = self.request("get", "log")
        response = await self.connection.stream(request, self._container, "*/*")
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    block = await self.connection.read(request, response)
                if not block:
                    return
                yield block
        except TimeoutError:
            what = f"the log of {self.namespace}/{self.name}"
            raise KubernetesError(f"{what}: no data for {SILENCE_S:g} s") from None
        finally:
            self.connection.hang_up(response)


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
