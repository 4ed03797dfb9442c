"""Is the supervisor of a job alive, and when does it end: by boot, number and start time, never by number alone.

And asking a program of this machine something, with a limit for its answer."""

import asyncio
import contextlib
import os
import signal

from seatrial.job.process import boot_id, process_start
from seatrial.target.local.folders import ProcessIdentity

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
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
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
