"""Starts, signals and waits for the supervisors of jobs, identified by boot id, pid and start time."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.job.reading import boot_id, process_start
from seatrial.targets.local.folders import ProcessIdentity
from seatrial.targets.protocol import TargetError


def open_process(identity: ProcessIdentity) -> int | None:
    """A pidfd of exactly that process, or None if it is gone."""
    if identity.boot_id != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # The pidfd pins the process that has the pid now; the start time tells whether it is the right one.
    if process_start(identity.pid) == identity.start:
        return descriptor
    os.close(descriptor)
    return None


def alive(identity: ProcessIdentity | None) -> bool:
    return identity is not None and identity.boot_id == boot_id() and process_start(identity.pid) == identity.start


async def ends(identity: ProcessIdentity, number: signal.Signals, within_s: float) -> bool:
    """Signals the supervisor. Returns whether it has exited, after `within_s` at the latest."""
    descriptor = open_process(identity)
    if descriptor is None:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        signal.pidfd_send_signal(descriptor, number)
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a stopped process gets no other signal before
        await asyncio.wait_for(ended.wait(), within_s)
        return True
    except ProcessLookupError:
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


_ANSWER_S = 60.0


class SpawnAnswer(msgspec.Struct, frozen=True):
    """The fields of an answer of `agent/run/supervisor.py` that are used here."""

    id: int
    error: str | None = None
    taken: bool = False


class Zygote:
    """Client of the agent's zygote, which starts supervisors: one line per request, one per answer. Each Seatrial
    process has its own zygote, started on first use and again if it was lost."""

    def __init__(self, agent: Path) -> None:
        self._agent = agent
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[SpawnAnswer]] = {}  # of the current zygote only
        self._starting = asyncio.Lock()
        self._count = 0

    async def spawn(self, job: Mapping[str, object]) -> SpawnAnswer:
        """Raises TargetError if there is no answer."""
        process = await self._running()
        assert process.stdin is not None
        self._count += 1
        answer: asyncio.Future[SpawnAnswer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        waiting[number := self._count] = answer
        try:
            process.stdin.write(msgspec.json.encode({"id": number, "job": job}) + b"\n")
            await process.stdin.drain()
            return await asyncio.wait_for(answer, _ANSWER_S)
        except (ConnectionError, TimeoutError) as error:
            raise TargetError(f"the local supervisor did not answer: {str(error) or 'timed out'}") from error
        finally:
            waiting.pop(number, None)

    async def close(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()
        if self._reading is not None:
            await self._reading
        self._process = None

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None and not (
                self._reading is None or self._reading.done()
            ):  # fmt: skip
                return self._process
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", self._agent, "spawn",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                    start_new_session=True,  # only Seatrial itself handles Ctrl-C
                )  # fmt: skip
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread to wait for it
                raise TargetError(f"cannot start the local supervisor with {sys.executable}: {error}") from error
            self._waiting = {}
            self._reading = asyncio.create_task(self._read(self._process, self._waiting))
            return self._process

    async def _read(self, process: asyncio.subprocess.Process, waiting: dict[int, asyncio.Future[SpawnAnswer]]) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                answer = decode(line, SpawnAnswer)
            except Unreadable:  # its request times out
                continue
            asked = waiting.get(answer.id)
            if asked is not None and not asked.done():
                asked.set_result(answer)
        await process.wait()
        for asked in waiting.values():
            if not asked.done():
                asked.set_exception(TargetError(f"the local supervisor exited with code {process.returncode}"))
