"""Is the supervisor of a job alive, and when does it end: by boot, number and start time, never by number alone."""

import asyncio
import os
import signal
from functools import cache
from pathlib import Path

from seatrial.target.local.folders import ProcessIdentity


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def open_process(identity: ProcessIdentity) -> int | None:
    """A pidfd of that very process, or None when it is gone."""
    if identity.boot_id != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # The pidfd now holds on to whoever has the number; the start time says whether that is the one meant.
    if _start(identity.pid) == identity.start:
        return descriptor
    os.close(descriptor)
    return None


def alive(identity: ProcessIdentity | None) -> bool:
    return identity is not None and identity.boot_id == boot_id() and _start(identity.pid) == identity.start


def _start(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


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


def send(identity: ProcessIdentity, number: signal.Signals) -> int | None:
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
