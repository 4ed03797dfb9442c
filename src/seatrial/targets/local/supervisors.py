"""Is the supervisor of a job alive, and when does it end: by boot, number and start time, never by number alone.

And asking a program of this machine something, with a limit for its answer."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.job.reading import boot_id, process_start
from seatrial.targets.local.folders import ProcessIdentity
from seatrial.targets.protocol import TargetError

_PATIENCE_S = 20.0  # for a program that is asked what it is
_MESSAGE_CHARACTERS = 500


def open_process(identity: ProcessIdentity) -> int | None:
    """A pidfd of that very process, or None when it is gone."""
    if identity.boot_id != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # The pidfd now holds on to whoever has the number; the start time says whether that is the one meant.
    if process_start(identity.pid) == identity.start:
        return descriptor
    os.close(descriptor)
    return None


def alive(identity: ProcessIdentity | None) -> bool:
    return identity is not None and identity.boot_id == boot_id() and process_start(identity.pid) == identity.start


async def gone(descriptor: int, within_s: float) -> bool:
    """Wait until the process of this pidfd has ended. The descriptor is closed."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), within_s)
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def wake(identity: ProcessIdentity) -> None:
    """Let a supervisor that was stopped (SIGSTOP) go on: it sees no other signal before."""
    descriptor = signal_supervisor(identity, signal.SIGCONT)
    if descriptor is not None:
        os.close(descriptor)


def signal_supervisor(identity: ProcessIdentity, number: signal.Signals) -> int | None:
    """Signal the supervisor; a pidfd to wait for its end by, or None when it was gone already."""
    descriptor = open_process(identity)
    if descriptor is None:
        return None
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        os.close(descriptor)
        return None
    return descriptor


async def ask(program: str, *arguments: str) -> tuple[int, str]:
    """Its exit code and what it said; one that cannot be started, or does not answer, has failed."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return 127, str(error.strerror or error)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            out, error_text = await process.communicate()
    except TimeoutError:
        return 124, f"it does not answer within {_PATIENCE_S:g} s"
    finally:
        if process.returncode is None:  # also for who does not wait for the answer any more
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    code = process.returncode or 0
    text = (out if code == 0 else error_text or out).decode(errors="replace").strip()
    return code, text if code == 0 else text[-_MESSAGE_CHARACTERS:] or f"exit code {code}"


_ANSWER_S = 60.0


class Zygote:
    """Asks the agent's zygote to start supervisors, one line a request, one line an answer. One process for each
    Seatrial process, started when first needed and again when it was lost."""

    def __init__(self, agent: Path) -> None:
        self._agent = agent
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}  # for this very process
        self._starting = asyncio.Lock()
        self._count = 0

    async def spawn(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer, as `agent/start/supervisor.py` describes it. Raises TargetError when there was none."""
        process = await self._running()
        assert process.stdin is not None
        self._count += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        waiting[number := self._count] = answer
        try:
            process.stdin.write(msgspec.json.encode({"id": number, "job": job}) + b"\n")
            await process.stdin.drain()
            return await asyncio.wait_for(answer, _ANSWER_S)
        except (ConnectionError, TimeoutError) as error:
            raise TargetError(f"the local supervisor did not answer: {error or 'time ran out'}") from error
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
                    start_new_session=True,  # Ctrl-C is for Seatrial, which decides what becomes of its jobs
                )  # fmt: skip
            except OSError as error:
                raise TargetError(f"cannot start the local supervisor with {sys.executable}: {error}") from error
            self._waiting = {}
            self._reading = asyncio.create_task(self._read(self._process, self._waiting))
            return self._process

    async def _read(
        self, process: asyncio.subprocess.Process, waiting: dict[int, asyncio.Future[dict[str, Any]]]
    ) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                answer = decode(line, dict[str, Any])
            except Unreadable:  # of no request that is known: the one that waits for it says that it had no answer
                continue
            asked = waiting.get(answer.get("id", 0))
            if asked is not None and not asked.done():
                asked.set_result(answer)
        await process.wait()
        for asked in waiting.values():
            if not asked.done():
                asked.set_exception(TargetError(f"the local zygote ended with code {process.returncode}"))
