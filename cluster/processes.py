"""The processes of a cluster: found by a mark in their environment, so that no pid is ever written down or trusted."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError, PartFailed, last_lines

FOLDER = "SEATRIAL_CLUSTER"
PART = "SEATRIAL_CLUSTER_PART"
APPEARS_WITHIN_S = 120.0
LOOKS = 100  # without a trace of it, after which it is gone: what is about to become it has the same mark
LOOK_S = 0.02


@dataclass(frozen=True)
class Process:
    pid: int
    part: str
    leader: bool
    """Of its session: the part itself. What a part starts (a container's shim) has its mark but leads none."""
    inner_pid: int
    """Its pid in the innermost pid namespace: 1 for a node's init."""


def find(folder: Path) -> list[Process]:
    """All that live and were started for the cluster in this folder, by whomever."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := _look(int(entry), folder)):
            found.append(process)
    return found


def parts(folder: Path) -> dict[str, int]:
    return {process.part: process.pid for process in find(folder) if process.leader}


def init_of(folder: Path) -> int | None:
    """The first process of the cluster's real node, as seen from here."""
    return next((one.pid for one in find(folder) if one.part == "node" and one.inner_pid == 1), None)


def environment(folder: Path, part: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Little of the caller's, and no proxies: a cluster talks to itself. Debian's own paths for containerd and ip."""
    path = os.environ.get("PATH", os.defpath)
    own = {"PATH": f"{path}:/usr/local/sbin:/usr/sbin:/sbin", "LANG": "C.UTF-8", FOLDER: str(folder), PART: part}
    return {**own, **(more or {})}


def start(folder: Path, part: str, argv: Sequence[str | Path], log: Path, enter: Sequence[str] = ()) -> int:
    """A process of its own session that outlives us. `enter` is what comes before, to start it in a node."""
    command = [*enter, "setsid", "--fork", *map(str, argv)]
    with log.open("ab") as out:
        done = subprocess.run(
            command,
            cwd="/",
            env=environment(folder, part),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    until, misses = time.monotonic() + APPEARS_WITHIN_S, 0
    while done.returncode == 0 and misses < LOOKS and time.monotonic() < until:
        there = [one for one in find(folder) if one.part == part]
        misses = 0 if there else misses + 1
        for one in there:
            if one.leader and _became_itself(one.pid):
                return one.pid
        time.sleep(LOOK_S)
    raise PartFailed(part, "did not start", last_lines(log))


def _became_itself(pid: int) -> bool:
    """No longer the copy of setsid that is about to run it, and may fail to."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() != "setsid"
    except OSError:
        return False


def stop(processes: Iterable[Process], folder: Path, grace_s: float = 0.0) -> None:
    """Ends them and waits for it: at once, or after some time to end by themselves. Never another of that pid."""
    held = [descriptor for process in processes if (descriptor := _hold(process, folder)) is not None]
    try:
        if grace_s:
            _signal(held, signal.SIGTERM)
            _wait(held, grace_s)
        _signal(held, signal.SIGKILL)
        if not _wait(held, 120.0):
            raise ClusterError(
                f"processes of the cluster in {folder} do not end even when killed.", "The machine's disk may hang."
            )
    finally:
        for descriptor in held:
            os.close(descriptor)


def stop_all(folder: Path) -> None:
    """Everything, also what was just being started while we looked."""
    while there := find(folder):
        stop(there, folder)


def _look(pid: int, folder: Path) -> Process | None:
    try:
        marks = _marks(Path(f"/proc/{pid}/environ").read_bytes())
        if marks.get(FOLDER) != str(folder):
            return None
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # gone, or another user's
        return None
    if fields[0] in "ZX":
        return None
    inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), str(pid))
    return Process(pid, marks.get(PART, ""), int(fields[3]) == pid, int(inner))


def _marks(environ: bytes) -> dict[str, str]:
    pairs = (item.partition(b"=") for item in environ.split(b"\0") if item.startswith(FOLDER.encode()))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _hold(process: Process, folder: Path) -> int | None:
    """A descriptor of the process: looked at again after it was opened, it cannot become another process."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if _look(process.pid, folder) is None:
        os.close(descriptor)
        return None
    return descriptor


def _signal(held: Iterable[int], number: signal.Signals) -> None:
    for descriptor in held:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)


def _wait(held: Iterable[int], wait_s: float) -> bool:
    """Whether all have ended."""
    until = time.monotonic() + wait_s
    for descriptor in held:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            return False
    return True
