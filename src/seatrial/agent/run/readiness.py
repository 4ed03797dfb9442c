"""Probes a port of the job until it answers once: an accepted connection, or a GET with a status below 400.

A thread probes, so that the runner never waits for a server that accepts a connection but does not respond.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from typing import Callable, Optional

from ..contain.process import read_proc
from ..job_file import JobError

_FIRST_S = 0.05
_SHARE = 0.02  # of the time since the start: the largest relative delay in noticing readiness
SLOWEST_S = 1.0
ATTEMPT_S = 5.0
_HEAD_BYTES = 8 << 10  # of an answer, which contain its status
LISTEN = b"0A"
LOOPBACK = (b"7F", b"00000000000000000000000001000000")  # how 127.0.0.0/8 and ::1 end, as the kernel prints them


class Readiness:
    """`found` is called once, by the runner that reads the pipe. `listens`, if given, must be true before the port is
    probed: a container's port forwarder accepts connections even if the container does not."""

    def __init__(
        self, port: int, path: str, found: Callable[[], object], listens: Optional[Callable[[int], bool]] = None
    ) -> None:
        self._port = port
        request = "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: seatrial\r\nAccept: */*\r\nConnection: close"
        self._request = (request % (path, port) + "\r\n\r\n").encode("ascii", "replace") if path else b""
        self._found = found
        self._listens = listens or (lambda port: True)
        self._stopped = False

    def start(self) -> int:
        """Returns a pipe, to be read by `take`."""
        reader, writer = os.pipe()
        try:
            threading.Thread(target=self._probe, args=(writer,), daemon=True).start()
        except RuntimeError as error:  # the process limit of this user is reached
            raise JobError("cannot probe port %d: %s" % (self._port, error)) from error
        return reader

    def take(self, data: bytes) -> None:
        if data and not self._stopped:
            self._found()

    def stop(self) -> None:
        self._stopped = True

    def _probe(self, writer: int) -> None:
        begun_s = time.monotonic()
        while not self._stopped:
            with contextlib.suppress(OSError):
                if self._listens(self._port) and self._answers():
                    os.write(writer, b"1")
                    break
            time.sleep(min(SLOWEST_S, max(_FIRST_S, _SHARE * (time.monotonic() - begun_s))))
        os.close(writer)

    def _answers(self) -> bool:
        until_s = time.monotonic() + ATTEMPT_S
        with socket.create_connection(("127.0.0.1", self._port), ATTEMPT_S) as server:
            if server.getpeername() == server.getsockname():  # the kernel chose the probed port as the source port
                return False
            if not self._request:
                return True
            server.sendall(self._request)
            head = b""
            while b"\n" not in head and len(head) <= _HEAD_BYTES:
                server.settimeout(max(0.001, until_s - time.monotonic()))
                data = server.recv(_HEAD_BYTES)
                if not data:
                    return False
                head += data
        status, ended, _ = head.partition(b"\n")
        return bool(ended and re.match(rb"\s*HTTP/\S*\s+[23]\d\d(?!\S)", status))


def listens_in(pid: int, port: int) -> bool:
    """Whether a process in the network of `pid` listens on the port, not only on loopback."""
    for name in ("tcp", "tcp6"):
        try:
            lines = read_proc("/proc/%d/net/%s" % (pid, name)).splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(b":")
            if fields[3] == LISTEN and int(number, 16) == port and not address.endswith(LOOPBACK):
                return True
    return False
