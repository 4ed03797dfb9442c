"""The ports that jobs of this machine listen on: free ones, given out when a job is submitted, each to one job only."""

import contextlib
import errno
import random
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from seatrial.target.local.folders import JobFolder, JobSubmission
from seatrial.target.local.reservations import locked, submissions_of_others
from seatrial.target.protocol import TargetError

FIRST, LAST = 20_000, 29_999  # below what the kernel gives to outgoing connections, and what Kubernetes to its nodes
_LOCK = "ports.lock"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextlib.contextmanager
def reserved(folder: JobFolder, submission: JobSubmission, before: JobSubmission | None) -> Iterator[dict[str, int]]:
    """A free port for each that the job names. No other job is given one before the block ends: by then they have to be
    in the folder of the job. `before`: what was there, of a submit that did not come to its end; its ports stay, for
    whoever asked may yet start it."""
    names = [port.name for port in submission.job.ports]
    if not names:
        yield {}
        return
    with locked(folder.path.parent.parent.parent / _LOCK):
        others = submissions_of_others(folder, submission.host)
        taken = {number for other in others for number in other.ports.values()}
        if before is not None and list(before.ports) == names and _all_free(before.ports.values(), taken):
            yield before.ports
        else:
            yield dict(zip(names, _choose(len(names), taken), strict=True))


def _choose(count: int, taken: set[int]) -> list[int]:
    """Anywhere in the range: two users who each have a state of their own rarely meet."""
    candidates = [number for number in _range() if number not in taken]
    random.shuffle(candidates)
    chosen: list[int] = []
    for number in candidates:
        if _free(number):
            chosen.append(number)
            if len(chosen) == count:
                return chosen
    raise TargetError(f"there are no {count} free ports from {FIRST} to {LAST}")


def _all_free(numbers: Iterable[int], taken: set[int]) -> bool:
    return all(number not in taken and _free(number) for number in numbers)


def _range() -> list[int]:
    """Without those that the kernel may give to an outgoing connection; with them where there would be none."""
    wanted = range(FIRST, LAST + 1)
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        return list(wanted)
    return [number for number in wanted if not low <= number <= high] or list(wanted)


def _free(number: int) -> bool:
    """Nothing listens there, on any address; nor did a moment ago, which would keep a plain server from it."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            trial = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a kernel without that family
            continue
        with trial:
            try:
                if family == socket.AF_INET6:
                    trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                trial.bind((address, number))
            except OSError as error:
                if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                    return False
    return True
